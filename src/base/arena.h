#pragma once

// Allocations that are freed together.

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct arena;

struct arena * arena_new(void);                        // NULL: out of memory
void * arena_alloc(struct arena * arena, size_t size); // zeroed; NULL: out of memory
bool arena_failed(const struct arena * arena);         // memory was missing; NULL: true
void arena_free(struct arena * arena);                 // NULL is allowed

// Text of any length, as by printf; NULL: out of memory.
char * arena_print(struct arena * arena, const char * format, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;
char * arena_print_args(struct arena * arena, const char * format, va_list args);
