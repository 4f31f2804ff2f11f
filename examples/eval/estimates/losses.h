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
struct loss_in_unit {
    double value, lo, hi;
};

struct loss_in_unit loss_in(const struct loss * l, enum loss_unit unit);

// The sums over targets first … last of a window.
struct score_cell score_cell_of(const struct score_window * w, int64_t first, int64_t last);

// The sum of n cells; diverged if one of them is.
struct score_cell score_cell_sum(const struct score_cell * cells, int n);

// Numerator and denominator of the loss of a cell; in nats unless the unit is LOSS_BPB.
struct stats_pair score_cell_pair(const struct score_cell * c, enum loss_unit unit);

// Allocates losses with empty cells.
// - ranges: NULL: the caller sets them
void losses_alloc(struct losses * l, const struct position_range * ranges, int n, int64_t n_units,
        struct arena * arena);

// Computes sums and estimates from the cells.
void losses_estimate(struct losses * l, int64_t n_units);

// Removes the ranges without targets.
void losses_trim(struct losses * l, int64_t n_units);

//
// Ranges of positions
//

// The ranges of positions 1 … length that a report shows.
//
//     bucket b           targets b·B < t ≤ (b + 1)·B, or 1–2, 3–4, 5–8, 9–16 … (log2)
//     prefix of L        targets t ≤ L − 1: what a run with windows of L tokens would score
//     curve              quarters of an octave, or a moving average
//
// Functions fill `ranges` and return the number of ranges.

enum {
    RANGES_MAX_BUCKETS = 4096,
    RANGES_MAX_CURVE = 1024,
};

// The bucket that suits windows of `window` tokens: 2,048, or less so that at least eight fit into
// a window and one into the trained length.
int64_t ranges_default_bucket(int64_t window, int64_t trained_length);

// Returns −1 if there are more than RANGES_MAX_BUCKETS.
// - bucket: B; 0: log2
int ranges_of_buckets(int64_t length, int64_t bucket, struct position_range * ranges);

// L = 512, 1,024, …, the given lengths, and the whole window. Short windows start at W/8.
// - ranges: room for 72 + n_lengths
int ranges_of_prefixes(
        int64_t length, const int64_t * lengths, int n_lengths, struct position_range * ranges);

// At most RANGES_MAX_CURVE ranges. The first positions are omitted: their losses are large, and few
// tokens contribute.
int ranges_of_octaves(int64_t length, struct position_range * ranges);

// The same, as windows of `smooth` positions around points on a linear or log2 axis.
int ranges_of_average(int64_t length, int64_t smooth, bool is_log2, struct position_range * ranges);
