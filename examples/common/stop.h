#pragma once

// Stop strings: passes text on until one of them is complete. Text that may be the beginning of one
// is held back.

#include "options.h"

#include <stdbool.h>
#include <stddef.h>

// Writes text to its destination.
typedef void (*text_write)(const char * text, size_t size, void * user);

void text_to_stdout(const char * text, size_t size, void * user);

struct stop_filter {
    const struct option_strings * stops;
    text_write                    write; // NULL: write nothing, only look for the strings
    void *                        write_user;
    char *                        held; // as long as the longest stop string
    size_t                        n_held;
};

// False: out of memory.
bool stop_begin(struct stop_filter * filter, const struct option_strings * stops, text_write write,
        void * write_user);

// True: a stop string is complete.
bool stop_push(struct stop_filter * filter, const char * text, size_t size);

// Writes the text that was held back, and frees the filter.
void stop_end(struct stop_filter * filter);
