#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct piece {
    struct piece * next;
    max_align_t    data[];
};

struct arena {
    struct piece * pieces;
    bool           failed;
};

struct arena * arena_new(void) {
    return calloc(1, sizeof(struct arena));
}

void * arena_alloc(struct arena * arena, size_t size) {
    if (arena == NULL) {
        return NULL;
    }
    struct piece * piece =
            size <= SIZE_MAX - sizeof(struct piece) ? calloc(1, sizeof(struct piece) + size) : NULL;
    if (piece == NULL) {
        arena->failed = true;
        return NULL;
    }
    piece->next = arena->pieces;
    arena->pieces = piece;
    return piece->data;
}

bool arena_failed(const struct arena * arena) {
    return arena == NULL || arena->failed;
}

char * arena_print_args(struct arena * arena, const char * format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    char *    text = n >= 0 ? arena_alloc(arena, (size_t) n + 1) : NULL;
    if (text != NULL) {
        vsnprintf(text, (size_t) n + 1, format, again);
    }
    va_end(again);
    return text;
}

char * arena_print(struct arena * arena, const char * format, ...) {
    va_list args;
    va_start(args, format);
    char * text = arena_print_args(arena, format, args);
    va_end(args);
    return text;
}

void arena_free(struct arena * arena) {
    if (arena == NULL) {
        return;
    }
    while (arena->pieces != NULL) {
        struct piece * next = arena->pieces->next;
        free(arena->pieces);
        arena->pieces = next;
    }
    free(arena);
}
