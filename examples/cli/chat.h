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
