#include "eval/report/compare-tables.h"

#include "base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum column { TARGETS, FIRST, SECOND, DIFFERENCE, INTERVAL, RATIO, WON, P, N_COLUMNS };

static const char * const TITLES[N_COLUMNS] = { "targets", "first", "second", "difference",
    "95 % interval", "ratio of ppl", "windows won", "p" };

enum { NOTE_SIZE = 768 };

// - base, other: the two values
static bool add_row(struct arena * a, struct table * t, const char * targets, const char * base,
        const char * other, const struct paired * p, bool is_nats) {
    const struct stats_estimate * e   = &p->difference;
    const double                  pv  = stats_p_value(e);
    const int                     row = t->n_rows++;
    bool                          ok  = table_set(a, t, row, TARGETS, "%s", targets) &&
              table_set(a, t, row, FIRST, "%s", base) && table_set(a, t, row, SECOND, "%s", other);
    if (!isfinite(e->value)) {
        return ok && table_set(a, t, row, DIFFERENCE, "diverged");
    }
    ok = ok && table_set(a, t, row, DIFFERENCE, "%+.5f", e->value) &&
         table_set(a, t, row, WON, "%" PRId64 " of %" PRId64, p->won, e->n);
    if (e->method != STATS_NONE) {
        ok = ok && table_set(a, t, row, INTERVAL, "%+.5f .. %+.5f", e->lo, e->hi);
    }
    if (is_nats) {
        ok = ok && table_set(a, t, row, RATIO, "%.5f", exp(e->value));
    }
    return ok && (!isfinite(pv) || table_set_p_value(a, t, row, P, pv));
}

// A table with its header alone.
// - note: NOTE_SIZE bytes, to be filled
static struct table * begin(struct arena * a, int max_rows, const char * base, const char * other,
        const char * unit, char ** note) {
    struct table * t     = table_new(a, max_rows, N_COLUMNS);
    const size_t   size  = strlen(base) + strlen(other) + strlen(unit) + 64;
    char *         title = arena_alloc(a, size);
    *note                = arena_alloc(a, NOTE_SIZE);
    bool ok              = t != NULL && title != NULL && *note != NULL;
    for (int c = 0; c < N_COLUMNS && ok; ++c) {
        ok = table_set(a, t, 0, c, "%s", TITLES[c]);
    }
    if (!ok) {
        return NULL;
    }
    snprintf(title, size, "%s (second) minus %s (first), %s", other, base, unit);
    t->title  = title;
    t->note   = *note;
    t->n_rows = 1;
    return t;
}

static void show_loss(const struct loss * l, char text[32]) {
    if (isfinite(l->nats.value)) {
        snprintf(text, 32, "%.4f", l->nats.value);
    } else {
        snprintf(text, 32, "diverged");
    }
}

struct table * comparison_table(const struct comparison * c, struct arena * a) {
    char *         note;
    struct table * t = begin(a, c->n_buckets + 3, c->base->meta.model, c->other->meta.model,
            "nats per token", &note);
    const bool     has_beyond = c->beyond.difference.n > 0;
    bool           ok         = t != NULL;
    char           targets[64], base[32], other[32];

    for (int i = 0; i < c->n_buckets && ok; ++i) {
        const struct loss * l = &c->base->buckets.at[i];
        snprintf(targets, sizeof(targets), "%" PRId64 "\xe2\x80\x93%" PRId64, l->range.from,
                l->range.to);
        show_loss(l, base);
        show_loss(&c->other->buckets.at[i], other);
        ok = add_row(a, t, targets, base, other, &c->buckets[i], true);
    }
    if (ok) {
        table_add_rule(t, "together");
        show_loss(&c->base->total.at[0], base);
        show_loss(&c->other->total.at[0], other);
        ok = add_row(a, t, "all", base, other, &c->all, true);
    }
    if (ok && has_beyond) {
        snprintf(targets, sizeof(targets), "beyond %" PRId64, c->trained_length);
        ok = add_row(a, t, targets, "", "", &c->beyond, true);
    }
    if (!ok) {
        return NULL;
    }
    const int n = snprintf(note, NOTE_SIZE,
            "Paired by window; negative: the second is better. Rely on %s: of %d buckets, one in "
            "20 "
            "seems to differ by chance.",
            has_beyond ? "the row beyond the trained length" : "the row of all targets",
            c->n_buckets);
    if (c->n_left_out > 0) {
        snprintf(note + n, NOTE_SIZE - (size_t) n,
                " %" PRId64 " windows are in only one run and are excluded.", c->n_left_out);
    }
    return t;
}

struct table * byte_comparison_table(const struct byte_comparison * c, const char * base_name,
        const char * other_name, struct arena * a) {
    char *         note;
    struct table * t = begin(a, 3, base_name, other_name, "bits per byte", &note);
    char           base[32], other[32];

    snprintf(base, sizeof(base), "%.4f", c->base.value);
    snprintf(other, sizeof(other), "%.4f", c->other.value);
    if (t == NULL || !add_row(a, t, "all", base, other, &c->all, false) ||
            (c->beyond.difference.n > 0 &&
                    !add_row(a, t, "beyond both lengths", "", "", &c->beyond, false))) {
        return NULL;
    }
    snprintf(note, NOTE_SIZE,
            "The tokenizers differ, so the comparison covers stretches of text that both runs "
            "scored "
            "and that begin and end between tokens of both: %" PRId64 " of %" PRId64 " and %" PRId64
            " bytes, paired by windows of the first.",
            c->bytes, c->base_bytes, c->other_bytes);
    return t;
}
