#include "eval/estimates/paired.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Comparable runs
//

static bool same_text(const char * key, const char * a, const char * b, struct lrnn_error * err) {
    if (strcmp(a, b) != 0) {
        return error_set(err, LRNN_ERROR_BAD_INPUT, "%s is '%.64s' in one and '%.64s' in the other",
                key, a, b);
    }
    return true;
}

static bool same_number(const char * key, int64_t a, int64_t b, struct lrnn_error * err) {
    if (a != b) {
        return error_set(err, LRNN_ERROR_BAD_INPUT,
                "%s is %" PRId64 " in one and %" PRId64 " in the other", key, a, b);
    }
    return true;
}

bool comparison_allowed(const struct score_meta * a, const struct score_meta * b, bool * bytes_only,
        struct lrnn_error * err) {
    // n_batch and group affect only the rounding of a run
    const bool same_data =
            same_text("data_fingerprint", a->data_fingerprint, b->data_fingerprint, err) &&
            same_text("mode", a->mode, b->mode, err) &&
            same_text("reset", a->reset, b->reset, err) &&
            same_number("skip_special", a->skip_special, b->skip_special, err) &&
            same_text("same_targets", a->same_targets, b->same_targets, err);
    const bool same_tokens =
            same_data && same_text("tokenizer_hash", a->tokenizer_hash, b->tokenizer_hash, err);

    *bytes_only = same_data && !same_tokens && a->same_targets[0] == '\0';
    return same_tokens && same_text("bos", a->bos, b->bos, err) &&
           same_text("eos", a->eos, b->eos, err) &&
           same_number("window", a->window, b->window, err) &&
           same_number("min_doc_tokens", a->min_doc_tokens, b->min_doc_tokens, err);
}

//
// Pairs
//

static int64_t count_won(const struct stats_pair * base, const struct stats_pair * other, int64_t n,
        int64_t stride) {
    int64_t won = 0;
    for (int64_t i = 0; i < n; ++i) {
        const struct stats_pair * a = &base[i * stride];
        const struct stats_pair * b = &other[i * stride];
        won += a->den > 0.0 && b->den > 0.0 && b->num / b->den < a->num / a->den;
    }
    return won;
}

// base, other: [n_units][n_cols]
static bool pair_columns(const struct stats_pair * base, const struct stats_pair * other,
        int64_t n_units, int n_cols, struct paired * out) {
    struct stats_estimate * e = malloc(((size_t) n_cols + 1) * sizeof(*e));
    const bool ok = e != NULL && stats_differences(other, base, n_units, n_cols, STATS_SEED, e);
    for (int i = 0; i < n_cols && ok; ++i) {
        out[i] = (struct paired) { .difference = e[i],
            .won                               = count_won(base + i, other + i, n_units, n_cols) };
    }
    free(e);
    return ok;
}

// The cells of a unit; NULL: the run does not have it. Units are in ascending order, and *at is the
// position of the search.
static const struct score_cell * cells_of(
        const struct summary * s, const struct losses * f, int64_t unit, int64_t * at) {
    while (*at < s->n_units && s->unit[*at] < unit) {
        ++*at;
    }
    return *at < s->n_units && s->unit[*at] == unit ? f->cells + *at * f->n : NULL;
}

bool paired_losses(const struct summary * base, const struct losses * fb,
        const struct summary * other, const struct losses * fo, enum loss_unit unit,
        struct paired * out) {
    const int           n       = fb->n;
    struct stats_pair * a       = calloc((size_t) n * (size_t) base->n_units + 1, sizeof(*a));
    struct stats_pair * b       = calloc((size_t) n * (size_t) base->n_units + 1, sizeof(*b));
    int64_t             n_units = 0;
    bool                ok      = a != NULL && b != NULL;

    for (int64_t u = 0, v = 0; u < base->n_units && ok; ++u) {
        const struct score_cell * x = fb->cells + u * n;
        const struct score_cell * y = cells_of(other, fo, base->unit[u], &v);
        if (y != NULL) {
            for (int i = 0; i < n; ++i) {
                a[n_units * n + i] = score_cell_pair(&x[i], unit);
                b[n_units * n + i] = score_cell_pair(&y[i], unit);
            }
            n_units++;
        }
    }
    ok = ok && pair_columns(a, b, n_units, n, out);
    free(a);
    free(b);
    return ok;
}

static bool same_ranges(const struct losses * a, const struct losses * b) {
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; ++i) {
        same = a->at[i].range.from == b->at[i].range.from && a->at[i].range.to == b->at[i].range.to;
    }
    return same;
}

// Pairs all buckets from `first` on as one range.
static bool pair_from(
        const struct comparison * c, int first, struct paired * out, int64_t * n_common) {
    struct stats_pair * a  = calloc((size_t) c->base->n_units + 1, sizeof(*a));
    struct stats_pair * b  = calloc((size_t) c->base->n_units + 1, sizeof(*b));
    int64_t             n  = 0;
    bool                ok = a != NULL && b != NULL;

    for (int64_t u = 0, v = 0; u < c->base->n_units && ok; ++u) {
        const struct score_cell * y = cells_of(c->other, &c->other->buckets, c->base->unit[u], &v);
        if (y != NULL) {
            const struct score_cell * x  = c->base->buckets.cells + u * c->n_buckets;
            const struct score_cell   sx = score_cell_sum(x + first, c->n_buckets - first);
            const struct score_cell   sy = score_cell_sum(y + first, c->n_buckets - first);
            a[n]                         = score_cell_pair(&sx, LOSS_NATS);
            b[n]                         = score_cell_pair(&sy, LOSS_NATS);
            n++;
        }
    }
    ok        = ok && pair_columns(a, b, n, 1, out);
    *n_common = n;
    free(a);
    free(b);
    return ok;
}

bool comparison_make(const struct summary * base, const struct summary * other,
        struct comparison * c, struct lrnn_error * err) {
    bool              bytes_only;
    int64_t           n_common;
    struct lrnn_error why;

    *c = (struct comparison) { .base = base, .other = other, .n_buckets = base->buckets.n };
    if (!comparison_allowed(&base->meta, &other->meta, &bytes_only, &why)) {
        return error_set(err, why.kind, "%s and %s cannot be compared token by token: %s",
                base->meta.model, other->meta.model, why.text);
    }
    if (!same_ranges(&base->buckets, &other->buckets)) {
        return error_set(err, LRNN_ERROR_BAD_INPUT, "%s and %s have different buckets",
                base->meta.model, other->meta.model);
    }
    const int64_t ta  = base->extrapolation.trained_length;
    const int64_t tb  = other->extrapolation.trained_length;
    c->trained_length = ta == 0 || tb == 0 ? 0 : ta > tb ? ta : tb;
    c->buckets        = calloc((size_t) c->n_buckets + 1, sizeof(*c->buckets));

    int beyond = 0;
    while (beyond < c->n_buckets && base->buckets.at[beyond].range.from <= c->trained_length) {
        beyond++;
    }
    bool ok = c->buckets != NULL &&
              paired_losses(base, &base->buckets, other, &other->buckets, LOSS_NATS, c->buckets) &&
              (base->n_contexts > 0 ? paired_losses(base, &base->total, other, &other->total,
                                              LOSS_NATS, &c->all)
                                    : pair_from(c, 0, &c->all, &n_common));
    ok = ok && pair_from(c, c->trained_length > 0 ? beyond : c->n_buckets, &c->beyond, &n_common);
    if (!ok) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory to compare %s and %s", base->meta.model,
                other->meta.model);
        comparison_free(c);
        return false;
    }
    c->n_left_out = base->n_units + other->n_units - 2 * n_common;
    return true;
}

void comparison_free(struct comparison * c) {
    free(c->buckets);
    *c = (struct comparison) { 0 };
}
