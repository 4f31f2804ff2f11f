#include "eval/estimates/kl.h"

#include "base/error.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// One position
//

// max_v z_v, and the first v that attains it
static float top_of(const float * z, int64_t n, int64_t * top) {
    *top = 0;
    for (int64_t v = 1; v < n; ++v) {
        *top = z[v] > z[*top] ? v : *top;
    }
    return z[*top];
}

// ln Σ_v exp(z_v − max)
static double log_sum(const float * z, int64_t n, float max) {
    double sum = 0.0;
    for (int64_t v = 0; v < n; ++v) {
        sum += exp((double) z[v] - (double) max);
    }
    return log(sum);
}

struct kl kl_of(const float * logits_p, const float * logits_q, int64_t n_vocab, int32_t target) {
    int64_t      top_p, top_q;
    const double zero_p = (double) top_of(logits_p, n_vocab, &top_p);
    const double zero_q = (double) top_of(logits_q, n_vocab, &top_q);
    const double sum_p = log_sum(logits_p, n_vocab, (float) zero_p);
    const double sum_q = log_sum(logits_q, n_vocab, (float) zero_q);
    double       kl = 0.0;

    for (int64_t v = 0; v < n_vocab; ++v) {
        const double ln_p = (double) logits_p[v] - zero_p - sum_p;
        const double ln_q = (double) logits_q[v] - zero_q - sum_q;
        kl += exp(ln_p) * (ln_p - ln_q);
    }
    return (struct kl) {
        .kl = kl,
        .nll_p = sum_p + zero_p - (double) logits_p[target],
        .nll_q = sum_q + zero_q - (double) logits_q[target],
        .same_top = top_p == top_q,
    };
}

//
// Windows
//

void kl_windows_free(struct kl_windows * w) {
    for (int64_t i = 0; i < w->n; ++i) {
        free(w->windows[i].at);
    }
    free(w->windows);
    *w = (struct kl_windows) { 0 };
}

// Appends a window of n positions, none scored.
static void append(struct kl_windows * w, int64_t n) {
    struct kl_position * at = program_alloc((size_t) n, sizeof(*at));
    for (int64_t i = 0; i < n; ++i) {
        at[i].kl = NAN;
    }
    program_grow(&w->windows, &w->capacity, (size_t) w->n + 1, sizeof(*w->windows));
    w->windows[w->n++] = (struct kl_window) { n, at };
}

static bool all_finite(const float * x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    return true;
}

bool kl_measure(struct lrnn_session * const * sessions, int n_sessions, int64_t n_vocab,
        const struct window * window, int64_t n_batch, struct kl_windows * out,
        struct lrnn_error * err) {
    for (int s = 0; s < n_sessions; ++s) {
        if (!lrnn_seq_reset(sessions[s], 0, err)) {
            return false;
        }
    }
    for (int s = 1; s < n_sessions; ++s) {
        append(&out[s - 1], window->n_tokens - 1);
    }
    for (int64_t at = 0; at < window->n_tokens - 1; at += n_batch) {
        const int64_t n = n_batch < window->n_tokens - 1 - at ? n_batch : window->n_tokens - 1 - at;
        const struct lrnn_input input = {
            .seq = 0, .tokens = window->tokens + at, .n_tokens = n, .n_logits = n
        };
        for (int s = 0; s < n_sessions; ++s) {
            if (!lrnn_eval(sessions[s], &input, 1, err)) {
                return false;
            }
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t t = at + i + 1; // position, and index of the target
            if (!window->scored[t]) {
                continue;
            }
            const float * p = lrnn_logits(sessions[0], i);
            for (int s = 1; s < n_sessions; ++s) {
                const float * q = lrnn_logits(sessions[s], i);
                if (!all_finite(p, n_vocab) || !all_finite(q, n_vocab)) {
                    return error_set(err, LRNN_ERROR_NOT_FINITE,
                            "window %" PRId64 ": model %d has non-finite logits after %" PRId64
                            " tokens",
                            window->index, all_finite(p, n_vocab) ? s + 1 : 1, t);
                }
                const struct kl    d = kl_of(p, q, n_vocab, window->tokens[t]);
                struct kl_window * w = &out[s - 1].windows[out[s - 1].n - 1];
                w->at[t - 1] = (struct kl_position) { (float) d.kl, (float) d.nll_p,
                    (float) d.nll_q, d.same_top };
            }
        }
    }
    return true;
}

//
// Summaries
//

enum column { COLUMN_KL, COLUMN_P, COLUMN_Q, COLUMN_TOP, N_COLUMNS };

// - columns, kl: room for the windows and for all positions
static void summarize(const struct kl_windows * w, struct position_range range,
        struct stats_pair * columns, double * kl, struct kl_summary * out) {
    int64_t n = 0;
    for (int64_t i = 0; i < w->n; ++i) {
        const struct kl_window * x = &w->windows[i];
        struct stats_pair *      row = columns + i * N_COLUMNS;
        memset(row, 0, N_COLUMNS * sizeof(*row));
        for (int64_t t = range.from; t <= range.to && t <= x->n; ++t) {
            const struct kl_position * at = &x->at[t - 1];
            if (isnan(at->kl)) {
                continue;
            }
            kl[n++] = (double) at->kl;
            row[COLUMN_KL].num += (double) at->kl;
            row[COLUMN_P].num += (double) at->nll_p;
            row[COLUMN_Q].num += (double) at->nll_q;
            row[COLUMN_TOP].num += at->same_top;
            for (int c = 0; c < N_COLUMNS; ++c) {
                row[c].den += 1.0;
            }
        }
    }
    *out = (struct kl_summary) { .range = range, .n = n, .kl_p99 = NAN, .kl_max = NAN };
    if (n > 0) {
        stats_sort(kl, n);
        out->kl_p99 = stats_quantile(kl, n, 0.99);
        out->kl_max = kl[n - 1];
    }
    struct stats_estimate estimates[N_COLUMNS];
    stats_ratios(columns, w->n, N_COLUMNS, STATS_SEED, estimates);
    out->kl = estimates[COLUMN_KL];
    out->nll_p = estimates[COLUMN_P];
    out->nll_q = estimates[COLUMN_Q];
    out->same_top = estimates[COLUMN_TOP];

    // p and q in one call, so that they share the draws
    struct stats_pair * p = program_alloc((size_t) (2 * w->n), sizeof(*p));
    struct stats_pair * q = p + w->n;
    for (int64_t i = 0; i < w->n; ++i) {
        p[i] = columns[i * N_COLUMNS + COLUMN_P];
        q[i] = columns[i * N_COLUMNS + COLUMN_Q];
    }
    stats_differences(q, p, w->n, 1, STATS_SEED, &out->change);
    free(p);
}

void kl_summarize(const struct kl_windows * w, const struct position_range * ranges, int n_ranges,
        struct kl_summary * out) {
    int64_t n = 0;
    for (int64_t i = 0; i < w->n; ++i) {
        n += w->windows[i].n;
    }
    struct stats_pair * columns = program_alloc((size_t) (w->n * N_COLUMNS), sizeof(*columns));
    double *            kl = program_alloc((size_t) n, sizeof(*kl));
    for (int i = 0; i < n_ranges; ++i) {
        summarize(w, ranges[i], columns, kl, &out[i]);
    }
    free(columns);
    free(kl);
}
