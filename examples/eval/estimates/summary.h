#pragma once

// The summary of a run: losses by position, extrapolation beyond the trained length, warnings.

#include "lrnn.h"
#include "eval/estimates/losses.h"

// The norms of states in a bucket. Each window contributes its largest norm there.
struct range_norm {
    int64_t windows;      // 0: no norms here
    double  median, most; // over windows; infinite: a state is not finite
    int32_t layer;        // that has `most`
};

// The loss beyond the trained length T: of the last bucket inside T, and of the last ones inside
// 2 T, 4 T, …
enum { EXTRAPOLATION_MAX = 8 };

struct extrapolation {
    int64_t               trained_length; // T; 0: unknown
    int                   inside;         // bucket; −1: none ends inside T
    int                   n;
    int                   factor[EXTRAPOLATION_MAX];
    int                   bucket[EXTRAPOLATION_MAX];
    struct stats_estimate difference[EXTRAPOLATION_MAX]; // from `inside`, nats, paired by window
    // first bucket whose difference from the best earlier bucket has an interval above the
    // tolerance; −1: none
    int                   degrades;
    int                   best; // that earlier bucket
    struct stats_estimate rise; // the difference
};

struct summary_params {
    int64_t         bucket;         // B; 0: log2
    int64_t         trained_length; // 0: as the file says
    double          tolerance;      // nats, for `degrades`
    bool            log2_curve;     // the curve has quarters of an octave; otherwise the buckets
    int64_t         smooth;         // > 0: the curve is a moving average of `smooth` positions
    const int64_t * lengths;        // additional prefixes: the trained lengths of a panel
    int             n_lengths;
};

struct summary {
    struct score_meta    meta; // strings belong to the scores
    int64_t              n_windows;
    int64_t              n_units;    // windows, or stretches that several windows score
    int64_t *            unit;       // [n_units] index in the run
    int64_t              length;     // highest position
    int                  n_contexts; // > 0: same targets; buckets are contexts, without prefixes
    struct losses        total;      // n = 1
    struct losses        buckets;
    struct losses        prefixes; // ranges 1 … L − 1
    struct losses        curve;
    int64_t              stride; // of position_loss
    int64_t              n_positions;
    double *             position_loss; // [n_positions] mean of i·stride < t ≤ (i + 1)·stride
    double               token_error;   // of total.nats if tokens were independent: sd / √(n − 1)
    int64_t *            diverged_from; // [n_windows] first non-finite position; 0: none
    int64_t              n_diverged;
    int                  n_sources;
    int64_t *            composition; // [buckets.n][n_sources + 1] targets by source; last: none
    struct range_norm *  norms;       // [buckets.n]; NULL: not probed
    struct extrapolation extrapolation;
    int                  n_warnings;
    const char **        warnings;
    struct arena *       arena;
};

// Fails if there are too many buckets. The scores must outlive the summary.
bool summary_make(const struct scores * scores, const struct summary_params * params,
        struct summary * summary, struct lrnn_error * err);
void summary_free(struct summary * summary);

// The norms of a bucket; NULL: none.
const struct range_norm * summary_norm(const struct summary * summary, int bucket);
