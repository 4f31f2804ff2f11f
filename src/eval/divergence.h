#pragma once

// How far one model's predictions are from another's, over the same tokens: what quantisation does
// to a model.
//
// Position t, 1 ≤ t < W, is the number of tokens that both have seen. p is what the reference
// expects of token x_t, q what the other does:
//
//     KL_t = Σ_v p_v (ln p_v − ln q_v)        nll_t = −ln p(x_t), −ln q(x_t)        top-1 equal: argmax p = argmax q
//
// The models run in step, a call each for the same tokens, so that no logits are stored. What is
// kept is 13 bytes a position and pair.

#include "eval/stats.h"
#include "eval/windows.h"

// Of one position. Sums in double.
struct divergence {
    double kl;
    double nll_p, nll_q; // of the target
    bool   same_top;
};

struct divergence divergence_of(
        const float * logits_p, const float * logits_q, int64_t n_vocab, int32_t target);

// What was measured of one window.
struct divergence_window {
    int64_t   n;        // W − 1 positions; index t − 1
    float *   kl;       // [n], NaN where the position is not scored
    float *   nll_p;    // [n]
    float *   nll_q;    // [n]
    uint8_t * same_top; // [n]
};

struct divergence_windows {
    int64_t                    n;
    struct divergence_window * windows;
};

// Runs one window through all sessions, from their sequence 0 emptied, in calls of at most n_batch
// tokens, and appends what it finds to out[i] for session i + 1, with session 0 as reference.
// Logits that are not finite end in an error that names the position; *not_finite tells it from
// others.
// - n_sessions: 2 or more
bool divergence_measure(struct lrnn_session * const * sessions, int n_sessions, int64_t n_vocab,
        const struct window * window, int64_t n_batch, struct divergence_windows * out,
        bool * not_finite, char * err, size_t err_size);
void divergence_windows_free(struct divergence_windows * w);

// Positions first … last.
struct divergence_range {
    int64_t first, last;
};

// Of all windows, over a range of positions. Intervals are over windows (stats.h).
struct divergence_summary {
    struct divergence_range range;
    int64_t                 n;      // positions scored
    struct stats_estimate   kl;     // mean
    double                  kl_p99; // 99th percentile over positions
    double                  kl_max;
    struct stats_estimate   nll_p, nll_q;
    struct stats_estimate change; // of the mean nll, q − p, paired: ln of the ratio of perplexities
    struct stats_estimate same_top; // share
};

// One summary for each range. False only if memory is short.
bool divergence_summarize(const struct divergence_windows * w,
        const struct divergence_range * ranges, int n_ranges, struct divergence_summary * out);

enum { DIVERGENCE_RANGES_MAX = 4096 };

// Cuts positions 1 … last: bucket > 0: (0, bucket], (bucket, 2·bucket], …; 0: 1 … 64, then up to
// the next powers of two. Returns how many there are.
int divergence_ranges(int64_t last, int64_t bucket, struct divergence_range * ranges, int max);
