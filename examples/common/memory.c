#include "memory.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "program.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void * checked(void * memory, size_t size) {
    if (memory == NULL) {
        exit(program_fail(EXIT_CODE_SYSTEM, "out of memory for %zu bytes", size));
    }
    return memory;
}

void * program_alloc(size_t n, size_t size) {
    return checked(calloc(n > 0 ? n : 1, size), n * size);
}

void program_grow(void * array, size_t * capacity, size_t n, size_t item_size) {
    checked(array_grow(array, capacity, n, item_size) ? array : NULL, n * item_size);
}

struct arena * program_arena(void) {
    return checked(arena_new(), sizeof(void *));
}

void * program_alloc_in(struct arena * arena, size_t n, size_t size) {
    return checked(
            size == 0 || n <= SIZE_MAX / size ? arena_alloc(arena, n * size) : NULL, n * size);
}

char * program_print_args_in(struct arena * arena, const char * format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    char *    text = n >= 0 ? program_alloc_in(arena, (size_t) n + 1, 1) : checked(NULL, 0);
    vsnprintf(text, (size_t) n + 1, format, again);
    va_end(again);
    return text;
}

char * program_print_in(struct arena * arena, const char * format, ...) {
    va_list args;
    va_start(args, format);
    char * text = program_print_args_in(arena, format, args);
    va_end(args);
    return text;
}
