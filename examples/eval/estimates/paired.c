#include "eval/estimates/paired.h"

#include "base/error.h"
#include "memory.h"

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
        return error_bad_input(err, "%s is '%.64s' in one and '%.64s' in the other", key, a, b);
    }
    return true;
}

static bool same_number(const char * key, int64_t a, int64_t b, struct lrnn_error * err) {
    if (a != b) {
        return error_bad_input(
                err, "%s is %" PRId64 " in one and %" PRId64 " in the other", key, a, b);
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
static void pair_columns(const struct stats_pair * base, const struct stats_pair * other,
        int64_t n_units, int n_cols, struct paired * out) {
    struct stats_estimate * e = program_alloc((size_t) n_cols, sizeof(*e));
    stats_differences(other, base, n_units, n_cols, STATS_SEED, e);
    for (int i = 0; i < n_cols; ++i) {
        out[i] = (struct paired) { .difference = e[i],
            .won = count_won(base + i, other + i, n_units, n_cols) };
    }
    free(e);
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

// Pairs every range or, if `first` ≥ 0, all from this one on as one range. Returns the number of
// units that both runs have.
static int64_t pair(const struct summary * base, const struct losses * fb,
        const struct summary * other, const struct losses * fo, enum loss_unit unit, int first,
        struct paired * out) {
    const int           n = first < 0 ? fb->n : 1;
    struct stats_pair * a = program_alloc((size_t) (2 * n * base->n_units), sizeof(*a));
    struct stats_pair * b = a + n * base->n_units;
    int64_t             n_units = 0;
    for (int64_t u = 0, v = 0; u < base->n_units; ++u) {
        const struct score_cell * x = fb->cells + u * fb->n;
        const struct score_cell * y = cells_of(other, fo, base->unit[u], &v);
        for (int i = 0; i < n && y != NULL; ++i) {
            const int from = first < 0 ? i : first, n_cells = first < 0 ? 1 : fb->n - first;
            const struct score_cell sx = score_cell_sum(x + from, n_cells);
            const struct score_cell sy = score_cell_sum(y + from, n_cells);
            a[n_units * n + i] = score_cell_pair(&sx, unit);
            b[n_units * n + i] = score_cell_pair(&sy, unit);
        }
        n_units += y != NULL;
    }
    pair_columns(a, b, n_units, n, out);
    free(a);
    return n_units;
}

void paired_losses(const struct summary * base, const struct losses * base_losses,
        const struct summary * other, const struct losses * other_losses, enum loss_unit unit,
        struct paired * out) {
    pair(base, base_losses, other, other_losses, unit, -1, out);
}

bool paired_same_ranges(const struct losses * a, const struct losses * b) {
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; ++i) {
        same = a->at[i].range.from == b->at[i].range.from && a->at[i].range.to == b->at[i].range.to;
    }
    return same;
}

bool comparison_make(const struct summary * base, const struct summary * other,
        struct comparison * c, struct lrnn_error * err) {
    const struct losses *x = &base->buckets, *y = &other->buckets;
    bool                 bytes_only;
    struct lrnn_error    why;

    *c = (struct comparison) { .base = base, .other = other, .n_buckets = x->n };
    if (!comparison_allowed(&base->meta, &other->meta, &bytes_only, &why)) {
        return error_set(err, why.kind, "%s and %s cannot be compared token by token: %s",
                base->meta.model, other->meta.model, why.text);
    }
    if (!paired_same_ranges(x, y)) {
        return error_bad_input(
                err, "%s and %s have different buckets", base->meta.model, other->meta.model);
    }
    const int64_t ta = base->extrapolation.trained_length;
    const int64_t tb = other->extrapolation.trained_length;
    c->trained_length = ta == 0 || tb == 0 ? 0 : ta > tb ? ta : tb;

    int beyond = c->trained_length > 0 ? 0 : x->n;
    while (beyond < x->n && x->at[beyond].range.from <= c->trained_length) {
        beyond++;
    }
    c->buckets = program_alloc((size_t) x->n, sizeof(*c->buckets));
    paired_losses(base, x, other, y, LOSS_NATS, c->buckets);
    if (base->n_contexts > 0) {
        paired_losses(base, &base->total, other, &other->total, LOSS_NATS, &c->all);
    } else {
        pair(base, x, other, y, LOSS_NATS, 0, &c->all);
    }
    const int64_t n_common = pair(base, x, other, y, LOSS_NATS, beyond, &c->beyond);
    c->n_left_out = base->n_units + other->n_units - 2 * n_common;
    return true;
}

void comparison_free(struct comparison * c) {
    free(c->buckets);
    *c = (struct comparison) { 0 };
}

//
// Runs with different tokenizers
//

static const double LN2 = 0.69314718055994530942;

// A byte of the text.
struct position {
    int64_t document, byte;
};

static int position_compare(struct position a, struct position b) {
    return a.document != b.document ? (a.document > b.document) - (a.document < b.document)
                                    : (a.byte > b.byte) - (a.byte < b.byte);
}

//
// Reads the targets of a run in the order of the text
//

struct reader {
    const struct scores * scores;
    int64_t               window; // of the next target
    int64_t               t;      // the next target; 0: at the start of the window
    int32_t               span;
    struct position       from;  // where it begins
    bool                  known; // from is known
    bool                  at_end;
};

static const struct score_window * reader_window(const struct reader * r) {
    return &r->scores->windows[r->window];
}

static struct position reader_to(const struct reader * r) {
    return (struct position) { r->from.document, r->from.byte + reader_window(r)->bytes[r->t - 1] };
}

static void reader_next(struct reader * r) {
    while (r->window < r->scores->n_windows) {
        const struct score_window * w = reader_window(r);
        if (w->n_spans < 1) {
            r->window++;
            continue;
        }
        if (r->t == 0) {
            int64_t n = 0;
            r->known = score_first_token_bytes(r->scores, r->window, &n);
            r->from = (struct position) { w->spans[0].document, w->spans[0].byte + n };
            r->span = 0;
        } else {
            r->from = reader_to(r);
        }
        r->t++;
        if (r->t > w->n_targets || !isfinite(w->nll[r->t - 1])) { // a diverged window ends here
            r->window++;
            r->t = 0;
            continue;
        }
        if (r->span + 1 < w->n_spans && w->spans[r->span + 1].first == r->t) {
            r->span++;
            r->from = (struct position) { w->spans[r->span].document, w->spans[r->span].byte };
            r->known = true;
        }
        if (r->known && (w->flags[r->t - 1] & SCORE_COUNTED)) {
            return;
        }
    }
    r->at_end = true;
}

//
// Stretches that both runs scored
//

// Columns of the pairs of a unit: the nats of a run in all stretches, and in those beyond both
// trained lengths; their bytes.
enum { ALL, BEYOND, N_COLS };

// Tokens read since both runs were at the same byte.
struct stretch {
    double  base, other;
    int64_t bytes;
    int64_t unit;
    bool    beyond;
};

static double take_token(
        struct reader * r, struct position * end, int64_t trained_length, bool * beyond) {
    const double nll = (double) reader_window(r)->nll[r->t - 1];
    *beyond &= r->t > trained_length;
    *end = reader_to(r);
    reader_next(r);
    return nll;
}

static void commit(struct stats_pair * base, struct stats_pair * other, const struct stretch * s) {
    for (int64_t i = s->unit * N_COLS; i <= s->unit * N_COLS + (s->beyond ? BEYOND : ALL); ++i) {
        base[i].num += s->base;
        other[i].num += s->other;
        base[i].den += (double) s->bytes;
        other[i].den += (double) s->bytes;
    }
}

// The bytes up to which two runs were read.
struct ends {
    struct position a, b;
};

static bool continues(const struct reader * r, struct position end) {
    return !r->at_end && position_compare(r->from, end) == 0;
}

// True if the run that is behind continues without a gap; at the same byte, both must.
static bool can_continue(const struct reader * a, const struct reader * b, const struct ends * e) {
    const int order = position_compare(e->a, e->b);
    return (order > 0 || continues(a, e->a)) && (order < 0 || continues(b, e->b));
}

// Reads both runs, always a token of the one that is behind. Where both are at the same byte, a
// stretch ends and the next begins. Tokens without bytes (bos) count if text of the same document
// follows.
// - base, other: [units of a][N_COLS]
static void walk(struct reader * a, struct reader * b, int64_t train_a, int64_t train_b,
        struct stats_pair * base, struct stats_pair * other) {
    while (!a->at_end && !b->at_end) {
        const int order = position_compare(a->from, b->from);
        if (order != 0) {
            reader_next(order < 0 ? a : b);
            continue;
        }
        struct ends    e = { a->from, b->from };
        struct stretch s = { .unit = a->window, .beyond = true };
        while (can_continue(a, b, &e)) {
            if (position_compare(e.a, e.b) <= 0) {
                const int64_t before = e.a.byte;
                s.base += take_token(a, &e.a, train_a, &s.beyond);
                s.bytes += e.a.byte - before;
            } else {
                s.other += take_token(b, &e.b, train_b, &s.beyond);
            }
            if (position_compare(e.a, e.b) == 0 && s.bytes > 0) {
                commit(base, other, &s);
                s = (struct stretch) { .unit = a->window, .beyond = true };
            }
        }
    }
}

static int64_t scored_bytes(const struct scores * s) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &s->windows[i];
        for (int64_t t = 1; t <= w->n_targets; ++t) {
            n += w->flags[t - 1] & SCORE_COUNTED ? w->bytes[t - 1] : 0;
        }
    }
    return n;
}

bool byte_comparison_make(const struct scores * base, const struct scores * other,
        int64_t base_trained, int64_t other_trained, struct byte_comparison * c,
        struct lrnn_error * err) {
    struct lrnn_error why;
    bool              bytes_only;
    *c = (struct byte_comparison) { .base_trained = base_trained, .other_trained = other_trained };
    if (!comparison_allowed(&base->meta, &other->meta, &bytes_only, &why) && !bytes_only) {
        return error_set(err, why.kind, "%s and %s cannot be compared: %s", base->meta.model,
                other->meta.model, why.text);
    }
    const int64_t       n = base->n_windows;
    struct stats_pair * x = program_alloc((size_t) (2 * n * N_COLS), sizeof(*x));
    struct stats_pair * y = x + n * N_COLS;
    struct reader       a = { .scores = base };
    struct reader       b = { .scores = other };
    reader_next(&a);
    reader_next(&b);
    // without a trained length, nothing is beyond it
    walk(&a, &b, base_trained > 0 ? base_trained : INT64_MAX,
            other_trained > 0 ? other_trained : INT64_MAX, x, y);
    for (int64_t i = 0; i < n * N_COLS; ++i) {
        c->bytes += i % N_COLS == ALL ? (int64_t) x[i].den : 0;
        x[i].den *= LN2;
        y[i].den *= LN2;
    }
    struct stats_estimate of_base[N_COLS], of_other[N_COLS];
    struct paired         pairs[N_COLS];
    stats_ratios(x, n, N_COLS, STATS_SEED, of_base);
    stats_ratios(y, n, N_COLS, STATS_SEED, of_other);
    pair_columns(x, y, n, N_COLS, pairs);
    free(x);
    c->base = of_base[ALL];
    c->other = of_other[ALL];
    c->all = pairs[ALL];
    c->beyond = pairs[BEYOND];
    c->base_bytes = scored_bytes(base);
    c->other_bytes = scored_bytes(other);
    return c->bytes > 0 || error_bad_input(err, "%s and %s have no text in common",
                                   base->meta.model, other->meta.model);
}
