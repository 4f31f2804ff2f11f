#include "eval/estimates/kl.h"

#include "base/error.h"

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

struct divergence divergence_of(
        const float * logits_p, const float * logits_q, int64_t n_vocab, int32_t target) {
    int64_t      top_p, top_q;
    const double zero_p = (double) top_of(logits_p, n_vocab, &top_p);
    const double zero_q = (double) top_of(logits_q, n_vocab, &top_q);
    const double sum_p  = log_sum(logits_p, n_vocab, (float) zero_p);
    const double sum_q  = log_sum(logits_q, n_vocab, (float) zero_q);
    double       kl     = 0.0;

    for (int64_t v = 0; v < n_vocab; ++v) {
        const double ln_p = (double) logits_p[v] - zero_p - sum_p;
        const double ln_q = (double) logits_q[v] - zero_q - sum_q;
        kl += exp(ln_p) * (ln_p - ln_q);
    }
    return (struct divergence) {
        .kl       = kl,
        .nll_p    = sum_p + zero_p - (double) logits_p[target],
        .nll_q    = sum_q + zero_q - (double) logits_q[target],
        .same_top = top_p == top_q,
    };
}

//
// Windows
//

static void release(struct divergence_window * w) {
    free(w->kl);
    free(w->nll_p);
    free(w->nll_q);
    free(w->same_top);
    *w = (struct divergence_window) { 0 };
}

void divergence_windows_free(struct divergence_windows * w) {
    for (int64_t i = 0; i < w->n; ++i) {
        release(&w->windows[i]);
    }
    free(w->windows);
    *w = (struct divergence_windows) { 0 };
}

// Appends a window of n positions, none scored. NULL: out of memory.
static struct divergence_window * append(struct divergence_windows * w, int64_t n) {
    struct divergence_window * more = realloc(w->windows, (size_t) (w->n + 1) * sizeof(*more));
    if (more == NULL) {
        return NULL;
    }
    w->windows                    = more;
    const size_t             size = (size_t) (n > 0 ? n : 1);
    struct divergence_window one  = {
         .n        = n,
         .kl       = malloc(size * sizeof(float)),
         .nll_p    = calloc(size, sizeof(float)),
         .nll_q    = calloc(size, sizeof(float)),
         .same_top = calloc(size, 1),
    };
    if (one.kl == NULL || one.nll_p == NULL || one.nll_q == NULL || one.same_top == NULL) {
        release(&one);
        return NULL;
    }
    for (int64_t i = 0; i < n; ++i) {
        one.kl[i] = NAN;
    }
    more[w->n] = one;
    return &more[w->n++];
}

static bool all_finite(const float * x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    return true;
}

bool divergence_measure(struct lrnn_session * const * sessions, int n_sessions, int64_t n_vocab,
        const struct window * window, int64_t n_batch, struct divergence_windows * out,
        bool * not_finite, struct lrnn_error * err) {
    *not_finite = false;
    for (int s = 0; s < n_sessions; ++s) {
        if (!lrnn_seq_reset(sessions[s], 0, err)) {
            return false;
        }
    }
    for (int s = 1; s < n_sessions; ++s) {
        if (append(&out[s - 1], window->n_tokens - 1) == NULL) {
            return error_set(err, LRNN_ERROR_NO_MEMORY,
                    "out of memory for the %" PRId64 " positions of window %" PRId64,
                    window->n_tokens - 1, window->index);
        }
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
                    error_set(err, LRNN_ERROR_BAD_INPUT,
                            "window %" PRId64 ": model %d has non-finite logits after %" PRId64
                            " tokens",
                            window->index, all_finite(p, n_vocab) ? s + 1 : 1, t);
                    *not_finite = true;
                    return false;
                }
                const struct divergence    d = divergence_of(p, q, n_vocab, window->tokens[t]);
                struct divergence_window * w = &out[s - 1].windows[out[s - 1].n - 1];
                w->kl[t - 1]                 = (float) d.kl;
                w->nll_p[t - 1]              = (float) d.nll_p;
                w->nll_q[t - 1]              = (float) d.nll_q;
                w->same_top[t - 1]           = d.same_top;
            }
        }
    }
    return true;
}

//
// Summaries
//

int divergence_ranges(int64_t last, int64_t bucket, struct divergence_range * ranges, int max) {
    int n = 0;
    for (int64_t from = 1; from <= last && n < max;) {
        const int64_t to = bucket > 0 ? from + bucket - 1 : from == 1 ? 64 : 2 * (from - 1);
        ranges[n++]      = (struct divergence_range) { from, to < last ? to : last };
        from             = to + 1;
    }
    return n;
}

enum column { COLUMN_KL, COLUMN_P, COLUMN_Q, COLUMN_TOP, N_COLUMNS };

static bool summarize(const struct divergence_windows * w, struct divergence_range range,
        struct stats_pair * columns, double * kl, struct divergence_summary * out) {
    int64_t n = 0;
    for (int64_t i = 0; i < w->n; ++i) {
        const struct divergence_window * x   = &w->windows[i];
        struct stats_pair *              row = columns + i * N_COLUMNS;
        memset(row, 0, N_COLUMNS * sizeof(*row));
        for (int64_t t = range.first; t <= range.last && t <= x->n; ++t) {
            if (isnan(x->kl[t - 1])) {
                continue;
            }
            kl[n++] = (double) x->kl[t - 1];
            row[COLUMN_KL].num += (double) x->kl[t - 1];
            row[COLUMN_P].num += (double) x->nll_p[t - 1];
            row[COLUMN_Q].num += (double) x->nll_q[t - 1];
            row[COLUMN_TOP].num += x->same_top[t - 1];
            for (int c = 0; c < N_COLUMNS; ++c) {
                row[c].den += 1.0;
            }
        }
    }
    *out = (struct divergence_summary) { .range = range, .n = n, .kl_p99 = NAN, .kl_max = NAN };
    if (n > 0) {
        stats_sort(kl, n);
        out->kl_p99 = stats_quantile(kl, n, 0.99);
        out->kl_max = kl[n - 1];
    }
    struct stats_estimate estimates[N_COLUMNS];
    if (!stats_ratios(columns, w->n, N_COLUMNS, STATS_SEED, estimates)) {
        return false;
    }
    out->kl       = estimates[COLUMN_KL];
    out->nll_p    = estimates[COLUMN_P];
    out->nll_q    = estimates[COLUMN_Q];
    out->same_top = estimates[COLUMN_TOP];

    // p and q in one call, so that they share the draws
    struct stats_pair * p = malloc((size_t) (2 * w->n + 1) * sizeof(*p));
    if (p == NULL) {
        return false;
    }
    struct stats_pair * q = p + w->n;
    for (int64_t i = 0; i < w->n; ++i) {
        p[i] = columns[i * N_COLUMNS + COLUMN_P];
        q[i] = columns[i * N_COLUMNS + COLUMN_Q];
    }
    const bool ok = stats_differences(q, p, w->n, 1, STATS_SEED, &out->change);
    free(p);
    return ok;
}

bool divergence_summarize(const struct divergence_windows * w,
        const struct divergence_range * ranges, int n_ranges, struct divergence_summary * out) {
    int64_t n = 0;
    for (int64_t i = 0; i < w->n; ++i) {
        n += w->windows[i].n;
    }
    struct stats_pair * columns = malloc((size_t) (w->n * N_COLUMNS + 1) * sizeof(*columns));
    double *            kl      = malloc((size_t) (n + 1) * sizeof(*kl));
    bool                ok      = columns != NULL && kl != NULL;
    for (int i = 0; i < n_ranges && ok; ++i) {
        ok = summarize(w, ranges[i], columns, kl, &out[i]);
    }
    free(columns);
    free(kl);
    return ok;
}
