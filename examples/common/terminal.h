#pragma once

// Terminal output: color, width, and a progress line that overwrites itself.

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// False unless the stream is a terminal that is not "dumb", and if NO_COLOR is set and not empty
// (no-color.org).
bool terminal_has_color(FILE * out);

// True for a terminal that understands escape sequences: not "dumb".
bool terminal_is_smart(FILE * out);

// Columns of the terminal, or else of the environment variable COLUMNS, or else 80.
int terminal_width(FILE * out);

// Prints words and the end of a line. Wraps between words.
// - column: where the text begins
// - indent: where its other lines begin
void terminal_print_wrapped(FILE * out, const char * text, int column, int indent, int width);

// Prints words and the end of a line; wraps only on a terminal.
void terminal_print(FILE * out, const char * text);

// Replaces the line on the terminal. A text that is too wide loses its middle: "[2/9] blk.1...t,
// about 3 s left".
void terminal_redraw(FILE * out, const char * text);

// Clears the line on the terminal.
void terminal_clear(FILE * out);

#define TERMINAL_BOLD  "\033[1m"
#define TERMINAL_DIM   "\033[2m"
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

void progress_begin(struct progress * p, int n_steps); // 0: show nothing

// For a line of the caller's own: whether it is time for one, and the line.
bool progress_is_due(struct progress * p);
void progress_print(const struct progress * p, const char * line);

void progress_step(struct progress * p, const char * what); // a step begins
void progress_done(struct progress * p);                    // it ends
void progress_clear(struct progress * p);                   // erase the line before other output
