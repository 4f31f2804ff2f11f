#include "eval/estimates/summary.h"

#include "base/error.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POSITIONS = 1024 }; // of the per-position loss

//
// Losses by position
//

// Target t of a window has position base + t.
static int64_t position_base(const struct summary * s, const struct score_window * w) {
    return strcmp(s->meta.reset, "never") == 0 ? w->index * s->meta.window : 0;
}

static struct score_cell range_cell(const struct summary * s, const struct score_window * w,
        struct position_range range, int64_t diverged_from) {
    const int64_t base = position_base(s, w);
    const int64_t first = range.from - base < 1 ? 1 : range.from - base;
    const int64_t last = range.to - base > w->n_targets ? w->n_targets : range.to - base;

    if (last < first) {
        return (struct score_cell) { 0 };
    }
    if (diverged_from > 0 && diverged_from <= base + last) {
        return (struct score_cell) { .diverged = true };
    }
    return score_cell_of(w, first, last);
}

// Ranges without targets are dropped: at the end, and at the front if only the second half of a
// window is scored.
static void make_losses(struct summary * s, const struct scores * scores,
        const struct position_range * ranges, int n, struct losses * l) {
    losses_alloc(l, ranges, n, s->n_units, s->arena);
    for (int64_t w = 0; w < s->n_windows; ++w) {
        for (int i = 0; i < n; ++i) {
            l->cells[w * n + i] =
                    range_cell(s, &scores->windows[w], ranges[i], s->diverged_from[w]);
        }
    }
    losses_estimate(l, s->n_units);
    losses_trim(l, s->n_units);
}

static bool make_buckets(
        struct summary * s, const struct scores * scores, int64_t bucket, struct lrnn_error * err) {
    struct position_range * ranges = program_alloc(RANGES_MAX_BUCKETS, sizeof(*ranges));
    const int               n = ranges_of_buckets(s->length, bucket, ranges);
    if (n >= 0) {
        make_losses(s, scores, ranges, n, &s->buckets);
    }
    free(ranges);
    return n >= 0 ||
           error_bad_input(err,
                   "%s: bucket is %" PRId64 ", which cuts %" PRId64 " positions into more than %d",
                   s->meta.model, bucket, s->length, RANGES_MAX_BUCKETS);
}

static void make_prefixes(
        struct summary * s, const struct scores * scores, const struct summary_params * p) {
    struct position_range * ranges = program_alloc(72 + (size_t) p->n_lengths, sizeof(*ranges));
    const int               n = ranges_of_prefixes(s->length, p->lengths, p->n_lengths, ranges);
    make_losses(s, scores, ranges, n, &s->prefixes);
    free(ranges);
}

static void make_curve(
        struct summary * s, const struct scores * scores, const struct summary_params * p) {
    struct position_range ranges[RANGES_MAX_CURVE];
    if (p->smooth == 0 && !p->log2_curve) {
        s->curve = s->buckets;
    } else {
        const int n = p->smooth > 0 ? ranges_of_average(s->length, p->smooth, p->log2_curve, ranges)
                                    : ranges_of_octaves(s->length, ranges);
        make_losses(s, scores, ranges, n, &s->curve);
    }
}

// Same targets after n contexts: window i is stretch i/n after context i mod n.
static void make_contexts(struct summary * s, const struct scores * scores) {
    const int n = s->n_contexts;
    losses_alloc(&s->buckets, NULL, n, s->n_units, s->arena);
    int64_t u = 0;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &scores->windows[i];
        const int                   k = (int) (w->index % n);
        struct position_range *     r = &s->buckets.at[k].range;
        u += s->unit[u] != w->index / n;
        for (int64_t t = 1; t <= w->n_targets && r->from == 0; ++t) {
            if (w->flags[t - 1] & SCORE_COUNTED) {
                *r = (struct position_range) { t, w->n_targets };
            }
        }
        s->buckets.cells[u * n + k] =
                range_cell(s, w, (struct position_range) { 1, w->n_targets }, s->diverged_from[i]);
    }
    losses_estimate(&s->buckets, s->n_units);
    s->curve = s->buckets;
}

static int count_words(const char * list, const char * sep) {
    int n = 0;
    for (const char * p = list + strspn(list, sep); *p != '\0'; ++n) {
        p += strcspn(p, sep);
        p += strspn(p, sep);
    }
    return n;
}

// Units are in the order of their windows. A partial run may end inside one.
static void make_units(struct summary * s, const struct scores * scores) {
    const int64_t n = s->n_contexts > 0 ? s->n_contexts : 1;
    s->unit = program_alloc_in(s->arena, (size_t) s->n_windows, sizeof(*s->unit));
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const int64_t unit = scores->windows[i].index / n;
        if (s->n_units == 0 || s->unit[s->n_units - 1] != unit) {
            s->unit[s->n_units++] = unit;
        }
    }
}

//
// Per-token values
//

static void find_divergence(struct summary * s, const struct scores * scores) {
    s->diverged_from = program_alloc_in(s->arena, (size_t) s->n_windows, sizeof(*s->diverged_from));
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &scores->windows[i];
        const int64_t               base = position_base(s, w);
        for (int64_t t = 1; t <= w->n_targets && s->diverged_from[i] == 0; ++t) {
            if ((w->flags[t - 1] & SCORE_COUNTED) && !isfinite(w->nll[t - 1])) {
                s->diverged_from[i] = base + t;
                s->n_diverged++;
            }
        }
        s->length = base + w->n_targets > s->length ? base + w->n_targets : s->length;
    }
}

static void make_positions(struct summary * s, const struct scores * scores) {
    s->stride = 1;
    while (s->stride * MAX_POSITIONS < s->length) {
        s->stride *= 2;
    }
    s->n_positions = (s->length + s->stride - 1) / s->stride;
    s->position_loss = program_alloc_in(s->arena, (size_t) s->n_positions, sizeof(double));
    int64_t counts[MAX_POSITIONS] = { 0 };
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &scores->windows[i];
        const int64_t               base = position_base(s, w);
        for (int64_t t = 1; t <= w->n_targets; ++t) {
            if ((w->flags[t - 1] & SCORE_COUNTED) &&
                    (s->diverged_from[i] == 0 || base + t < s->diverged_from[i])) {
                s->position_loss[(base + t - 1) / s->stride] += (double) w->nll[t - 1];
                counts[(base + t - 1) / s->stride]++;
            }
        }
    }
    for (int64_t k = 0; k < s->n_positions; ++k) {
        s->position_loss[k] = counts[k] > 0 ? s->position_loss[k] / (double) counts[k] : NAN;
    }
}

// sd/√(n − 1) over the tokens of `total`, which excludes diverged windows
static void make_token_error(struct summary * s, const struct scores * scores) {
    const struct loss * f = &s->total.at[0];
    double              square = 0.0;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &scores->windows[i];
        const bool is_counted = s->n_contexts == 0 || w->index % s->n_contexts == s->n_contexts - 1;
        for (int64_t t = 1; t <= w->n_targets && s->diverged_from[i] == 0 && is_counted; ++t) {
            if (w->flags[t - 1] & SCORE_COUNTED) {
                const double d = (double) w->nll[t - 1] - f->nats.value;
                square += d * d;
            }
        }
    }
    s->token_error =
            f->tokens > 1 ? sqrt(square / (double) f->tokens / (double) (f->tokens - 1)) : NAN;
}

static void make_composition(struct summary * s, const struct scores * scores) {
    s->n_sources = s->n_contexts > 0 ? 0 : count_words(s->meta.sources, "\t");
    if (s->n_sources == 0) {
        return;
    }
    const int n = s->n_sources + 1;
    s->composition =
            program_alloc_in(s->arena, (size_t) (s->buckets.n * n), sizeof(*s->composition));
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &scores->windows[i];
        const int64_t               base = position_base(s, w);
        int                         b = 0;
        int32_t                     span = 0;
        for (int64_t t = 1; t <= w->n_targets; ++t) {
            while (span + 1 < w->n_spans && w->spans[span + 1].first <= t) {
                span++;
            }
            while (b + 1 < s->buckets.n && s->buckets.at[b + 1].range.from <= base + t) {
                b++;
            }
            if ((w->flags[t - 1] & SCORE_COUNTED) && s->buckets.n > 0) {
                const int32_t source = w->n_spans > 0 ? w->spans[span].source : -1;
                s->composition[b * n +
                               (source >= 0 && source < s->n_sources ? source : s->n_sources)]++;
            }
        }
    }
}

//
// Norms of states
//

static double norm_value(const struct score_norm * n) {
    return isfinite(n->norm) ? (double) n->norm : INFINITY;
}

// The largest norm of a window in bucket b; NULL: none. With same targets, a bucket is a window.
static const struct score_norm * largest_norm(
        const struct summary * s, const struct score_window * w, int b) {
    const struct position_range range = s->buckets.at[b].range;
    const int64_t               base = position_base(s, w);
    const struct score_norm *   most = NULL;
    for (int32_t i = 0; i < w->n_norms; ++i) {
        const struct score_norm * n = &w->norms[i];
        // with --reset never, the last token of the run is fed too
        const int64_t at = base + n->at < s->length ? base + n->at : s->length;
        const bool    is_in = s->n_contexts > 0 ? w->index % s->n_contexts == b
                                                : range.from <= at && at <= range.to;
        most = is_in && (most == NULL || norm_value(n) > norm_value(most)) ? n : most;
    }
    return most;
}

static void make_norms(struct summary * s, const struct scores * scores) {
    if (!score_has_norms(&s->meta)) {
        return;
    }
    double * values = program_alloc((size_t) s->n_windows, sizeof(*values));
    s->norms = program_alloc_in(s->arena, (size_t) s->buckets.n, sizeof(*s->norms));
    for (int b = 0; b < s->buckets.n; ++b) {
        struct range_norm * f = &s->norms[b];
        for (int64_t i = 0; i < s->n_windows; ++i) {
            const struct score_norm * n = largest_norm(s, &scores->windows[i], b);
            if (n != NULL && (f->windows == 0 || norm_value(n) > f->most)) {
                f->most = norm_value(n);
                f->layer = n->layer;
            }
            if (n != NULL) {
                values[f->windows++] = norm_value(n);
            }
        }
        if (f->windows > 0) {
            stats_sort(values, f->windows);
            f->median = 0.5 * (values[(f->windows - 1) / 2] + values[f->windows / 2]);
        }
    }
    free(values);
}

//
// Beyond the trained length
//

// Loss of bucket i minus that of bucket j, paired by window.
static struct stats_estimate bucket_difference(const struct summary * s, int i, int j) {
    const struct losses * f = &s->buckets;
    struct stats_pair *   a = program_alloc((size_t) (2 * s->n_units), sizeof(*a));
    struct stats_pair *   b = a + s->n_units;
    struct stats_estimate difference;
    for (int64_t u = 0; u < s->n_units; ++u) {
        a[u] = score_cell_pair(&f->cells[u * f->n + i], LOSS_NATS);
        b[u] = score_cell_pair(&f->cells[u * f->n + j], LOSS_NATS);
    }
    stats_differences(a, b, s->n_units, 1, STATS_SEED, &difference);
    free(a);
    return difference;
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

// Fills s->extrapolation from the buckets.
static void extrapolate(struct summary * s, double tolerance) {
    struct extrapolation * e = &s->extrapolation;
    const int64_t          T = e->trained_length;
    // a window of W tokens has targets up to W − 1
    const int64_t reach =
            s->buckets.n > 0 ? bucket_end(s, s->buckets.n - 1) + (s->n_contexts == 0) : 0;

    e->inside = T > 0 ? last_inside(s, T) : -1;
    e->degrades = e->best = -1;
    for (int64_t factor = 2; e->inside >= 0 && e->n < EXTRAPOLATION_MAX && factor <= reach / T;
            factor *= 2) {
        const int b = last_inside(s, factor * T);
        if (b > e->inside && (e->n == 0 || b > e->bucket[e->n - 1])) {
            e->factor[e->n] = (int) factor;
            e->bucket[e->n] = b;
            e->difference[e->n++] = bucket_difference(s, b, e->inside);
        }
    }

    int best = 0;
    for (int i = 1; i < s->buckets.n; ++i) {
        const struct stats_estimate rise = bucket_difference(s, i, best);
        if (rise.lo > tolerance) {
            e->degrades = i;
            e->best = best;
            e->rise = rise;
            break;
        }
        if (s->buckets.at[i].nats.value < s->buckets.at[best].nats.value) {
            best = i;
        }
    }
}

//
// Warnings
//

enum { MAX_WARNINGS = 32 };

#define WARN(s, ...) (s)->warnings[(s)->n_warnings++] = program_print_in((s)->arena, __VA_ARGS__)

static void add_divergence(struct summary * s, const struct scores * scores) {
    int64_t first = -1;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        if (s->diverged_from[i] > 0 &&
                (first < 0 || s->diverged_from[i] < s->diverged_from[first])) {
            first = i;
        }
    }
    if (first >= 0) {
        WARN(s,
                "diverged: %" PRId64 " of %" PRId64
                " windows have non-finite losses, the earliest at position %" PRId64
                " of window %" PRId64
                "; such a window is excluded from there on, and the estimates are marked",
                s->n_diverged, s->n_windows, s->diverged_from[first], scores->windows[first].index);
    }
}

// In document mode with a low minimum, later positions come from long documents only.
static void add_selection(struct summary * s) {
    const struct loss * a = &s->buckets.at[0];
    for (int i = 1; i < s->buckets.n && strcmp(s->meta.reset, "never") != 0; ++i) {
        const struct loss * b = &s->buckets.at[i];
        if (b->windows + b->diverged < a->windows + a->diverged) {
            WARN(s,
                    "selection: %" PRId64 " windows have targets in the first bucket, %" PRId64
                    " at %" PRId64 "-%" PRId64
                    "; later positions come from longer documents, so the content may differ",
                    a->windows + a->diverged, b->windows + b->diverged, b->range.from, b->range.to);
            return;
        }
    }
}

static void add_warnings(struct summary * s, const struct scores * scores) {
    const struct score_meta * m = &s->meta;
    const int64_t             trained_length = s->extrapolation.trained_length;
    s->warnings = program_alloc_in(s->arena, MAX_WARNINGS, sizeof(*s->warnings));
    if (s->n_windows < m->n_windows) {
        WARN(s, "partial: %" PRId64 " of %" PRId64 " windows are there", s->n_windows,
                m->n_windows);
    }
    if (s->n_units < STATS_MIN_T) {
        WARN(s, "%" PRId64 " window%s: too few for an interval", s->n_units,
                s->n_units == 1 ? "" : "s");
    } else if (s->n_units < STATS_MIN_BOOTSTRAP) {
        WARN(s,
                "%" PRId64 " windows: too few for the bootstrap; intervals are Student's t on "
                "window means",
                s->n_units);
    }
    add_divergence(s, scores);
    add_selection(s);
    if (strcmp(m->reset, "never") == 0) {
        WARN(s, "the state is never reset: windows are parts of one sequence, and each position "
                "occurs once");
    }
    if (trained_length == 0) {
        WARN(s, "the trained length is unknown, so there are no extrapolation estimates; set it "
                "with --trained-length");
    } else if (s->extrapolation.inside < 0) {
        WARN(s,
                "no bucket ends inside the trained length of %" PRId64
                ", so there are no extrapolation estimates",
                trained_length);
    }
    if (m->malformed > 0) {
        WARN(s, "%" PRId64 " of %" PRId64 " records were malformed and skipped; the first: %.*s",
                m->malformed, m->records, (int) strcspn(m->complaints, "\t"), m->complaints);
    }
    if (m->lone_surrogates > 0) {
        WARN(s, "%" PRId64 " lone surrogates were replaced by U+FFFD", m->lone_surrogates);
    }
}

//
// The summary
//

// All targets: the sum of the buckets of a unit; with same targets, the bucket of the longest
// context.
static void make_total(struct summary * s) {
    const int                   n = s->buckets.n;
    const struct position_range range = { n > 0 ? s->buckets.at[0].range.from : 1,
        n > 0 ? s->buckets.at[n - 1].range.to : 0 };
    losses_alloc(&s->total, &range, 1, s->n_units, s->arena);
    const int first = s->n_contexts > 0 && n > 0 ? n - 1 : 0;
    for (int64_t u = 0; u < s->n_units; ++u) {
        s->total.cells[u] = score_cell_sum(s->buckets.cells + u * n + first, n - first);
    }
    losses_estimate(&s->total, s->n_units);
}

bool summary_make(const struct scores * scores, const struct summary_params * p,
        struct summary * summary, struct lrnn_error * err) {
    struct summary * s = summary;
    *s = (struct summary) {
        .meta = scores->meta,
        .n_windows = scores->n_windows,
        .n_contexts = count_words(scores->meta.same_targets, ","),
        .arena = program_arena(),
    };
    make_units(s, scores);
    find_divergence(s, scores);
    s->extrapolation.trained_length =
            p->trained_length > 0 ? p->trained_length : s->meta.trained_length;
    if (s->n_contexts > 0) {
        make_contexts(s, scores);
    } else if (make_buckets(s, scores, p->bucket, err)) {
        make_prefixes(s, scores, p);
        make_curve(s, scores, p);
    } else {
        summary_free(s);
        return false;
    }
    make_total(s);
    make_token_error(s, scores);
    make_positions(s, scores);
    make_composition(s, scores);
    make_norms(s, scores);
    extrapolate(s, p->tolerance);
    add_warnings(s, scores);
    return true;
}

const struct range_norm * summary_norm(const struct summary * s, int bucket) {
    return s->norms != NULL && bucket < s->buckets.n && s->norms[bucket].windows > 0
                   ? &s->norms[bucket]
                   : NULL;
}

void summary_free(struct summary * summary) {
    arena_free(summary->arena);
    *summary = (struct summary) { 0 };
}
