#pragma once

// Memory without which a program cannot continue. If there is none, these functions end the program
// with one sentence and EXIT_CODE_SYSTEM; unfinished outputs are removed. Memory whose size a file
// decides is not for them: there the error names the file.

#include <stdarg.h>
#include <stddef.h>

struct arena;

// Zeroed memory for n elements; free it with free().
void * program_alloc(size_t n, size_t size);

// As array_grow of base/buffer.h.
void program_grow(void * array, size_t * capacity, size_t n, size_t item_size);

struct arena * program_arena(void);

// The same as program_alloc and printf, in an arena.
void * program_alloc_in(struct arena * arena, size_t n, size_t size);
char * program_print_in(struct arena * arena, const char * format, ...)
        __attribute__((format(printf, 2, 3)));
char * program_print_args_in(struct arena * arena, const char * format, va_list args);
