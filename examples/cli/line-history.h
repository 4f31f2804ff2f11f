#pragma once

// The messages that a user has typed, in a file that only the user can read.

#include "base/buffer.h"

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
