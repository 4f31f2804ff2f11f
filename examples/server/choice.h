#pragma once

// One choice of a job: its generation, the scores of its tokens, biases and penalties. The caller
// holds the lock of the job.

#include "job.h"
#include "lrnn.h"

// What the choices of a session share.
struct choice_tools {
    struct lrnn_session *  session;
    struct lrnn_model_info info;
    float *                changed; // [n_vocab], a copy of logits that may be changed
    bool *                 seen;    // [n_vocab], all false between calls
};

bool choice_tools_init(struct choice_tools * t, struct lrnn_session * session,
        struct lrnn_model_info info, struct lrnn_error * err);
void choice_tools_free(struct choice_tools * t);

// Prepares a choice that has a sequence, and frees what it needed. The results stay.
bool choice_begin(struct choice_tools * t, struct choice * c, struct lrnn_error * err);
void choice_end(struct choice * c);

// Adds a score to those of a choice.
bool choice_add_score(struct choice * c, const struct token_score * score, struct lrnn_error * err);

// Scores a token under the logits before it [n_vocab]; NULL: it is the first.
bool choice_score(struct choice_tools * t, struct choice * c, int32_t token, const float * logits,
        struct lrnn_error * err);

// Begins to generate after a prompt that is in the sequence, from the logits after it.
bool choice_take_logits(
        struct choice_tools * t, struct choice * c, const float * logits, struct lrnn_error * err);

// Continues after an input was fed. Its logits begin with `row`. False: failed; a choice that has
// ended has a finish reason.
bool choice_take(struct choice_tools * t, struct choice * c, const struct lrnn_input * input,
        int64_t row, struct lrnn_error * err);
