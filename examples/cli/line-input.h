#pragma once

// Reads what the user types on the terminal: one line, or several of which all but the last end
// with a backslash.

#include <stdbool.h>
#include <stddef.h>

// A terminal without line editing drops the rest of a longer line.
enum { LINE_INPUT_MAX = 4095 };

#define LINE_INPUT_CUT "the terminal cut this line at %d characters; use -f FILE"

enum line_status {
    LINE_OK,
    LINE_END,       // Ctrl-D
    LINE_INTERRUPT, // Ctrl-C or another request to stop; the text is dropped
    LINE_CUT,       // the terminal may have dropped a part; the text is dropped
    LINE_MEMORY,    // out of memory
};

struct line_input;

// NULL: out of memory.
struct line_input * line_input_new(void);
void line_input_free(struct line_input * input);

// Reads lines after a prompt. The backslashes are dropped, the line ends between lines kept. The
// text is valid until the next call.
enum line_status line_input_read(struct line_input * input, const char ** text, size_t * size);

// True if a line of a text from the terminal may have been cut.
bool line_input_is_cut(const char * text, size_t size);
