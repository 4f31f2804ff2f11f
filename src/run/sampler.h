#pragma once

// The fields of a sampler. State files save those that determine its next tokens.

#include "lrnn.h"

enum { SAMPLER_RECENT_MAX = 4096 };

struct lrnn_sampler {
    struct lrnn_sampler_params params;
    uint64_t                   random[2];                  // state of the generator
    int32_t                    recent[SAMPLER_RECENT_MAX]; // the last tokens, as a ring
    int64_t                    n_accepted;

    struct candidate * candidates; // scratch
    size_t             cap_candidates;
};

// The same as lrnn_sampler_sample, from the tokens t with bit t % 32 of allowed[t / 32], of which
// there is one. NULL: from all. The log-probability is that among all.
int32_t sampler_sample(struct lrnn_sampler * s, const float * logits, int64_t n_vocab,
        const uint32_t * allowed, float * log_prob, struct lrnn_error * err);
