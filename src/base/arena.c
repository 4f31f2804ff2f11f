#include "base/arena.h"

#include <stdint.h>
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
    if (arena == NULL) {
        return NULL;
    }
    struct piece * piece =
            size <= SIZE_MAX - sizeof(struct piece) ? calloc(1, sizeof(struct piece) + size) : NULL;
    if (piece == NULL) {
        return NULL;
    }
    piece->next = arena->pieces;
    arena->pieces = piece;
    return piece->data;
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
