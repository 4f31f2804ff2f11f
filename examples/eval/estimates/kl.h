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
// take 13 bytes per position and pair of models.

#include "lrnn.h"
#include "eval/estimates/stats.h"
#include "eval/data/windows.h"

// One position. Sums are in double precision.
struct divergence {
    double kl;
    double nll_p, nll_q; // of the target
    bool   same_top;
};

struct divergence divergence_of(
        const float * logits_p, const float * logits_q, int64_t n_vocab, int32_t target);

// One window.
struct divergence_window {
    int64_t   n;        // W − 1 positions; index t − 1
    float *   kl;       // [n]; NaN: not scored
    float *   nll_p;    // [n]
    float *   nll_q;    // [n]
    uint8_t * same_top; // [n]
};

struct divergence_windows {
    int64_t                    n;
    struct divergence_window * windows;
};

// Feeds one window to sequence 0 of all sessions, from an empty state, in calls of at most n_batch
// tokens. Appends the results of session i + 1, relative to session 0, to out[i]. Non-finite logits
// are an error that names the position, with *not_finite set.
// - n_sessions: 2 or more
bool divergence_measure(struct lrnn_session * const * sessions, int n_sessions, int64_t n_vocab,
        const struct window * window, int64_t n_batch, struct divergence_windows * out,
        bool * not_finite, struct lrnn_error * err);
void divergence_windows_free(struct divergence_windows * w);

// Positions first … last.
struct divergence_range {
    int64_t first, last;
};

// All windows over a range of positions, with intervals over windows (stats.h).
struct divergence_summary {
    struct divergence_range range;
    int64_t                 n;      // positions
    struct stats_estimate   kl;     // mean
    double                  kl_p99; // 99th percentile over positions
    double                  kl_max;
    struct stats_estimate   nll_p, nll_q;
    struct stats_estimate   change;   // of the mean nll, q − p, paired: ln of the perplexity ratio
    struct stats_estimate   same_top; // fraction
};

// Makes one summary per range. Returns false if out of memory.
bool divergence_summarize(const struct divergence_windows * w,
        const struct divergence_range * ranges, int n_ranges, struct divergence_summary * out);

enum { DIVERGENCE_RANGES_MAX = 4096 };

// Cuts positions 1 … last into ranges of `bucket` positions; 0: 1 … 64, then up to the next powers
// of two. Returns their number.
int divergence_ranges(int64_t last, int64_t bucket, struct divergence_range * ranges, int max);
