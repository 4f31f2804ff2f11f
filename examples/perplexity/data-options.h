#pragma once

// The text that a command feeds to models: its options, and the windows that come of it.

#include "exit-code.h"
#include "options.h"
#include "eval/windows.h"

struct text_input {
    struct option_strings data;
    const char *          dataset;
    const char * template;
    const char * text_field;
    const char * where;
    int64_t      start_doc, max_docs;
    int64_t      window, max_windows;
    int          mode; // enum window_mode
};

struct text_input text_input_defaults(void);

enum { TEXT_INPUT_OPTIONS = 11 };

// Puts the options into a table; returns TEXT_INPUT_OPTIONS.
int text_input_options(struct text_input * in, struct option * table);

// Reads the text and cuts it into windows of tokens of the model. NULL after a sentence on stderr;
// *code is then what the program returns.
struct windows * text_input_windows(const struct text_input * in, const struct lrnn_model * model,
        const char * program, bool quiet, enum exit_code * code);
