#pragma once

// What a run says: the figures of one model on one data set, by position. Everything is computed
// from the scores of single tokens, in double, window by window in the order of the file.
//
// Position of a target: t, the number of tokens that the model has seen before it; in a run that is
// never reset, window·W + t.
//
//     bucket b           targets b·B < t ≤ (b + 1)·B, or 1–2, 3–4, 5–8, 9–16 … (log2)
//     prefix of L        targets t ≤ L − 1: what a run with windows of L tokens would score
//     nats per token     Σ nll / Σ tokens        perplexity is its exponential: not a mean of perplexities
//     bits per byte      Σ nll / (ln 2 · Σ bytes)
//
// A window with a score that is not finite has diverged from there on: what it has before still
// counts, and every range of positions that reaches beyond leaves the window out and says so.

#include "eval/score-file.h"
#include "eval/stats.h"

struct position_range {
    int64_t from, to; // targets from ≤ t ≤ to
};

// What one window has in one range.
struct score_cell {
    double  nll; // sum, nats
    int64_t tokens, bytes, hits;
    bool    diverged; // the rest is 0
};

struct loss {
    struct position_range range;
    int64_t               tokens, bytes, hits;
    int64_t               windows;  // that these come from
    int64_t               diverged; // windows left out
    struct stats_estimate nats;     // a token
    struct stats_estimate bits;     // a byte
};

struct losses {
    int                 n;
    struct loss *       at;    // [n]
    struct score_cell * cells; // [n_units][n]
};

// How large states are: of each window, the largest norm among those that were taken in a bucket;
// over windows, their median and the largest.
struct range_norm {
    int64_t windows;      // 0: none was taken here
    double  median, most; // infinite: of a state that is not finite
    int32_t layer;        // that has `most`
};

// How the loss goes on beyond the training length T: the last bucket inside it, and inside 2 T, 4 T
// …, as far as windows go.
enum { EXTRAPOLATION_MAX = 8 };

struct extrapolation {
    int64_t trained_length; // T, 0: unknown
    int     inside;         // bucket, −1: none ends inside T
    int     n;
    int     factor[EXTRAPOLATION_MAX];
    int     bucket[EXTRAPOLATION_MAX];
    struct stats_estimate
            difference[EXTRAPOLATION_MAX]; // its loss less that of `inside`, nats, paired by window
    int degrades; // first bucket whose loss less that of the best bucket before it has an interval above the
                  // tolerance; −1: none
    int                   best; // that bucket before it
    struct stats_estimate rise;
};

struct summary_params {
    int64_t bucket;         // B; 0: log2
    int64_t trained_length; // 0: what the file says
    double  tolerance;      // nats, of `degrades`
    bool    log2_curve;     // the curve's ranges: quarters of an octave; otherwise the buckets
    int64_t smooth; // N > 0: the curve is a moving average of N positions, at so many points that it looks like one
    const int64_t *
            lengths; // prefixes wanted beside the usual: training lengths of the models that stand side by side
    int n_lengths;
};

struct summary {
    struct score_meta meta;      // strings belong to the scores
    int64_t           n_windows; // read
    int64_t n_units; // windows, or stretches of text that several windows score with different contexts (same_targets)
    int64_t *     unit;       // [n_units] index of each in the run
    int64_t       length;     // highest position
    int           n_contexts; // > 0: same_targets. Buckets are the contexts; there are no prefixes
    struct losses total;      // n = 1
    struct losses buckets;
    struct losses prefixes; // range 1 .. L − 1
    struct losses curve;
    int64_t       stride; // of positions
    int64_t       n_positions;
    double *
            position_loss; // [n_positions] mean of targets i·stride < t ≤ (i + 1)·stride, NaN: none
    double token_error; // of total.nats as llama-perplexity gives it: sd of token losses / √(tokens − 1), tokens taken as
    // independent
    int64_t * diverged_from; // [n_windows] first position that is not finite; 0: none
    int64_t   n_diverged;
    int       n_sources;
    int64_t *
            composition; // [buckets.n][n_sources + 1] targets from each source; the last column: from none
    struct range_norm *  norms; // [buckets.n]; NULL: the run has not probed states
    struct extrapolation extrapolation;
    int                  n_warnings;
    const char **        warnings;
    struct arena *       arena;
};

// False: out of memory, or more buckets than anyone could read; err says which. The scores must
// live as long as the summary.
bool summary_make(const struct scores * scores, const struct summary_params * params,
        struct summary * summary, char * err, size_t err_size);
void summary_free(struct summary * summary);

// The norms of a bucket; NULL if no state was measured there.
const struct range_norm * summary_norm(const struct summary * summary, int bucket);

// The buckets and the total alone, out of the sums that a report keeps. Strings of meta and the
// arrays are the caller's; cells: [n_units][n_buckets].
bool summary_from_cells(const struct score_meta * meta, int64_t trained_length, int64_t n_units,
        int64_t * unit, int n_buckets, const struct position_range * ranges,
        const struct score_cell * cells, struct summary * summary, char * err, size_t err_size);

// The bucket that suits runs with windows of `window` tokens: 2,048, or less so that at least eight
// fit into a window and one into the training length.
int64_t summary_default_bucket(int64_t window, int64_t trained_length);

// The figure in the unit asked for, and the ends of its interval.
enum loss_unit { LOSS_PPL, LOSS_NATS, LOSS_BPB };

double loss_value(const struct loss * f, enum loss_unit unit);
double loss_lo(const struct loss * f, enum loss_unit unit);
double loss_hi(const struct loss * f, enum loss_unit unit);
