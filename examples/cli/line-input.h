#pragma once

// Reads what the user types on the terminal: a line, or several. A line that ends with a backslash
// continues on the next one.

#include "base/buffer.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    LINE_INPUT_MAX = 4095,     // a terminal without line editing drops the rest of a longer line
    LINE_EDITOR_MAX = 1 << 20, // bytes of a message
};

#define LINE_INPUT_CUT "the terminal cut this line at %d characters; use -f FILE"

enum line_status {
    LINE_OK,
    LINE_END,       // Ctrl-D
    LINE_INTERRUPT, // Ctrl-C or another request to stop; the text is dropped
    LINE_CUT,       // too long; the text is dropped and the user was told
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

//
// The editor, for terminals that understand escape sequences
//

struct line_editor;

// NULL: the terminal is "dumb", or out of memory.
struct line_editor * line_editor_new(void);
void line_editor_free(struct line_editor * editor);

// Reads a message after a prompt and adds it to the history.
enum line_status line_editor_read(struct line_editor * editor, const char ** text, size_t * size);

// ---- line-history.c -----------------------------------------------------------------------------
//
// The messages that a user has typed, in a file that only the user can read.

enum {
    LINE_HISTORY_N = 1000,      // messages that are kept
    LINE_HISTORY_BYTES = 65536, // of a message; a longer one is not kept
};

struct line_history {                       // initialize with { 0 }
    struct buffer messages[LINE_HISTORY_N]; // the oldest first
    int           n;
    char *        path; // NULL: no file
};

// The file is $LRNN_HISTORY (empty: none), or lrnn/history in $XDG_STATE_HOME, or else in
// ~/.local/state. One that cannot be read or written is no reason to stop.
void line_history_load(struct line_history * h);
void line_history_free(struct line_history * h);

// Keeps a message, also in the file, unless it is empty, too long, or the same as the last one.
void line_history_add(struct line_history * h, struct buffer text);
