#include "eval/estimates/summary-impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WARNINGS = 32 };

static bool add(struct summary * s, const char * format, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;

static bool add(struct summary * s, const char * format, ...) {
    char    text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    char * copy = arena_alloc(s->arena, strlen(text) + 1);
    if (copy == NULL || s->n_warnings == MAX_WARNINGS) {
        return copy != NULL;
    }
    s->warnings[s->n_warnings++] = strcpy(copy, text);
    return true;
}

static bool add_divergence(struct summary * s, const struct scores * scores) {
    int64_t first = -1;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        if (s->diverged_from[i] > 0 &&
                (first < 0 || s->diverged_from[i] < s->diverged_from[first])) {
            first = i;
        }
    }
    return first < 0 ||
           add(s,
                   "diverged: %" PRId64 " of %" PRId64
                   " windows have non-finite losses, the earliest at position %" PRId64
                   " of window %" PRId64
                   "; such a window is excluded from there on, and the estimates are marked",
                   s->n_diverged, s->n_windows, s->diverged_from[first],
                   scores->windows[first].index);
}

// In document mode with a low minimum, later positions come from long documents only.
static bool add_selection(struct summary * s) {
    const struct loss * a = &s->buckets.at[0];
    for (int i = 1; i < s->buckets.n; ++i) {
        const struct loss * b = &s->buckets.at[i];
        if (b->windows + b->diverged < a->windows + a->diverged &&
                strcmp(s->meta.reset, "never") != 0) {
            return add(s,
                    "selection: %" PRId64 " windows have targets in the first bucket, %" PRId64
                    " at %" PRId64 "-%" PRId64
                    "; later positions come from longer documents, so the content may differ",
                    a->windows + a->diverged, b->windows + b->diverged, b->range.from, b->range.to);
        }
    }
    return true;
}

static bool add_few_windows(struct summary * s) {
    return s->n_units >= STATS_MIN_BOOTSTRAP ||
           (s->n_units < STATS_MIN_T
                           ? add(s, "%" PRId64 " window%s: too few for an interval", s->n_units,
                                     s->n_units == 1 ? "" : "s")
                           : add(s,
                                     "%" PRId64 " windows: too few for the bootstrap; intervals "
                                     "are Student's t on window means",
                                     s->n_units));
}

static bool add_trained_length(struct summary * s) {
    const int64_t length = s->extrapolation.trained_length;
    if (length == 0) {
        return add(s, "the trained length is unknown, so there are no extrapolation estimates; "
                      "set it with --trained-length");
    }
    return s->extrapolation.inside >= 0 ||
           add(s,
                   "no bucket ends inside the trained length of %" PRId64
                   ", so there are no extrapolation estimates",
                   length);
}

bool summary_add_warnings(struct summary * s, const struct scores * scores) {
    const struct score_meta * m = &s->meta;
    s->warnings                 = arena_alloc(s->arena, MAX_WARNINGS * sizeof(*s->warnings));
    bool ok                     = s->warnings != NULL;
    if (s->n_windows < m->n_windows) {
        ok = ok && add(s, "partial: %" PRId64 " of %" PRId64 " windows are there", s->n_windows,
                           m->n_windows);
    }
    ok = ok && add_few_windows(s) && add_divergence(s, scores) && add_selection(s);
    if (strcmp(m->reset, "never") == 0) {
        ok = ok && add(s, "the state is never reset: windows are parts of one sequence, and each "
                          "position occurs once");
    }
    ok = ok && add_trained_length(s);
    if (m->malformed > 0) {
        ok = ok &&
             add(s,
                     "%" PRId64 " of %" PRId64
                     " records were malformed and skipped; the first: %.*s",
                     m->malformed, m->records, (int) strcspn(m->complaints, "\t"), m->complaints);
    }
    if (m->lone_surrogates > 0) {
        ok = ok &&
             add(s, "%" PRId64 " lone surrogates were replaced by U+FFFD", m->lone_surrogates);
    }
    return ok;
}
