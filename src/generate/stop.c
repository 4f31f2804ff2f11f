#include "generate/generation.h"

#include <stdlib.h>
#include <string.h>

static void release(struct stop_filter * f, size_t n) {
    if (n > 0) {
        f->no_memory = !buffer_append(f->out, f->held, n) || f->no_memory;
    }
    f->n_held -= n;
    memmove(f->held, f->held + n, f->n_held);
}

bool stop_begin(
        struct stop_filter * f, const char * const * stops, int32_t n_stops, struct buffer * out) {
    size_t longest = 1;
    for (int32_t i = 0; i < n_stops; ++i) {
        const size_t length = strlen(stops[i]);
        longest = length > longest ? length : longest;
    }
    *f = (struct stop_filter) {
        .stops = stops, .n_stops = n_stops, .out = out, .held = malloc(longest)
    };
    return f->held != NULL;
}

// True if the held text ends with the first n bytes of a stop string.
static bool ends_with(const struct stop_filter * f, const char * stop, size_t n) {
    return n <= f->n_held && memcmp(f->held + f->n_held - n, stop, n) == 0;
}

// The size of the longest stop string that ends the held text; 0: none does.
static size_t complete(const struct stop_filter * f) {
    size_t longest = 0;
    for (int32_t i = 0; i < f->n_stops; ++i) {
        const size_t n = strlen(f->stops[i]);
        if (n > longest && ends_with(f, f->stops[i], n)) {
            longest = n;
        }
    }
    return longest;
}

// The number of bytes at the end of the held text that may become a stop string.
static size_t begun(const struct stop_filter * f) {
    size_t longest = 0;
    for (int32_t i = 0; i < f->n_stops; ++i) {
        for (size_t n = strlen(f->stops[i]) - 1; n > longest; n--) {
            if (ends_with(f, f->stops[i], n)) {
                longest = n;
            }
        }
    }
    return longest;
}

bool stop_push(struct stop_filter * f, const char * text, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        f->held[f->n_held++] = text[i];
        const size_t n_stop = complete(f);
        if (n_stop > 0) {
            release(f, f->n_held - n_stop);
            f->n_held = 0;
            return true;
        }
        release(f, f->n_held - begun(f));
    }
    return false;
}

void stop_end(struct stop_filter * f) {
    release(f, f->n_held);
    free(f->held);
    f->held = NULL;
}
