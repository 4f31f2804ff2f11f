#pragma once

// Log-probabilities under a row of logits: p = softmax(logits), computed as exp(logit − maximum) in
// float, summed in double.

#include <stdbool.h>
#include <stdint.h>

struct nll {
    float nats; // −ln p(target); NaN if a logit is not finite
    bool  top1; // the target is the most likely token; of several, the first
};

struct nll nll_of(const float * logits, int64_t n_vocab, int32_t target);

struct nll_row {
    const float * logits; // [n_vocab]
    int32_t       target;
    struct nll    nll; // the result
};

// Computes nll of every row. The results do not depend on the number of threads.
// - n_threads: 0: one per core
void nll_of_rows(struct nll_row * rows, int64_t n_rows, int64_t n_vocab, int32_t n_threads);

// For several tokens of one row: ln p of a token is log_norm_prob(norm, its logit).
struct log_norm {
    float  max;     // the largest logit; NaN if a logit is not finite
    double log_sum; // ln Σ exp(logit − max)
};

struct log_norm log_norm_of(const float * logits, int64_t n_vocab);
float log_norm_prob(struct log_norm norm, float logit);
