#pragma once

// What the tokenizers need of Unicode: UTF-8, three classes of characters, and normalisation form
// C.

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

//
// UTF-8
//

#define UTF8_REPLACEMENT     "\xEF\xBF\xBD" // U+FFFD
#define UTF8_REPLACEMENT_LEN 3

// The character at p < end. Returns its length and sets *cp, or returns 0 if the bytes are not one;
// *bad is then the number of bytes that belong to the failed attempt: 1, or more if they began a
// character that was not completed (a "maximal subpart").
int utf8_decode(const char * p, const char * end, uint32_t * cp, int * bad);

// The character at p < end of text that is known to be valid. Advances p.
uint32_t utf8_next(const char ** p);

// Writes cp to out and returns its length.
int utf8_encode(uint32_t cp, char out[4]);

// Length of the longest start of the text that is valid.
size_t utf8_valid(const char * text, size_t len);

// Length of the text without a character at its end that more bytes could still complete.
size_t utf8_complete(const char * text, size_t len);

// Appends the text with U+FFFD in place of what is not UTF-8: one for each byte, or one for each
// maximal subpart. False: out of memory.
bool utf8_replace(const char * text, size_t len, bool each_byte, struct buffer * out);

//
// Characters
//

enum char_class {
    CHAR_CLASS_OTHER  = 0,
    CHAR_CLASS_LETTER = 1, // general category L
    CHAR_CLASS_NUMBER = 2, // general category N
    CHAR_CLASS_SPACE  = 3, // property White_Space
};

enum char_class char_class_of(uint32_t cp);

// True if the text cannot change under NFC, seen without a look at the tables. False says nothing.
bool nfc_quick_check(const char * text, size_t len);

// Appends the NFC of valid UTF-8. False: out of memory.
bool nfc_normalize(const char * text, size_t len, struct buffer * out);

#ifdef __cplusplus
}
#endif
