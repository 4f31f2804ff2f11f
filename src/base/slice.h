#pragma once

// Text inside a larger buffer, not terminated.

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct slice {
    const char * data;
    size_t       size;
};

struct slice slice_of(const char * text); // of a terminated text
bool slice_is(struct slice text, const char * word);
int slice_compare(struct slice a, struct slice b); // by bytes; < 0, 0, > 0

// The number of insertions, deletions, replacements and swaps of neighbors that turn a into b, for
// names of up to 63 bytes; longer ones are SLICE_FAR apart.
enum { SLICE_FAR = 64 };

int slice_distance(struct slice a, struct slice b);

// Returns the value of a hexadecimal digit, or −1.
int hex_digit(char c);

// Returns true if the bytes are valid UTF-8. Sets *has_control if they contain control characters
// (C0 including NUL, DEL, C1).
bool slice_is_utf8(struct slice text, bool * has_control);

// Writes the text to buf for use in a message: in quotes, truncated to fit, with '?' in place of
// control characters, which a terminal might execute, and of invalid UTF-8. buf_size >= 8.
// Returns buf.
const char * slice_quote(char * buf, size_t buf_size, struct slice text);

#ifdef __cplusplus
}
#endif
