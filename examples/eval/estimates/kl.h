#pragma once

// Measures how far the predictions of one model are from those of another on the same tokens, for
// example after quantization.
//
// Position t, 1 ≤ t < W, is the number of tokens that both have seen. p is the prediction of token
// x_t by the reference, q that of the other model:
//
//     KL_t  = Σ_v p_v (ln p_v − ln q_v)
//     nll_t = −ln p(x_t), −ln q(x_t)
//     top-1 agreement: argmax p = argmax q
//
// The models run side by side, one call each for the same tokens, so no logits are stored. Results
// take 16 bytes per position and pair of models.

#include "lrnn.h"
#include "eval/estimates/losses.h"

// One position. Sums are in double precision.
struct kl {
    double kl;
    double nll_p, nll_q; // of the target
    bool   same_top;
};

struct kl kl_of(const float * logits_p, const float * logits_q, int64_t n_vocab, int32_t target);

// One position of a window, rounded.
struct kl_position {
    float kl; // NaN: not scored
    float nll_p, nll_q;
    bool  same_top;
};

struct kl_window {
    int64_t              n;  // W − 1 positions
    struct kl_position * at; // [n]; index t − 1
};

struct kl_windows {
    int64_t            n;
    size_t             capacity;
    struct kl_window * windows;
};

// Feeds one window to sequence 0 of all sessions, from an empty state, in calls of at most n_batch
// tokens. Appends the results of session i + 1, relative to session 0, to out[i]. Non-finite logits
// are an error that names the position.
// - n_sessions: 2 or more
bool kl_measure(struct lrnn_session * const * sessions, int n_sessions, int64_t n_vocab,
        const struct window * window, int64_t n_batch, struct kl_windows * out,
        struct lrnn_error * err);
void kl_windows_free(struct kl_windows * w);

// All windows over a range of positions, with intervals over windows (stats.h).
struct kl_summary {
    struct position_range range;
    int64_t               n;      // positions
    struct stats_estimate kl;     // mean
    double                kl_p99; // 99th percentile over positions
    double                kl_max;
    struct stats_estimate nll_p, nll_q;
    struct stats_estimate change;   // of the mean nll, q − p, paired: ln of the perplexity ratio
    struct stats_estimate same_top; // fraction
};

// Makes one summary per range.
void kl_summarize(const struct kl_windows * w, const struct position_range * ranges, int n_ranges,
        struct kl_summary * out);
