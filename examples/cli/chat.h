#pragma once

// A conversation: reads messages from the terminal or from stdin, line by line, and prints the
// answers. Lines that begin with / are commands.

#include "exit-code.h"
#include "generate.h"

struct chat_options {
    const struct lrnn_chat * format;
    const char *             system; // NULL: none
    const char *             prompt; // the only message; NULL: read messages
    size_t                   prompt_size;
    const char *             load;       // a conversation to continue; NULL: none
    const char *             save;       // saves the conversation at the end; NULL: does not
    int64_t                  max_tokens; // of an answer; 0: no limit
    bool                     no_thinking;
    int64_t                  n_cache; // size of the attention cache, in tokens
};

// - g: its generation keeps the sequence, and tokens of the format end it
enum exit_code chat_run(const struct chat_options * options, struct generator * g);

// ---- thinking.c ---------------------------------------------------------------------------------
//
// Prints answers. On a terminal the thinking section is dimmed and its marks are not shown;
// elsewhere the text is written as it is.

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
