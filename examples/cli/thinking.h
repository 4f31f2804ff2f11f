#pragma once

// Prints answers. On a terminal the thinking section is dimmed and its marks are not shown;
// elsewhere the text is written as it is.

#include "lrnn.h"

struct thinking_printer {
    const char * mark[2]; // opens, closes; NULL: no thinking sections
    size_t       size[2];
    bool         is_styled;
    bool         is_inside;
    char         held[64]; // may be the beginning of a mark
    size_t       n_held;
};

// - is_styled: stdout is a terminal that can dim text
// - begins:    the prompt for the answer opened the section
void thinking_begin(
        struct thinking_printer * p, const struct lrnn_chat * chat, bool is_styled, bool begins);

// A text_write for struct output; user is the printer.
void thinking_write(const char * text, size_t size, void * user);

// Writes what was held back.
void thinking_end(struct thinking_printer * p);
