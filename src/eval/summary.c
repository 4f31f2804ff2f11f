#include "eval/summary.h"

#include "base/arena.h"
#include "base/error.h"
#include "eval/summary-impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BUCKETS   = 4096,
    MAX_POSITIONS = 1024, // of the per-position loss
    MAX_CURVE     = 1024,
    MAX_WARNINGS  = 32,
};

static const double LN2 = 0.69314718055994530942;

//
// Cells
//

// Where the positions of a window begin: target t is at base + t.
static int64_t position_base(const struct summary * s, const struct score_window * w) {
    return strcmp(s->meta.reset, "never") == 0 ? w->index * s->meta.window : 0;
}

// The targets first ≤ t ≤ last of a window, t counted in the window.
static struct score_cell window_cell(const struct score_window * w, int64_t first, int64_t last) {
    struct score_cell cell = { 0 };
    for (int64_t t = first; t <= last; ++t) {
        if (w->flags[t - 1] & SCORE_COUNTED) {
            cell.nll += (double) w->nll[t - 1];
            cell.bytes += w->bytes[t - 1];
            cell.hits += (w->flags[t - 1] & SCORE_TOP1) != 0;
            cell.tokens += 1;
        }
    }
    return cell;
}

static struct score_cell range_cell(const struct summary * s, const struct score_window * w,
        struct position_range range, int64_t diverged_from) {
    const int64_t base  = position_base(s, w);
    const int64_t first = range.from - base < 1 ? 1 : range.from - base;
    const int64_t last  = range.to - base > w->n_targets ? w->n_targets : range.to - base;

    if (last < first) {
        return (struct score_cell) { 0 };
    }
    if (diverged_from > 0 && diverged_from <= base + last) {
        return (struct score_cell) { .diverged = true };
    }
    return window_cell(w, first, last);
}

// Sums, and the two estimates, of every range.
static bool losses_estimate(struct losses * f, int64_t n_units) {
    const size_t            n   = (size_t) (n_units * f->n);
    struct stats_pair *     x   = malloc((n + 1) * sizeof(*x));
    struct stats_estimate * out = malloc(((size_t) f->n + 1) * sizeof(*out));
    bool                    ok  = x != NULL && out != NULL;

    for (int64_t u = 0; u < n_units && ok; ++u) {
        for (int i = 0; i < f->n; ++i) {
            const struct score_cell * c = &f->cells[u * f->n + i];
            struct loss *             g = &f->at[i];
            g->tokens += c->tokens;
            g->bytes += c->bytes;
            g->hits += c->hits;
            g->windows += c->tokens > 0;
            g->diverged += c->diverged;
        }
    }
    for (int pass = 0; pass < 2 && ok; ++pass) {
        for (size_t i = 0; i < n; ++i) {
            const struct score_cell * c = &f->cells[i];
            x[i]                        = (struct stats_pair) { c->nll,
                pass == 0 ? (double) c->tokens : LN2 * (double) c->bytes };
        }
        ok = stats_ratios(x, n_units, f->n, STATS_SEED, out);
        for (int i = 0; i < f->n && ok; ++i) {
            *(pass == 0 ? &f->at[i].nats : &f->at[i].bits) = out[i];
        }
    }
    free(x);
    free(out);
    return ok;
}

static bool losses_alloc(
        struct summary * s, struct losses * f, const struct position_range * ranges, int n) {
    f->n     = n;
    f->at    = arena_alloc(s->arena, ((size_t) n + 1) * sizeof(*f->at));
    f->cells = arena_alloc(s->arena, ((size_t) n * (size_t) s->n_units + 1) * sizeof(*f->cells));
    if (f->at == NULL || f->cells == NULL) {
        return false;
    }
    for (int i = 0; i < n; ++i) {
        f->at[i].range = ranges[i];
    }
    return true;
}

static bool losses_make(struct summary * s, const struct scores * scores,
        const struct position_range * ranges, int n, struct losses * f) {
    if (!losses_alloc(s, f, ranges, n)) {
        return false;
    }
    for (int64_t w = 0; w < s->n_windows; ++w) {
        for (int i = 0; i < n; ++i) {
            f->cells[w * n + i] =
                    range_cell(s, &scores->windows[w], ranges[i], s->diverged_from[w]);
        }
    }
    return losses_estimate(f, s->n_units);
}

// Ranges at the end without a target are not worth a row; nor are those at the front, where only
// the second half of a window is scored.
static void losses_trim(struct losses * f, int64_t n_units) {
    int n = 0;
    for (int i = 0; i < f->n; ++i) {
        n += f->at[i].tokens > 0 || f->at[i].diverged > 0;
    }
    if (n == f->n) {
        return;
    }
    for (int64_t u = 0; u < n_units;
            ++u) { // rows become shorter: each moves to the front, never over one that is still needed
        int k = 0;
        for (int i = 0; i < f->n; ++i) {
            if (f->at[i].tokens > 0 || f->at[i].diverged > 0) {
                f->cells[u * n + k++] = f->cells[u * f->n + i];
            }
        }
    }
    int k = 0;
    for (int i = 0; i < f->n; ++i) {
        if (f->at[i].tokens > 0 || f->at[i].diverged > 0) {
            f->at[k++] = f->at[i];
        }
    }
    f->n = n;
}

//
// Ranges
//

int64_t summary_default_bucket(int64_t window, int64_t trained_length) {
    int64_t b = 2048;
    while (b > 1 && (b * 8 > window || (trained_length > 0 && b > trained_length))) {
        b /= 2;
    }
    return b;
}

static bool make_buckets(struct summary * s, const struct scores * scores, int64_t bucket,
        char * err, size_t err_size) {
    struct position_range * ranges = arena_alloc(s->arena, MAX_BUCKETS * sizeof(*ranges));
    int                     n      = 0;
    if (ranges == NULL) {
        return summary_out_of_memory(s, err, err_size);
    }
    for (int64_t from = 1; from <= s->length; ++n) {
        const int64_t to = bucket > 0 ? from + bucket - 1 : from == 1 ? 2 : 2 * (from - 1);
        if (n == MAX_BUCKETS) {
            return error_set(err, err_size,
                    "%s: %" PRId64 " positions make more than %d buckets of %" PRId64
                    "; --bucket needs more",
                    s->meta.model, s->length, MAX_BUCKETS, bucket);
        }
        ranges[n] = (struct position_range) { from, to < s->length ? to : s->length };
        from      = to + 1;
    }
    if (!losses_make(s, scores, ranges, n, &s->buckets)) {
        return summary_out_of_memory(s, err, err_size);
    }
    losses_trim(&s->buckets, s->n_units);
    return true;
}

// L = 512, 1,024 …, the lengths asked for and the whole window; from W/8 on where a window has
// fewer than eight times 512 tokens.
static bool make_prefixes(
        struct summary * s, const struct scores * scores, const struct summary_params * p) {
    const int64_t           whole = s->length + 1;
    struct position_range * ranges =
            arena_alloc(s->arena, (72 + (size_t) p->n_lengths) * sizeof(*ranges));
    int64_t L = 512;
    int     n = 0;

    if (ranges == NULL) {
        return false;
    }
    while (L > 2 && L * 8 > whole) {
        L /= 2;
    }
    for (int64_t last = 1; last < whole;) {
        int64_t next = L < whole ? L : whole;
        for (int i = 0; i < p->n_lengths; ++i) {
            next = p->lengths[i] > last && p->lengths[i] < next ? p->lengths[i] : next;
        }
        L *= next == L ? 2 : 1;
        ranges[n++] = (struct position_range) { 1, next - 1 };
        last        = next;
    }
    if (!losses_make(s, scores, ranges, n, &s->prefixes)) {
        return false;
    }
    losses_trim(&s->prefixes, s->n_units);
    return true;
}

// The first positions of a window are few and their losses large; the curve begins where there is
// something to average.
static int64_t curve_start(int64_t length) {
    int64_t start = 64;
    while (start > 1 && start * 64 > length + 1) {
        start /= 2;
    }
    return start;
}

static int quarter_octaves(int64_t length, struct position_range * ranges) {
    const double start = (double) curve_start(length);
    int64_t      from  = (int64_t) start + 1;
    int          n     = 0;
    for (int k = 1; from <= length && n < MAX_CURVE; ++k) {
        const int64_t end =
                (int64_t) floor(start * exp2(0.25 * k) + 1e-9); // a power of two stays one
        if (end >= from) {
            ranges[n++] = (struct position_range) { from, end < length ? end : length };
            from        = end + 1;
        }
    }
    // a sliver, where a window is no power of two
    if (n > 1 &&
            ranges[n - 1].to - ranges[n - 1].from < (ranges[n - 2].to - ranges[n - 2].from) / 2) {
        ranges[n - 2].to = ranges[n - 1].to;
        n--;
    }
    return n;
}

static int moving_average(
        int64_t length, int64_t smooth, bool is_log2, struct position_range * ranges) {
    const int64_t half = smooth / 2;
    int           n    = 0;
    int64_t       last = -1;
    for (int k = 0; n < MAX_CURVE; ++k) {
        const double  at     = is_log2 ? (double) curve_start(length) * exp2(k / 16.0)
                                       : 1.0 + (double) k * (double) length / 256.0;
        const int64_t centre = (int64_t) at;
        if (centre > length) {
            break;
        }
        if (centre > half && centre + half <= length &&
                centre > last) { // only where the whole stretch is there
            ranges[n++] = (struct position_range) { centre - half, centre + half };
            last        = centre;
        }
    }
    return n;
}

static bool make_curve(
        struct summary * s, const struct scores * scores, const struct summary_params * p) {
    struct position_range ranges[MAX_CURVE];
    if (p->smooth == 0 && !p->log2_curve) {
        s->curve = s->buckets;
        return true;
    }
    const int n = p->smooth > 0 ? moving_average(s->length, p->smooth, p->log2_curve, ranges)
                                : quarter_octaves(s->length, ranges);
    if (!losses_make(s, scores, ranges, n, &s->curve)) {
        return false;
    }
    losses_trim(&s->curve, s->n_units);
    return true;
}

//
// The same targets after contexts of several lengths: window i is stretch i/n after context i mod n
//

static bool make_contexts(struct summary * s, const struct scores * scores) {
    const int               n      = s->n_contexts;
    struct position_range * ranges = arena_alloc(s->arena, (size_t) n * sizeof(*ranges));
    if (ranges == NULL || !losses_alloc(s, &s->buckets, ranges, n)) {
        return false;
    }
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
    if (!losses_estimate(&s->buckets, s->n_units)) {
        return false;
    }
    s->curve = s->buckets;
    return true;
}

static int count_words(const char * list, const char * sep) {
    int n = 0;
    for (const char * p = list + strspn(list, sep); *p != '\0'; ++n) {
        p += strcspn(p, sep);
        p += strspn(p, sep);
    }
    return n;
}

// Units in the order of their windows; the windows of a partial run may end inside one.
static bool make_units(struct summary * s, const struct scores * scores) {
    const int64_t n = s->n_contexts > 0 ? s->n_contexts : 1;
    s->unit         = arena_alloc(s->arena, ((size_t) s->n_windows + 1) * sizeof(*s->unit));
    for (int64_t i = 0; i < s->n_windows && s->unit != NULL; ++i) {
        const int64_t unit = scores->windows[i].index / n;
        if (s->n_units == 0 || s->unit[s->n_units - 1] != unit) {
            s->unit[s->n_units++] = unit;
        }
    }
    return s->unit != NULL;
}

//
// What a single token says
//

static bool find_divergence(struct summary * s, const struct scores * scores) {
    s->diverged_from =
            arena_alloc(s->arena, ((size_t) s->n_windows + 1) * sizeof(*s->diverged_from));
    for (int64_t i = 0; i < s->n_windows && s->diverged_from != NULL; ++i) {
        const struct score_window * w    = &scores->windows[i];
        const int64_t               base = position_base(s, w);
        for (int64_t t = 1; t <= w->n_targets && s->diverged_from[i] == 0; ++t) {
            if ((w->flags[t - 1] & SCORE_COUNTED) && !isfinite(w->nll[t - 1])) {
                s->diverged_from[i] = base + t;
                s->n_diverged++;
            }
        }
        s->length = base + w->n_targets > s->length ? base + w->n_targets : s->length;
    }
    return s->diverged_from != NULL;
}

static bool make_positions(struct summary * s, const struct scores * scores) {
    s->stride = 1;
    while (s->stride * MAX_POSITIONS < s->length) {
        s->stride *= 2;
    }
    s->n_positions   = (s->length + s->stride - 1) / s->stride;
    s->position_loss = arena_alloc(s->arena, ((size_t) s->n_positions + 1) * sizeof(double));
    int64_t * counts = calloc((size_t) s->n_positions + 1, sizeof(*counts));
    if (s->position_loss == NULL || counts == NULL) {
        free(counts);
        return false;
    }
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w    = &scores->windows[i];
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
    free(counts);
    return true;
}

// sd/√(n − 1) over the tokens of windows that did not diverge, those of total
static void make_token_error(struct summary * s, const struct scores * scores) {
    const struct loss * f      = &s->total.at[0];
    double              square = 0.0;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w = &scores->windows[i];
        const bool is_in_it = s->n_contexts == 0 || w->index % s->n_contexts == s->n_contexts - 1;
        for (int64_t t = 1; t <= w->n_targets && s->diverged_from[i] == 0 && is_in_it; ++t) {
            if (w->flags[t - 1] & SCORE_COUNTED) {
                const double d = (double) w->nll[t - 1] - f->nats.value;
                square += d * d;
            }
        }
    }
    s->token_error =
            f->tokens > 1 ? sqrt(square / (double) f->tokens / (double) (f->tokens - 1)) : NAN;
}

static bool make_composition(struct summary * s, const struct scores * scores) {
    s->n_sources = count_words(s->meta.sources, "\t");
    if (s->n_sources == 0 || s->n_contexts > 0) {
        s->n_sources = 0;
        return true;
    }
    const int n = s->n_sources + 1;
    s->composition =
            arena_alloc(s->arena, (size_t) s->buckets.n * (size_t) n * sizeof(*s->composition));
    for (int64_t i = 0; i < s->n_windows && s->composition != NULL; ++i) {
        const struct score_window * w    = &scores->windows[i];
        const int64_t               base = position_base(s, w);
        int                         b    = 0;
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
    return s->composition != NULL;
}

//
// How large states are
//

static int compare_doubles(const void * a, const void * b) {
    const double x = *(const double *) a;
    const double y = *(const double *) b;
    return (x > y) - (x < y);
}

static double norm_value(const struct score_norm * n) {
    return isfinite(n->norm) ? (double) n->norm : INFINITY;
}

// The largest that a window has in bucket b, NULL: none. With the same targets after several
// contexts, the bucket is the window.
static const struct score_norm * largest_norm(
        const struct summary * s, const struct score_window * w, int b) {
    const struct position_range range = s->buckets.at[b].range;
    const int64_t               base  = position_base(s, w);
    const struct score_norm *   most  = NULL;
    for (int32_t i = 0; i < w->n_norms; ++i) {
        const struct score_norm * n     = &w->norms[i];
        const int64_t             at    = base + n->at < s->length
                                                  ? base + n->at
                                                  : s->length; // a stream that goes on is fed its last token too
        const bool                is_in = s->n_contexts > 0 ? w->index % s->n_contexts == b
                                                            : range.from <= at && at <= range.to;
        most = is_in && (most == NULL || norm_value(n) > norm_value(most)) ? n : most;
    }
    return most;
}

static bool make_norms(struct summary * s, const struct scores * scores) {
    if (s->meta.probe == NULL || s->meta.probe[0] == '\0') {
        return true;
    }
    double * values = malloc(((size_t) s->n_windows + 1) * sizeof(*values));
    s->norms        = arena_alloc(s->arena, ((size_t) s->buckets.n + 1) * sizeof(*s->norms));
    const bool ok   = values != NULL && s->norms != NULL;
    for (int b = 0; b < s->buckets.n && ok; ++b) {
        struct range_norm * f = &s->norms[b];
        for (int64_t i = 0; i < s->n_windows; ++i) {
            const struct score_norm * n = largest_norm(s, &scores->windows[i], b);
            if (n != NULL && (f->windows == 0 || norm_value(n) > f->most)) {
                f->most  = norm_value(n);
                f->layer = n->layer;
            }
            if (n != NULL) {
                values[f->windows++] = norm_value(n);
            }
        }
        if (f->windows > 0) {
            qsort(values, (size_t) f->windows, sizeof(*values), compare_doubles);
            f->median = 0.5 * (values[(f->windows - 1) / 2] + values[f->windows / 2]);
        }
    }
    free(values);
    return ok;
}

//
// Warnings
//

bool summary_warn(struct summary * s, const char * format, ...) {
    char    text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    char * copy = arena_alloc(s->arena, strlen(text) + 1);
    if (copy == NULL || s->n_warnings == MAX_WARNINGS) {
        return copy != NULL;
    }
    strcpy(copy, text);
    s->warnings[s->n_warnings++] = copy;
    return true;
}

bool summary_out_of_memory(const struct summary * s, char * err, size_t err_size) {
    return error_set(err, err_size, "%s: out of memory for the figures of %" PRId64 " windows",
            s->meta.model, s->n_windows);
}

static bool warn_of_divergence(struct summary * s, const struct scores * scores) {
    int64_t first = -1;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        if (s->diverged_from[i] > 0 &&
                (first < 0 || s->diverged_from[i] < s->diverged_from[first])) {
            first = i;
        }
    }
    return first < 0 ||
           summary_warn(s,
                   "diverged: %" PRId64 " of %" PRId64
                   " windows have scores that are not finite, the earliest at "
                   "position %" PRId64 " of window %" PRId64
                   "; from there on a window is left out, and figures that lack one are marked",
                   s->n_diverged, s->n_windows, s->diverged_from[first],
                   scores->windows[first].index);
}

// In document mode with a low minimum, later positions come from longer documents only.
static bool warn_of_selection(struct summary * s) {
    for (int i = 1; i < s->buckets.n; ++i) {
        const struct loss * a = &s->buckets.at[0];
        const struct loss * b = &s->buckets.at[i];
        if (b->windows + b->diverged < a->windows + a->diverged &&
                strcmp(s->meta.reset, "never") != 0) {
            return summary_warn(s,
                    "selection: %" PRId64 " windows have targets in the first bucket, %" PRId64
                    " at %" PRId64 "-%" PRId64
                    "; later positions come from longer documents, so a change may be one of content",
                    a->windows + a->diverged, b->windows + b->diverged, b->range.from, b->range.to);
        }
    }
    return true;
}

static bool warn(struct summary * s, const struct scores * scores) {
    const struct score_meta * m  = &s->meta;
    bool                      ok = true;
    if (s->n_windows < m->n_windows) {
        ok = ok && summary_warn(s, "partial: %" PRId64 " of %" PRId64 " windows are there",
                           s->n_windows, m->n_windows);
    }
    if (s->n_units < STATS_MIN_T) {
        ok = ok && summary_warn(s, "%" PRId64 " window%s: too few for an interval", s->n_units,
                           s->n_units == 1 ? "" : "s");
    } else if (s->n_units < STATS_MIN_BOOTSTRAP) {
        ok = ok &&
             summary_warn(s,
                     "%" PRId64
                     " windows: too few for the bootstrap; intervals are Student's t on window means",
                     s->n_units);
    }
    ok = ok && warn_of_divergence(s, scores) && warn_of_selection(s);
    if (strcmp(m->reset, "never") == 0) {
        ok = ok &&
             summary_warn(s,
                     "the state is never reset: windows are stretches of one sequence, and a position is seen once");
    }
    if (s->extrapolation.trained_length == 0) {
        ok = ok &&
             summary_warn(s,
                     "the training length is unknown (--train-ctx N tells it); there are no extrapolation figures");
    } else if (s->extrapolation.inside < 0) {
        ok = ok && summary_warn(s,
                           "no bucket ends inside the training length of %" PRId64
                           "; there are no extrapolation figures",
                           s->extrapolation.trained_length);
    }
    if (m->malformed > 0) {
        ok = ok &&
             summary_warn(s,
                     "%" PRId64 " of %" PRId64 " records were malformed and left out; first: %.*s",
                     m->malformed, m->records, (int) strcspn(m->complaints, "\t"), m->complaints);
    }
    if (m->lone_surrogates > 0) {
        ok = ok &&
             summary_warn(s, "%" PRId64 " escapes of half a character were replaced by U+FFFD",
                     m->lone_surrogates);
    }
    return ok;
}

//
// The whole
//

// Of all targets: the sum of a unit's buckets; with the same targets after several contexts, what
// the longest context gives.
static bool make_total(struct summary * s) {
    const int                   n     = s->buckets.n;
    const struct position_range range = { n > 0 ? s->buckets.at[0].range.from : 1,
        n > 0 ? s->buckets.at[n - 1].range.to : 0 };
    if (!losses_alloc(s, &s->total, &range, 1)) {
        return false;
    }
    for (int64_t u = 0; u < s->n_units; ++u) {
        struct score_cell * sum = &s->total.cells[u];
        for (int i = s->n_contexts > 0 && n > 0 ? n - 1 : 0; i < n; ++i) {
            const struct score_cell * c = &s->buckets.cells[u * n + i];
            sum->nll += c->nll;
            sum->tokens += c->tokens;
            sum->bytes += c->bytes;
            sum->hits += c->hits;
            sum->diverged |= c->diverged;
        }
        if (sum->diverged) {
            *sum = (struct score_cell) { .diverged = true };
        }
    }
    return losses_estimate(&s->total, s->n_units);
}

static bool make_all(struct summary * s, const struct scores * scores,
        const struct summary_params * p, char * err, size_t err_size) {
    s->warnings = arena_alloc(s->arena, MAX_WARNINGS * sizeof(*s->warnings));
    if (s->warnings == NULL || !make_units(s, scores) || !find_divergence(s, scores)) {
        return summary_out_of_memory(s, err, err_size);
    }
    s->extrapolation.trained_length =
            p->trained_length > 0 ? p->trained_length : s->meta.trained_length;

    if (s->n_contexts > 0) {
        if (!make_contexts(s, scores)) {
            return summary_out_of_memory(s, err, err_size);
        }
    } else {
        if (!make_buckets(s, scores, p->bucket, err, err_size)) {
            return false;
        }
        if (!make_prefixes(s, scores, p) || !make_curve(s, scores, p)) {
            return summary_out_of_memory(s, err, err_size);
        }
    }
    if (!make_total(s)) {
        return summary_out_of_memory(s, err, err_size);
    }
    make_token_error(s, scores);
    if (!make_positions(s, scores) || !make_composition(s, scores) || !make_norms(s, scores) ||
            !summary_extrapolate(s, p->tolerance) || !warn(s, scores)) {
        return summary_out_of_memory(s, err, err_size);
    }
    return true;
}

bool summary_make(const struct scores * scores, const struct summary_params * params,
        struct summary * summary, char * err, size_t err_size) {
    *summary = (struct summary) {
        .meta       = scores->meta,
        .n_windows  = scores->n_windows,
        .n_contexts = count_words(scores->meta.same_targets, ","),
        .arena      = arena_new(),
    };
    if (summary->arena == NULL) {
        return summary_out_of_memory(summary, err, err_size);
    }
    if (!make_all(summary, scores, params, err, err_size)) {
        summary_free(summary);
        return false;
    }
    return true;
}

bool summary_from_cells(const struct score_meta * meta, int64_t trained_length, int64_t n_units,
        int64_t * unit, int n_buckets, const struct position_range * ranges,
        const struct score_cell * cells, struct summary * s, char * err, size_t err_size) {
    *s = (struct summary) {
        .meta       = *meta,
        .n_windows  = n_units,
        .n_units    = n_units,
        .unit       = unit,
        .n_contexts = count_words(meta->same_targets, ","),
        .arena      = arena_new(),
    };
    s->extrapolation = (struct extrapolation) {
        .trained_length = trained_length, .inside = -1, .degrades = -1, .best = -1
    };
    if (s->arena == NULL || !losses_alloc(s, &s->buckets, ranges, n_buckets)) {
        summary_out_of_memory(s, err, err_size);
        summary_free(s);
        return false;
    }
    memcpy(s->buckets.cells, cells, (size_t) n_units * (size_t) n_buckets * sizeof(*cells));
    if (!losses_estimate(&s->buckets, n_units) || !make_total(s)) {
        summary_out_of_memory(s, err, err_size);
        summary_free(s);
        return false;
    }
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

double loss_value(const struct loss * f, enum loss_unit unit) {
    return unit == LOSS_PPL    ? exp(f->nats.value)
           : unit == LOSS_NATS ? f->nats.value
                               : f->bits.value;
}

double loss_lo(const struct loss * f, enum loss_unit unit) {
    return unit == LOSS_PPL ? exp(f->nats.lo) : unit == LOSS_NATS ? f->nats.lo : f->bits.lo;
}

double loss_hi(const struct loss * f, enum loss_unit unit) {
    return unit == LOSS_PPL ? exp(f->nats.hi) : unit == LOSS_NATS ? f->nats.hi : f->bits.hi;
}
