#pragma once

// A growing array of bytes.

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct buffer { // starts as { 0 }
    char * data;
    size_t n;
    size_t capacity;
};

// Returns false if memory is short; the buffer is then unchanged.
bool buffer_append(struct buffer * b, const void * data, size_t n);
void buffer_free(struct buffer * b);

#ifdef __cplusplus
}
#endif
