#pragma once

// What a program may do on a terminal and must not do elsewhere: colour, and a line that overwrites
// itself.

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// False unless the stream is a terminal that is not "dumb"; false if NO_COLOR is set and not empty
// (no-color.org).
bool terminal_has_color(FILE * out);

#define TERMINAL_BOLD  "\033[1m"
#define TERMINAL_RED   "\033[31m"
#define TERMINAL_GREEN "\033[32m"
#define TERMINAL_RESET "\033[0m"

// Progress on stderr: on a terminal one line with the time that is left, elsewhere a plain line now
// and then.
struct progress {
    int     n_steps;
    int     n_done;
    bool    is_terminal;
    int64_t start_us;
    int64_t shown_us;
};

void progress_begin(struct progress * p, int n_steps);      // 0: nothing is shown
void progress_step(struct progress * p, const char * what); // `what` begins
void progress_done(struct progress * p);                    // it ended
void progress_clear(struct progress * p); // takes the line off the terminal, before other output
