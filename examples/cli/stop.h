#pragma once

// Stop strings: text passes through until one of them is complete. What may be the beginning of one
// is held back until it is known.

#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct stop_filter {
    const struct option_strings * stops;
    FILE * out;  // where the text goes; NULL: nowhere, the strings are only looked for
    char * held; // as long as the longest stop string
    size_t n_held;
};

bool stop_begin(struct stop_filter * filter, const struct option_strings * stops,
        FILE * out); // false: out of memory
bool stop_push(struct stop_filter * filter, const char * text,
        size_t size);                       // true: a stop string is complete, stop
void stop_end(struct stop_filter * filter); // lets go what was held back, and frees
