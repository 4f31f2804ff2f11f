#pragma once

// Memory that is given back all at once.

#include <stddef.h>

struct arena;

struct arena * arena_new(void);                        // NULL: out of memory
void * arena_alloc(struct arena * arena, size_t size); // zeroed, NULL: out of memory
void arena_free(struct arena * arena);                 // NULL is fine
