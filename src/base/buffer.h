#pragma once

// Arrays that grow.

#include <stdbool.h>
#include <stddef.h>

// Makes room for n items in an allocated array, at least doubling it. Returns false if out of
// memory; the array is then unchanged.
// - array: the address of the pointer, which is NULL at first
bool array_grow(void * array, size_t * capacity, size_t n, size_t item_size);

// Bytes.
struct buffer { // initialize with { 0 }
    char * data;
    size_t n;
    size_t capacity;
};

// Returns false if out of memory; the buffer is then unchanged.
bool buffer_append(struct buffer * b, const void * data, size_t n);
void buffer_free(struct buffer * b);
