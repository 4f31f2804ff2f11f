#pragma once

// From logits to text: scores, samples and decodes the tokens of one choice. The caller holds the
// lock of the job.

#include "lrnn.h"
#include "job.h"

struct generator {
    const struct lrnn_model * model;
    struct lrnn_model_info    info;
    int64_t                   n_cache; // limit on the length of a sequence; INT64_MAX: none
    float *                   changed; // [n_vocab], a copy of logits that may be changed
    bool *                    seen;    // [n_vocab], all false between calls
};

bool generator_init(struct generator * g, const struct lrnn_model * model, int64_t n_cache,
        struct lrnn_error * err);
void generator_free(struct generator * g);

// Prepares a choice, and frees what it needed. The results stay.
bool generation_begin(struct generator * g, struct choice * c, struct lrnn_error * err);
void generation_end(struct choice * c);

// Adds a score to those of a choice.
bool generation_add_score(
        struct choice * c, const struct token_score * score, struct lrnn_error * err);

// Scores a token under the logits before it [n_vocab]; NULL: it is the first.
bool generation_score(struct generator * g, struct choice * c, int32_t token, const float * logits,
        struct lrnn_error * err);

// Generates a token. False: the choice is done, or err is not "".
bool generation_sample(
        struct generator * g, struct choice * c, const float * logits, struct lrnn_error * err);
