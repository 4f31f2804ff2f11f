#pragma once

// UTF-8, character classes and normalization form C (NFC).
//
// Token ids must equal those of the reference library, tokenizers, which takes classes and NFC from
// two different versions of Unicode. We therefore generate our tables from it
// (tests/tools/make-unicode-tables.py) instead of using a system's utf8proc, which has a third.

#include "base/buffer.h"

#include <stdint.h>

// ---- UTF-8 --------------------------------------------------------------------------------------

#define UTF8_REPLACEMENT     "\xEF\xBF\xBD" // U+FFFD
#define UTF8_REPLACEMENT_LEN 3

// Decodes the character at p < end. Returns its length and sets *cp. If the bytes are not a
// character, returns 0 and sets *bad to the length of the "maximal subpart": the bytes that start a
// character without completing it, at least 1.
int utf8_decode(const char * p, const char * end, uint32_t * cp, int * bad);

// Decodes the character at p in text that is known to be valid, and advances p.
uint32_t utf8_next(const char ** p);

// Writes the UTF-8 of cp to out and returns its length.
int utf8_encode(uint32_t cp, char out[4]);

// Returns the length of the longest valid prefix.
size_t utf8_valid(const char * text, size_t len);

// Returns the length of the text without an incomplete character at its end. Bytes that no further
// bytes could complete are kept.
size_t utf8_complete(const char * text, size_t len);

// Appends the text, replacing invalid UTF-8 by U+FFFD: one for each byte, or one for each maximal
// subpart. Returns false if out of memory.
bool utf8_replace(const char * text, size_t len, bool each_byte, struct buffer * out);

// ---- Characters ---------------------------------------------------------------------------------

enum char_class {
    CHAR_CLASS_OTHER = 0,
    CHAR_CLASS_LETTER = 1, // general category L
    CHAR_CLASS_NUMBER = 2, // general category N
    CHAR_CLASS_SPACE = 3,  // property White_Space
};

enum char_class char_class_of(uint32_t cp);

bool char_is_mark(uint32_t cp); // general category M; its class is OTHER
bool char_is_han(uint32_t cp);  // script Han

// What a character may be in a word: in its front part (general categories Lu, Lt, Lm, Lo, M) or in
// the rest (Ll, Lm, Lo, M)
enum { CHAR_FRONT = 1 << 0, CHAR_REST = 1 << 1 };
int char_word_parts(uint32_t cp);

// Returns true if the text is in NFC for certain. This needs no tables; false means "unknown".
bool nfc_quick_check(const char * text, size_t len);

// Appends the NFC of valid UTF-8. Returns false if out of memory.
bool nfc_normalize(const char * text, size_t len, struct buffer * out);
