#pragma once

// A conversation: reads messages from the terminal or from stdin, line by line, and prints the
// answers. Lines that begin with / are commands.

#include "generate.h"

struct chat_options {
    const char *                  format; // NULL: that of the model file
    const char *                  system; // NULL: none
    const char *                  prompt; // the only message; NULL: read messages
    size_t                        prompt_size;
    const char *                  load; // a conversation to continue; NULL: none
    const char *                  save; // saves the conversation at the end; NULL: does not
    const struct option_strings * stops;
    int64_t                       n_predict;
    bool                          no_thinking;
    int32_t                       n_copies; // of the state; the session has one sequence more
};

// Sets *finish to how the last answer ended.
enum exit_code chat_run(
        const struct chat_options * options, struct generator * g, enum finish * finish);
