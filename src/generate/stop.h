#pragma once

// Stop strings: passes text on until one of them is complete. Text that may be the beginning of one
// is held back.

#include "base/buffer.h"

#include <stdint.h>

struct stop_filter {
    const char * const * stops; // [n_stops], not empty
    int32_t              n_stops;
    struct buffer *      out;  // receives the text
    char *               held; // as long as the longest stop string
    size_t               n_held;
    bool                 no_memory; // for the text
};

// False: out of memory.
bool stop_begin(struct stop_filter * filter, const char * const * stops, int32_t n_stops,
        struct buffer * out);

// True: a stop string is complete.
bool stop_push(struct stop_filter * filter, const char * text, size_t size);

// Passes on the text that was held back, and frees the filter.
void stop_end(struct stop_filter * filter);
