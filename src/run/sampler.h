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
