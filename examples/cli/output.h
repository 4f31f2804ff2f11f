#pragma once

// What is generated, on stdout, a token at a time: as text, as ids, or as a JSON object on a line
// of its own.

#include "lrnn.h"
#include "stop.h"

enum output_format {
    OUTPUT_TEXT,
    OUTPUT_IDS,
    OUTPUT_JSONL,
};

struct output {
    enum output_format    format;
    struct lrnn_decoder * decoder; // NULL without a tokenizer: ids have no text
    struct stop_filter    filter;
    int64_t               n_tokens;
    int                   error; // errno of the write that failed, 0: none did
};

// - continues: there is text before it
bool output_begin(struct output * out, enum output_format format, const struct lrnn_model * model,
        bool continues, const struct option_strings * stops, char * err, size_t err_size);

// Writes a token, and lets the reader see it. True: a stop string is complete.
// - is_end: the token that ends the text. It is no text itself.
bool output_token(struct output * out, int32_t token, float log_prob, bool is_end);

// Writes what was held back.
// - newline: the next line is somebody else's
void output_end(struct output * out, bool newline);
