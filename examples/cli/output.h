#pragma once

// Writes generated tokens to stdout: as text, as ids, or as JSON, one object per line.

#include "lrnn.h"

enum output_format {
    OUTPUT_TEXT,
    OUTPUT_IDS,
    OUTPUT_JSONL,
};

// Writes text to its destination.
typedef void (*text_write)(const char * text, size_t size, void * user);

struct output {
    enum output_format    format;
    struct lrnn_decoder * decoder; // of OUTPUT_JSONL; NULL without a tokenizer
    text_write            write;   // where OUTPUT_TEXT goes; NULL: to stdout
    void *                write_user;
    int64_t               n_tokens;
    int                   error; // errno of the first failed write; 0: none failed
};

// - follows: the output follows other text
bool output_begin(struct output * out, enum output_format format, const struct lrnn_model * model,
        bool follows, struct lrnn_error * err);

// Writes what was generated, and flushes.
// - is_eos: the last token ends the text and has no text itself
void output_write(struct output * out, const struct lrnn_generated * new, bool is_eos);

// - newline: end the line
void output_end(struct output * out, bool newline);
