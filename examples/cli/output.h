#pragma once

// Writes generated tokens to stdout: as text, as ids, or as JSON, one object per line.

#include "lrnn.h"
#include "stop.h"

enum output_format {
    OUTPUT_TEXT,
    OUTPUT_IDS,
    OUTPUT_JSONL,
};

struct output {
    enum output_format    format;
    struct lrnn_decoder * decoder; // NULL without a tokenizer
    struct stop_filter    filter;
    int64_t               n_tokens;
    int                   error; // errno of the first failed write; 0: none failed
};

// - continues: the output follows other text
// - write:     where OUTPUT_TEXT goes
bool output_begin(struct output * out, enum output_format format, const struct lrnn_model * model,
        bool continues, const struct option_strings * stops, text_write write, void * write_user,
        struct lrnn_error * err);

// Writes a token and flushes. Returns true if a stop string is complete.
// - is_end: the token ends the text and has no text itself
bool output_token(struct output * out, int32_t token, float log_prob, bool is_end);

// Writes text that was held back.
// - newline: end the line
void output_end(struct output * out, bool newline);
