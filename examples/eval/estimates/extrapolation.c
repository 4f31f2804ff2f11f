#include "eval/estimates/summary-impl.h"

#include <stdlib.h>

// Loss of bucket i minus that of bucket j, paired by window.
static bool bucket_difference(const struct summary * s, int i, int j, struct stats_estimate * out) {
    const struct losses * f  = &s->buckets;
    struct stats_pair *   a  = malloc(((size_t) s->n_units + 1) * sizeof(*a));
    struct stats_pair *   b  = malloc(((size_t) s->n_units + 1) * sizeof(*b));
    bool                  ok = a != NULL && b != NULL;

    for (int64_t u = 0; u < s->n_units && ok; ++u) {
        const struct score_cell * x = &f->cells[u * f->n + i];
        const struct score_cell * y = &f->cells[u * f->n + j];
        a[u]                        = (struct stats_pair) { x->nll, (double) x->tokens };
        b[u]                        = (struct stats_pair) { y->nll, (double) y->tokens };
    }
    ok = ok && stats_differences(a, b, s->n_units, 1, STATS_SEED, out);
    free(a);
    free(b);
    return ok;
}

// The end of a bucket, in tokens fed: its last target is the next token. With same targets, the
// context length.
static int64_t bucket_end(const struct summary * s, int i) {
    return s->n_contexts > 0 ? s->buckets.at[i].range.from : s->buckets.at[i].range.to;
}

// The last bucket that ends inside `length` tokens; −1: none.
static int last_inside(const struct summary * s, int64_t length) {
    int last = -1;
    for (int i = 0; i < s->buckets.n; ++i) {
        last = bucket_end(s, i) <= length ? i : last;
    }
    return last;
}

bool summary_extrapolate(struct summary * s, double tolerance) {
    struct extrapolation * e = &s->extrapolation;
    const int64_t          T = e->trained_length;
    // a window of W tokens has targets up to W − 1
    const int64_t reach =
            s->buckets.n > 0 ? bucket_end(s, s->buckets.n - 1) + (s->n_contexts == 0) : 0;

    e->inside   = T > 0 ? last_inside(s, T) : -1;
    e->degrades = e->best = -1;
    for (int64_t factor = 2; e->inside >= 0 && e->n < EXTRAPOLATION_MAX && factor <= reach / T;
            factor *= 2) {
        const int b = last_inside(s, factor * T);
        if (b > e->inside && (e->n == 0 || b > e->bucket[e->n - 1])) {
            e->factor[e->n] = (int) factor;
            e->bucket[e->n] = b;
            if (!bucket_difference(s, b, e->inside, &e->difference[e->n])) {
                return false;
            }
            e->n++;
        }
    }

    int best = 0;
    for (int i = 1; i < s->buckets.n; ++i) {
        struct stats_estimate rise;
        if (!bucket_difference(s, i, best, &rise)) {
            return false;
        }
        if (rise.lo > tolerance) {
            e->degrades = i;
            e->best     = best;
            e->rise     = rise;
            break;
        }
        if (s->buckets.at[i].nats.value < s->buckets.at[best].nats.value) {
            best = i;
        }
    }
    return true;
}
