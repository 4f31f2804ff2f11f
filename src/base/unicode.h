#pragma once

// What the tokenizers need of Unicode: UTF-8, three classes of characters, and normalisation form
// C.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lrnn_buffer { // bytes; grows; start with { 0 }
    char * data;
    size_t n;
    size_t capacity;
};

bool lrnn_buffer_append(
        struct lrnn_buffer * b, const void * data, size_t n); // false: out of memory
void lrnn_buffer_free(struct lrnn_buffer * b);

//
// UTF-8
//

#define LRNN_UTF8_REPLACEMENT     "\xEF\xBF\xBD" // U+FFFD
#define LRNN_UTF8_REPLACEMENT_LEN 3

// The character at p < end. Returns its length and sets *cp, or returns 0 if the bytes are not one;
// *bad is then the number of bytes that belong to the failed attempt: 1, or more if they began a
// character that was not completed (a "maximal subpart").
int lrnn_utf8_decode(const char * p, const char * end, uint32_t * cp, int * bad);

// The character at p < end of text that is known to be valid. Advances p.
uint32_t lrnn_utf8_next(const char ** p);

// Writes cp to out and returns its length.
int lrnn_utf8_encode(uint32_t cp, char out[4]);

// Length of the longest start of the text that is valid.
size_t lrnn_utf8_valid(const char * text, size_t len);

// Length of the text without a character at its end that more bytes could still complete.
size_t lrnn_utf8_complete(const char * text, size_t len);

// Appends the text with U+FFFD in place of what is not UTF-8: one for each byte, or one for each
// maximal subpart. False: out of memory.
bool lrnn_utf8_replace(const char * text, size_t len, bool each_byte, struct lrnn_buffer * out);

//
// Characters
//

enum lrnn_class {
    LRNN_CLASS_OTHER  = 0,
    LRNN_CLASS_LETTER = 1, // general category L
    LRNN_CLASS_NUMBER = 2, // general category N
    LRNN_CLASS_SPACE  = 3, // property White_Space
};

enum lrnn_class lrnn_class_of(uint32_t cp);

// True if the text cannot change under NFC, seen without a look at the tables. False says nothing.
bool lrnn_nfc_quick(const char * text, size_t len);

// Appends the NFC of valid UTF-8. False: out of memory.
bool lrnn_nfc(const char * text, size_t len, struct lrnn_buffer * out);

#ifdef __cplusplus
}
#endif
