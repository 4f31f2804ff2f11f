#pragma once

// What a row of logits says of one token.

#include <stdbool.h>
#include <stdint.h>

struct nll {
    float nats; // −ln p(target); NaN if a logit is not finite
    bool  top1; // the target is the most likely token, the first of them if there are several
};

// p = softmax(logits). The maximum is taken off, exponentials are in float, their sum in double.
struct nll nll_of(const float * logits, int64_t n_vocab, int32_t target);
