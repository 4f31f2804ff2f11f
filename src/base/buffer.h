#pragma once

// A byte array that grows.

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct buffer { // initialize with { 0 }
    char * data;
    size_t n;
    size_t capacity;
};

// Returns false if out of memory; the buffer is then unchanged.
bool buffer_append(struct buffer * b, const void * data, size_t n);
void buffer_free(struct buffer * b);

#ifdef __cplusplus
}
#endif
