#pragma once

// Stop strings: passes text on until one of them is complete. Text that may be the beginning of one
// is held back.

#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct stop_filter {
    const struct option_strings * stops;
    FILE *                        out;  // NULL: write nothing, only look for the strings
    char *                        held; // as long as the longest stop string
    size_t                        n_held;
};

// False: out of memory.
bool stop_begin(struct stop_filter * filter, const struct option_strings * stops, FILE * out);

// True: a stop string is complete.
bool stop_push(struct stop_filter * filter, const char * text, size_t size);

// Writes the text that was held back, and frees the filter.
void stop_end(struct stop_filter * filter);
