#pragma once

// The loss over ranges of positions, with confidence intervals.
//
// The position of a target is t, the number of tokens that the model has seen before it; in a run
// that is never reset, window·W + t.
//
//     nats per token     Σ nll / Σ tokens; perplexity is its exponential, not a mean of
//                        perplexities
//     bits per byte      Σ nll / (ln 2 · Σ bytes)
//
// Sums are computed in double precision, window by window in the order of the file. A window has
// diverged from its first non-finite loss on: a range that reaches this position excludes the
// window and counts it as diverged.

#include "base/arena.h"
#include "eval/scores/score-file.h"
#include "eval/estimates/stats.h"

struct position_range {
    int64_t from, to; // targets from ≤ t ≤ to
};

// The sums of one window in one range.
struct score_cell {
    double  nll; // nats
    int64_t tokens, bytes, hits;
    bool    diverged; // the sums are 0
};

// The loss over one range of positions.
struct loss {
    struct position_range range;
    int64_t               tokens, bytes, hits;
    int64_t               windows;  // that contribute
    int64_t               diverged; // windows excluded
    struct stats_estimate nats;     // per token
    struct stats_estimate bits;     // per byte
};

// The losses over several ranges. A unit is a window, or several that score the same targets.
struct losses {
    int                 n;
    struct loss *       at;    // [n]
    struct score_cell * cells; // [n_units][n]
};

enum loss_unit { LOSS_PPL, LOSS_NATS, LOSS_BPB };

// A loss in a unit, and the ends of its interval.
double loss_value(const struct loss * l, enum loss_unit unit);
double loss_lo(const struct loss * l, enum loss_unit unit);
double loss_hi(const struct loss * l, enum loss_unit unit);

// The sums over targets first … last of a window.
struct score_cell score_cell_of(const struct score_window * w, int64_t first, int64_t last);

// The sum of n cells; diverged if one of them is.
struct score_cell score_cell_sum(const struct score_cell * cells, int n);

// Numerator and denominator of the loss of a cell; in nats unless the unit is LOSS_BPB.
struct stats_pair score_cell_pair(const struct score_cell * c, enum loss_unit unit);

// Allocates losses with empty cells. Returns false if out of memory.
bool losses_alloc(struct losses * l, const struct position_range * ranges, int n, int64_t n_units,
        struct arena * arena);

// Computes sums and estimates from the cells. Returns false if out of memory.
bool losses_estimate(struct losses * l, int64_t n_units);

// Removes the ranges without targets.
void losses_trim(struct losses * l, int64_t n_units);
