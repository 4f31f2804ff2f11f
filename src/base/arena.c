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
};

struct arena * arena_new(void) {
    return calloc(1, sizeof(struct arena));
}

void * arena_alloc(struct arena * arena, size_t size) {
    if (size > SIZE_MAX - sizeof(struct piece)) {
        return NULL;
    }
    struct piece * piece = calloc(1, sizeof(struct piece) + size);
    if (piece == NULL) {
        return NULL;
    }
    piece->next   = arena->pieces;
    arena->pieces = piece;
    return piece->data;
}

char * arena_print(struct arena * arena, const char * format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n    = vsnprintf(NULL, 0, format, args);
    char *    text = n >= 0 ? arena_alloc(arena, (size_t) n + 1) : NULL;
    if (text != NULL) {
        vsnprintf(text, (size_t) n + 1, format, again);
    }
    va_end(again);
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
