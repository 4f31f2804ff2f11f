#include "eval/report/report-write.h"

#include "base/arena.h"
#include "eval/report/report-columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 64 }; // of buckets; of more, only some are shown

const char REPORT_LEGEND[] =
        "\xc2\xb1 is half the width of the 95 % interval over windows; * marks the best model if "
        "its paired "
        "intervals against all others exclude 0; !k: k windows diverged and are excluded.";

//
// Cells
//

// - mark: " *", or space for it
static bool set_loss(struct arena * a, struct table * g, int row, int col, const struct loss * l,
        enum loss_unit unit, const char * mark) {
    char text[160];
    report_loss(l, unit, text, sizeof(text));
    return table_set(a, g, row, col, "%s%s", text, mark);
}

static bool set_difference(
        struct arena * a, struct table * g, int row, int col, const struct stats_estimate * e) {
    if (!isfinite(e->value)) {
        return table_set(a, g, row, col, "-");
    }
    if (e->method == STATS_NONE) {
        return table_set(a, g, row, col, "%+.4f", e->value);
    }
    return table_set(a, g, row, col, "%+.4f [%+.4f, %+.4f]", e->value, e->lo, e->hi);
}

//
// Models side by side
//

static bool set_models(struct arena * a, struct table * g, const struct report_panel * panel,
        const char * corner) {
    bool ok = table_set(a, g, 0, 0, "%s", corner);
    for (int i = 0; i < panel->n && ok; ++i) {
        ok = table_set(a, g, 0, 1 + i, "%s", panel->runs[i]->label);
    }
    return ok;
}

static struct table * make_overview(const struct report_panel * panel, struct arena * a) {
    const struct report_column * c;
    int                          n = 0;
    while (report_column_at(REPORT_TABLE_TOTAL, n) != NULL) {
        n++;
    }
    struct table * g  = table_new(a, n + 1, panel->n + 1);
    bool           ok = g != NULL && set_models(a, g, panel, "over all targets");
    for (int row = 1; row <= n && ok; ++row) {
        c  = report_column_at(REPORT_TABLE_TOTAL, row - 1);
        ok = table_set(a, g, row, 0, "%s", c->title);
        for (int i = 0; i < panel->n && ok; ++i) {
            const struct report_run * run = panel->runs[i];
            const struct report_row   at  = { .run = run, .loss = &run->summary.total.at[0] };
            char                      text[160];
            ok = table_set(a, g, row, i + 1, "%s", report_column_show(c, &at, text, sizeof(text)));
        }
    }
    if (g != NULL) {
        g->title = "Overall";
        g->note = "llama-perplexity's +/- treats tokens as independent; the intervals here do not.";
    }
    return ok ? g : NULL;
}

// Finds the best run of a row, if its paired interval against every other run excludes zero.
struct judge {
    const struct report *       r;
    const struct report_panel * panel;
    bool                        prefixes; // otherwise buckets
    struct paired **            pairs;    // [n][n], made on demand
    bool *                      tried;
};

static const struct losses * judge_losses(const struct judge * j, int i) {
    const struct summary * s = &j->panel->runs[i]->summary;
    return j->prefixes ? &s->prefixes : &s->buckets;
}

static const struct paired * judge_pair(struct judge * j, int base, int other) {
    const int k = base * j->panel->n + other;
    if (!j->tried[k]) {
        j->tried[k] = true;
        j->pairs[k] = report_pair(j->r, j->panel->runs[base], judge_losses(j, base),
                j->panel->runs[other], judge_losses(j, other));
    }
    return j->pairs[k];
}

static int judge_row(struct judge * j, int row) {
    int best = -1;
    for (int i = 0; i < j->panel->n; ++i) {
        const struct loss * f = &judge_losses(j, i)->at[row];
        if (row < judge_losses(j, i)->n && isfinite(f->nats.value) &&
                (best < 0 ||
                        loss_value(f, j->r->params.unit) <
                                loss_value(&judge_losses(j, best)->at[row], j->r->params.unit))) {
            best = i;
        }
    }
    if (best < 0 || j->panel->n < 2 || judge_losses(j, best)->at[row].diverged > 0) {
        return -1;
    }
    for (int i = 0; i < j->panel->n; ++i) {
        const struct paired * p = i == best || judge_losses(j, i)->at[row].windows == 0
                                          ? NULL
                                          : judge_pair(j, i, best);
        if (i != best && (p == NULL || !(p[row].difference.hi < 0.0))) {
            return -1;
        }
    }
    return best;
}

static struct judge judge_new(
        const struct report * r, const struct report_panel * panel, bool prefixes) {
    const size_t n = (size_t) panel->n * (size_t) panel->n;
    return (struct judge) { r, panel, prefixes, calloc(n, sizeof(struct paired *)),
        calloc(n, sizeof(bool)) };
}

static void judge_free(struct judge * j) {
    for (int i = 0; i < j->panel->n * j->panel->n && j->pairs != NULL; ++i) {
        free(j->pairs[i]);
    }
    free(j->pairs);
    free(j->tried);
}

// The run with the most rows.
static const struct losses * longest(const struct report_panel * panel, bool prefixes) {
    const struct losses * most = NULL;
    for (int i = 0; i < panel->n; ++i) {
        const struct summary * s = &panel->runs[i]->summary;
        const struct losses *  f = prefixes ? &s->prefixes : &s->buckets;
        most                     = most == NULL || f->n > most->n ? f : most;
    }
    return most;
}

static int64_t row_end(const struct loss * f, bool prefixes, bool contexts) {
    return prefixes ? f->range.to + 1 : contexts ? f->range.from : f->range.to;
}

// Adds a line at each trained length.
static void set_rules(struct table * g, const struct report_panel * panel,
        const struct losses * rows, const int * shown, int n, bool prefixes, struct arena * a) {
    for (int i = 0; i < panel->n; ++i) {
        const struct summary * s    = &panel->runs[i]->summary;
        const int64_t          T    = s->extrapolation.trained_length;
        int                    row  = 0;
        bool                   seen = false;
        while (row < n && row_end(&rows->at[shown[row]], prefixes, s->n_contexts > 0) <= T) {
            row++;
        }
        for (int k = 0; k < g->n_rules; ++k) {
            seen |= g->rules[k].before == row + 1;
        }
        if (T > 0 && row > 0 && row < n && !seen && g->n_rules < TABLE_MAX_RULES) {
            char   buf[32];
            char * word = arena_alloc(a, 64);
            if (word != NULL) {
                snprintf(word, 64, "trained on %s", report_count(T, buf));
                g->rules[g->n_rules].before = row + 1;
                g->rules[g->n_rules].word   = word;
                g->n_rules++;
            }
        }
    }
}

static bool fill_rows(const struct report * r, const struct report_panel * panel, bool prefixes,
        struct arena * a, struct table * g, const struct losses * rows, const int * shown, int n) {
    const bool   contexts = panel->runs[0]->summary.n_contexts > 0;
    struct judge judge    = judge_new(r, panel, prefixes);
    bool         ok       = judge.pairs != NULL && judge.tried != NULL;

    for (int k = 0; k < n && ok; ++k) {
        const struct position_range * range = &rows->at[shown[k]].range;
        const int                     best  = judge_row(&judge, shown[k]);
        char                          from[32], to[32];
        ok = prefixes || contexts
                     ? table_set(a, g, k + 1, 0, "%s",
                               report_count(row_end(&rows->at[shown[k]], prefixes, contexts), to))
                     : table_set(a, g, k + 1, 0, "%s\xe2\x80\x93%s",
                               report_count(range->from, from), report_count(range->to, to));
        for (int i = 0; i < panel->n && ok; ++i) {
            const struct losses * f = judge_losses(&judge, i);
            ok = shown[k] >= f->n || set_loss(a, g, k + 1, i + 1, &f->at[shown[k]], r->params.unit,
                                             best == i      ? " *"
                                             : panel->n > 1 ? "  "
                                                            : "");
        }
    }
    judge_free(&judge);
    return ok;
}

static const char * table_title(
        const struct report * r, bool prefixes, bool contexts, struct arena * a) {
    char * title = arena_alloc(a, 160);
    if (title != NULL) {
        snprintf(title, 160,
                prefixes   ? "The first L tokens: %s"
                : contexts ? "Same targets after contexts of several lengths: %s"
                           : "Buckets of positions: %s",
                report_unit_name(r->params.unit));
    }
    return title;
}

static struct table * make_lengths(const struct report * r, const struct report_panel * panel,
        bool prefixes, struct arena * a) {
    const struct losses * rows     = longest(panel, prefixes);
    const bool            contexts = panel->runs[0]->summary.n_contexts > 0;
    const int             every    = (rows->n + MAX_ROWS - 1) / MAX_ROWS;
    int                   shown[MAX_ROWS + 1];
    int                   n = 0;

    for (int i = 0; i < rows->n; ++i) { // always with the last one
        if ((rows->n - 1 - i) % every == 0) {
            shown[n++] = i;
        }
    }
    struct table * g = table_new(a, n + 1, panel->n + 1);
    if (g == NULL ||
            !set_models(a, g, panel,
                    prefixes   ? "L"
                    : contexts ? "context"
                               : "position") ||
            !fill_rows(r, panel, prefixes, a, g, rows, shown, n)) {
        return NULL;
    }
    set_rules(g, panel, rows, shown, n, prefixes, a);
    g->title = table_title(r, prefixes, contexts, a);
    if (every > 1) {
        g->note = "Not all buckets are shown; see buckets.csv or report.json.";
    }
    return g->title != NULL ? g : NULL;
}

static struct table * make_extrapolation(const struct report_panel * panel, struct arena * a) {
    int  most = 0; // doublings of the trained length
    bool any  = false;
    for (int i = 0; i < panel->n; ++i) {
        const struct extrapolation * e = &panel->runs[i]->summary.extrapolation;
        any |= e->inside >= 0;
        while (e->n > 0 && e->factor[e->n - 1] > 1 << most) {
            most++;
        }
    }
    if (!any) {
        return NULL;
    }
    struct table * g  = table_new(a, most + 4, panel->n + 1);
    bool           ok = g != NULL && set_models(a, g, panel, "nats per token") &&
              table_set(a, g, 1, 0, "trained length T") &&
              table_set(a, g, 2, 0, "last bucket inside T") &&
              table_set(a, g, most + 3, 0, "degrades from");
    for (int k = 0; k < most && ok; ++k) {
        ok = table_set(a, g, k + 3, 0, "%d T, minus that", 2 << k);
    }
    for (int i = 0; i < panel->n && ok; ++i) {
        const struct summary *       s = &panel->runs[i]->summary;
        const struct extrapolation * e = &s->extrapolation;
        char                         buf[32];
        ok = table_set(a, g, 1, i + 1, "%s",
                e->trained_length > 0 ? report_count(e->trained_length, buf) : "unknown");
        if (e->inside >= 0 && ok) {
            ok = set_loss(a, g, 2, i + 1, &s->buckets.at[e->inside], LOSS_NATS, "");
            for (int k = 0; k < e->n && ok; ++k) {
                int row = 0;
                while ((2 << row) < e->factor[k]) {
                    row++;
                }
                ok = set_difference(a, g, row + 3, i + 1, &e->difference[k]);
            }
        }
        ok = ok &&
             table_set(a, g, most + 3, i + 1, "%s",
                     e->degrades >= 0 ? report_count(s->buckets.at[e->degrades].range.from, buf)
                                      : "nowhere");
    }
    if (g != NULL) {
        g->title = "Beyond the trained length";
        g->note =
                "Differences are paired by window, with 95 % intervals. \"Degrades from\" is the "
                "first "
                "bucket whose loss minus that of the best earlier bucket has an interval above the "
                "tolerance.";
    }
    return ok ? g : NULL;
}

//
// Comparison with the baseline
//

static bool set_paired(struct arena * a, struct table * g, int row, const char * name,
        const char * where, const struct paired * p, bool nats) {
    const double value = stats_p_value(&p->difference);
    bool         ok = table_set(a, g, row, 0, "%s", name) && table_set(a, g, row, 1, "%s", where) &&
              set_difference(a, g, row, 2, &p->difference) &&
              table_set(a, g, row, 4, "%" PRId64 " of %" PRId64, p->won, p->difference.n);
    if (nats) {
        ok = ok && table_set(a, g, row, 3, "%.4f", exp(p->difference.value));
    }
    return ok && (!isfinite(value) || table_set_p_value(a, g, row, 5, value));
}

static struct table * make_comparisons(const struct report_panel * panel, struct arena * a) {
    static const char * const HEAD[] = { "model", "targets", "difference", "ratio of ppl",
        "windows won", "p" };
    enum { N_COLS = sizeof(HEAD) / sizeof(HEAD[0]) };
    struct table * g     = table_new(a, 2 * panel->n, N_COLS);
    char *         title = arena_alloc(a, strlen(panel->runs[panel->baseline]->name) + 64);
    char *         note  = arena_alloc(a, 512);
    int            row = 1, n_buckets = 0;
    bool           ok = g != NULL && title != NULL && note != NULL;

    for (int c = 0; c < N_COLS && ok; ++c) {
        ok = table_set(a, g, 0, c, "%s", HEAD[c]);
    }
    for (int i = 0; i < panel->n && ok; ++i) {
        const struct comparison *      c    = &panel->comparisons[i];
        const struct byte_comparison * b    = &panel->bytes[i];
        const char *                   name = panel->runs[i]->name;
        if (c->base != NULL) {
            char where[64], buf[32];
            snprintf(where, sizeof(where), "beyond %s", report_count(c->trained_length, buf));
            n_buckets = c->n_buckets;
            ok        = set_paired(a, g, row++, name, "all, nats", &c->all, true);
            if (ok && c->beyond.difference.n > 0) {
                ok = set_paired(a, g, row++, name, where, &c->beyond, true);
            }
        } else if (b->bytes > 0) {
            ok = set_paired(a, g, row++, name, "all, bits per byte", &b->all, false);
            if (ok && b->beyond.difference.n > 0) {
                ok = set_paired(a, g, row++, name, "beyond both lengths", &b->beyond, false);
            }
        } else if (i != panel->baseline) {
            ok = table_set(a, g, row, 0, "%s", name) &&
                 table_set(a, g, row, 1, "not comparable: %s",
                         panel->refused[i] != NULL ? panel->refused[i] : "");
            row++;
        }
    }
    if (!ok || row == 1) {
        return NULL;
    }
    sprintf(title, "Difference from %s, paired by window", panel->runs[panel->baseline]->name);
    snprintf(note, 512,
            "Negative values are better. p is from Student's t on window differences. Rely on the "
            "row "
            "beyond the trained length: of %d buckets, one in 20 seems to differ by chance.",
            n_buckets);
    g->n_rows = row;
    g->left   = true;
    g->title  = title;
    g->note   = note;
    return g;
}

//
// Sources
//

static struct table * make_composition(const struct report_panel * panel, struct arena * a) {
    const struct summary * s = &panel->runs[0]->summary;
    if (s->n_sources == 0 || s->buckets.n == 0) {
        return NULL;
    }
    const int      every = (s->buckets.n + MAX_ROWS / 4 - 1) / (MAX_ROWS / 4);
    const int      n     = s->n_sources + 1;
    struct table * g     = table_new(a, (s->buckets.n + every - 1) / every + 1, n + 1);
    const char *   p     = s->meta.sources;
    bool           ok    = g != NULL && table_set(a, g, 0, 0, "position");

    for (int k = 0; k < n && ok; ++k) {
        const size_t length = strcspn(p, "\t");
        const bool   named  = k < s->n_sources;
        ok = table_set(a, g, 0, k + 1, "%.*s", named ? (int) length : 4, named ? p : "none");
        p += length + (p[length] == '\t');
    }
    int row = 1;
    for (int b = 0; b < s->buckets.n && ok; ++b) {
        if ((s->buckets.n - 1 - b) % every != 0) {
            continue;
        }
        int64_t total = 0;
        char    from[32], to[32];
        for (int k = 0; k < n; ++k) {
            total += s->composition[b * n + k];
        }
        ok = table_set(a, g, row, 0, "%s\xe2\x80\x93%s",
                report_count(s->buckets.at[b].range.from, from),
                report_count(s->buckets.at[b].range.to, to));
        for (int k = 0; k < n && ok; ++k) {
            ok = table_set(a, g, row, k + 1, "%.1f %%",
                    total > 0 ? 100.0 * (double) s->composition[b * n + k] / (double) total : 0.0);
        }
        row++;
    }
    if (!ok) {
        return NULL;
    }
    g->n_rows = row;
    g->title  = "Sources of the targets";
    g->note   = "If the shares change along the window, so may the loss.";
    return g;
}

//
// Norms of states
//

// One row per bucket in which a state of any model was measured.
static struct table * make_norms(const struct report_panel * panel, struct arena * a) {
    const struct losses * rows     = longest(panel, false);
    const bool            contexts = panel->runs[0]->summary.n_contexts > 0;
    struct table *        g        = table_new(a, rows->n + 1, panel->n + 1);
    bool ok  = g != NULL && set_models(a, g, panel, contexts ? "context" : "position");
    int  row = 1;
    for (int b = 0; b < rows->n && ok; ++b) {
        bool any = false;
        for (int i = 0; i < panel->n && ok; ++i) {
            const struct range_norm * norm = summary_norm(&panel->runs[i]->summary, b);
            if (norm != NULL) {
                any = true;
                ok  = table_set(a, g, row, i + 1, "%.4g / %.4g", norm->median, norm->most);
            }
        }
        if (any) {
            const struct position_range * range = &rows->at[b].range;
            char                          from[32], to[32];
            ok = ok &&
                 (contexts ? table_set(a, g, row, 0, "%s", report_count(range->from, from))
                           : table_set(a, g, row, 0, "%s\xe2\x80\x93%s",
                                     report_count(range->from, from), report_count(range->to, to)));
            row++;
        }
    }
    if (!ok || row == 1) {
        return NULL;
    }
    g->n_rows = row;
    g->title  = "Largest state norm: median / maximum over windows";
    g->note =
            "Frobenius norm, over layers and heads. An exploding state grows with the position; a "
            "useless one does not.";
    return g;
}

int report_make_tables(const struct report * r, const struct report_panel * panel, struct arena * a,
        struct table * tables[REPORT_MAX_TABLES]) {
    const struct summary * s  = &panel->runs[0]->summary;
    int                    n  = 0;
    bool                   ok = true;

    if (s->n_contexts == 0) {
        ok = (tables[n++] = make_lengths(r, panel, true, a)) != NULL;
    }
    ok = ok && (tables[n++] = make_lengths(r, panel, false, a)) != NULL;
    if (ok && (tables[n] = make_extrapolation(panel, a)) != NULL) {
        n++;
    }
    if (ok && panel->n > 1 && (tables[n] = make_comparisons(panel, a)) != NULL) {
        n++;
    }
    ok = ok && (tables[n++] = make_overview(panel, a)) != NULL;
    if (ok && (tables[n] = make_composition(panel, a)) != NULL) {
        n++;
    }
    if (ok && (tables[n] = make_norms(panel, a)) != NULL) {
        n++;
    }
    return ok ? n : -1;
}

const char * report_describe(const struct report_panel * panel, char * text, size_t size) {
    const struct score_meta * m = &panel->runs[0]->scores.meta;
    char                      w[32], n[32], d[32];
    snprintf(text, size,
            "protocol %s: %s, %s windows of %s tokens from %s documents, reset %s, bos %s, eos "
            "%s%s; "
            "template %s; data %.12s, tokenizer %.12s",
            m->protocol, m->mode, report_count(panel->runs[0]->scores.n_windows, n),
            report_count(m->window, w), report_count(m->documents, d), m->reset, m->bos, m->eos,
            m->skip_special ? ", special tokens skipped" : "", m->template, m->data_fingerprint,
            m->tokenizer_hash);
    return text;
}
