#pragma once

// Terminal output: color, and a progress line that overwrites itself.

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// False unless the stream is a terminal that is not "dumb", and if NO_COLOR is set and not empty
// (no-color.org).
bool terminal_has_color(FILE * out);

#define TERMINAL_BOLD  "\033[1m"
#define TERMINAL_RED   "\033[31m"
#define TERMINAL_GREEN "\033[32m"
#define TERMINAL_RESET "\033[0m"

// Progress on stderr: one line with the remaining time on a terminal, occasional plain lines
// elsewhere.
struct progress {
    int     n_steps;
    int     n_done;
    bool    is_terminal;
    int64_t start_us;
    int64_t shown_us;
};

void progress_begin(struct progress * p, int n_steps);      // 0: show nothing
void progress_step(struct progress * p, const char * what); // a step begins
void progress_done(struct progress * p);                    // it ends
void progress_clear(struct progress * p);                   // erase the line before other output
