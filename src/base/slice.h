#pragma once

// Pieces of UTF-8 inside a larger buffer, not terminated.

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct slice {
    const char * data;
    size_t       size;
};

bool slice_is(struct slice text, const char * word);
int slice_compare(struct slice a, struct slice b); // by bytes; < 0, 0, > 0

// True if the bytes are well-formed UTF-8. Says also whether control characters are among them (NUL
// and the rest of C0, DEL, C1).
bool slice_is_utf8(struct slice text, bool * has_control);

// The text between quotes for a message: cut if it is long; control characters, which a terminal
// may obey, and what is not UTF-8 replaced with '?'. buf_size is at least 8. Returns buf.
const char * slice_quote(char * buf, size_t buf_size, struct slice text);

#ifdef __cplusplus
}
#endif
