#pragma once

// Allocations that are freed together.

#include <stddef.h>

struct arena;

struct arena * arena_new(void);                        // NULL: out of memory
void * arena_alloc(struct arena * arena, size_t size); // zeroed; NULL: out of memory
void arena_free(struct arena * arena);                 // NULL is allowed
