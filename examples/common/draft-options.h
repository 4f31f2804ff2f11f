#pragma once

// The options of drafts, and what they need of a session.

#include "lrnn.h"
#include "options.h"

struct draft_options { // tokens of a draft; at most one is not 0
    int32_t lookup;
    int32_t mtp;
};

#define DRAFT_OPTIONS(o)                                                                       \
    opt_int32("--draft-lookup", "N", &(o).lookup, 0, LRNN_DRAFT_MAX,                           \
            "guess up to N tokens from earlier text and check them in one call: faster where " \
            "text repeats. With Q8_0 and Q4_0 matrices the output is the same; with others, "  \
            "rounding may decide between close tokens. A sequence needs the memory of N + 1 "  \
            "more states. 0: off"),                                                            \
            opt_int32("--draft-mtp", "N", &(o).mtp, 0, LRNN_DRAFT_MAX,                         \
                    "the same with N tokens that the draft block of the model guesses "        \
                    "(multi-token prediction; lrnn-inspect says whether there is one). 0: off")

// Fails if both are given.
bool draft_options_check(const struct draft_options * o, struct lrnn_error * err);

void draft_options_session(const struct draft_options * o, struct lrnn_session_params * params);
