#include "eval/report/report-write.h"

#include "eval/report/report-columns.h"
#include "memory.h"

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
static void set_loss(struct table * g, int row, int col, const struct loss * l, enum loss_unit unit,
        const char * mark) {
    char text[160];
    report_loss(l, unit, text, sizeof(text));
    table_set(g, row, col, "%s%s", text, mark);
}

static void set_difference(struct table * g, int row, int col, const struct stats_estimate * e) {
    if (!isfinite(e->value)) {
        table_set(g, row, col, "-");
    } else if (e->method == STATS_NONE) {
        table_set(g, row, col, "%+.4f", e->value);
    } else {
        table_set(g, row, col, "%+.4f [%+.4f, %+.4f]", e->value, e->lo, e->hi);
    }
}

static void set_range(struct table * g, int row, const struct position_range * range) {
    char from[32], to[32];
    table_set(g, row, 0, "%s\xe2\x80\x93%s", report_count(range->from, from),
            report_count(range->to, to));
}

//
// Models side by side
//

static struct table * table_of_models(
        const struct report_panel * panel, struct arena * a, int max_rows, const char * corner) {
    struct table * g = table_new(a, max_rows, panel->n + 1);
    table_set(g, 0, 0, "%s", corner);
    for (int i = 0; i < panel->n; ++i) {
        table_set(g, 0, 1 + i, "%s", panel->runs[i]->label);
    }
    return g;
}

static struct table * make_overview(const struct report_panel * panel, struct arena * a) {
    const struct report_column * c;
    int                          n = 0;
    while (report_column_at(REPORT_TABLE_TOTAL, n) != NULL) {
        n++;
    }
    struct table * g = table_of_models(panel, a, n + 1, "over all targets");
    for (int row = 1; (c = report_column_at(REPORT_TABLE_TOTAL, row - 1)) != NULL; ++row) {
        table_set(g, row, 0, "%s", c->title);
        for (int i = 0; i < panel->n; ++i) {
            const struct report_run * run = panel->runs[i];
            const struct report_row   at = { .run = run, .loss = &run->summary.total.at[0] };
            char                      text[160];
            table_set(g, row, i + 1, "%s", report_column_show(c, &at, text, sizeof(text)));
        }
    }
    table_title(g, "Overall");
    table_note(
            g, "llama-perplexity's +/- treats tokens as independent; the intervals here do not.");
    return g;
}

// Finds the best run of a row, if its paired interval against every other run excludes zero.
struct judge {
    const struct report *       r;
    const struct report_panel * panel;
    bool                        prefixes; // otherwise buckets
    struct paired **            pairs;    // [n][n], made on demand
    bool *                      tried;
};

static const struct losses * losses_of(const struct report_run * run, bool prefixes) {
    return prefixes ? &run->summary.prefixes : &run->summary.buckets;
}

static const struct losses * judge_losses(const struct judge * j, int i) {
    return losses_of(j->panel->runs[i], j->prefixes);
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
                (best < 0 || loss_in(f, j->r->params.unit).value <
                                     loss_in(&judge_losses(j, best)->at[row], j->r->params.unit)
                                             .value)) {
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

// The run with the most rows.
static const struct losses * longest(const struct report_panel * panel, bool prefixes) {
    const struct losses * most = losses_of(panel->runs[0], prefixes);
    for (int i = 1; i < panel->n; ++i) {
        const struct losses * f = losses_of(panel->runs[i], prefixes);
        most = f->n > most->n ? f : most;
    }
    return most;
}

static int64_t row_end(const struct loss * f, bool prefixes, bool contexts) {
    return prefixes ? f->range.to + 1 : contexts ? f->range.from : f->range.to;
}

// Adds a line at each trained length.
static void set_rules(struct table * g, const struct report_panel * panel,
        const struct losses * rows, const int * shown, int n, bool prefixes) {
    for (int i = 0; i < panel->n; ++i) {
        const struct summary * s = &panel->runs[i]->summary;
        const int64_t          T = s->extrapolation.trained_length;
        int                    row = 0;
        char                   buf[32];
        while (row < n && row_end(&rows->at[shown[row]], prefixes, s->n_contexts > 0) <= T) {
            row++;
        }
        if (T > 0 && row > 0 && row < n) {
            table_rule(g, row + 1, "trained on %s", report_count(T, buf));
        }
    }
}

static void fill_rows(const struct report * r, const struct report_panel * panel, bool prefixes,
        struct table * g, const struct losses * rows, const int * shown, int n) {
    const bool   contexts = panel->runs[0]->summary.n_contexts > 0;
    const int    n_pairs = panel->n * panel->n;
    struct judge judge = { r, panel, prefixes,
        program_alloc((size_t) n_pairs, sizeof(struct paired *)),
        program_alloc((size_t) n_pairs, sizeof(bool)) };

    for (int k = 0; k < n; ++k) {
        const struct loss * at = &rows->at[shown[k]];
        const int           best = judge_row(&judge, shown[k]);
        char                end[32];
        if (prefixes || contexts) {
            table_set(g, k + 1, 0, "%s", report_count(row_end(at, prefixes, contexts), end));
        } else {
            set_range(g, k + 1, &at->range);
        }
        for (int i = 0; i < panel->n; ++i) {
            const struct losses * f = judge_losses(&judge, i);
            if (shown[k] < f->n) {
                set_loss(g, k + 1, i + 1, &f->at[shown[k]], r->params.unit,
                        best == i      ? " *"
                        : panel->n > 1 ? "  "
                                       : "");
            }
        }
    }
    for (int i = 0; i < n_pairs; ++i) {
        free(judge.pairs[i]);
    }
    free(judge.pairs);
    free(judge.tried);
}

static struct table * make_lengths(const struct report * r, const struct report_panel * panel,
        bool prefixes, struct arena * a) {
    const struct losses * rows = longest(panel, prefixes);
    const bool            contexts = panel->runs[0]->summary.n_contexts > 0;
    const int             every = (rows->n + MAX_ROWS - 1) / MAX_ROWS;
    int                   shown[MAX_ROWS + 1];
    int                   n = 0;

    for (int i = 0; i < rows->n; ++i) { // always with the last one
        if ((rows->n - 1 - i) % every == 0) {
            shown[n++] = i;
        }
    }
    struct table * g = table_of_models(panel, a, n + 1,
            prefixes   ? "L"
            : contexts ? "context"
                       : "position");
    fill_rows(r, panel, prefixes, g, rows, shown, n);
    set_rules(g, panel, rows, shown, n, prefixes);
    table_title(g, "%s: %s",
            prefixes   ? "The first L tokens"
            : contexts ? "Same targets after contexts of several lengths"
                       : "Buckets of positions",
            report_unit_name(r->params.unit));
    if (every > 1) {
        table_note(g, "Not all buckets are shown; see buckets.csv or report.json.");
    }
    return g;
}

static struct table * make_extrapolation(const struct report_panel * panel, struct arena * a) {
    int  most = 0; // doublings of the trained length
    bool any = false;
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
    struct table * g = table_of_models(panel, a, most + 4, "nats per token");
    table_set(g, 1, 0, "trained length T");
    table_set(g, 2, 0, "last bucket inside T");
    table_set(g, most + 3, 0, "degrades from");
    for (int k = 0; k < most; ++k) {
        table_set(g, k + 3, 0, "%d T, minus that", 2 << k);
    }
    for (int i = 0; i < panel->n; ++i) {
        const struct summary *       s = &panel->runs[i]->summary;
        const struct extrapolation * e = &s->extrapolation;
        char                         buf[32];
        table_set(g, 1, i + 1, "%s",
                e->trained_length > 0 ? report_count(e->trained_length, buf) : "unknown");
        if (e->inside >= 0) {
            set_loss(g, 2, i + 1, &s->buckets.at[e->inside], LOSS_NATS, "");
        }
        for (int k = 0; k < e->n && e->inside >= 0; ++k) {
            int row = 0;
            while ((2 << row) < e->factor[k]) {
                row++;
            }
            set_difference(g, row + 3, i + 1, &e->difference[k]);
        }
        table_set(g, most + 3, i + 1, "%s",
                e->degrades >= 0 ? report_count(s->buckets.at[e->degrades].range.from, buf)
                                 : "nowhere");
    }
    table_title(g, "Beyond the trained length");
    table_note(g,
            "Differences are paired by window, with 95 %% intervals. \"Degrades from\" is the "
            "first bucket whose loss minus that of the best earlier bucket has an interval above "
            "the tolerance.");
    return g;
}

//
// Comparison with the baseline
//

static void add_paired(struct table * g, const char * name, const char * where,
        const struct paired * p, bool nats) {
    const int row = g->n_rows;
    table_set(g, row, 0, "%s", name);
    table_set(g, row, 1, "%s", where);
    set_difference(g, row, 2, &p->difference);
    if (nats) {
        table_set(g, row, 3, "%.4f", exp(p->difference.value));
    }
    table_set(g, row, 4, "%" PRId64 " of %" PRId64, p->won, p->difference.n);
    table_set_p_value(g, row, 5, stats_p_value(&p->difference));
}

static struct table * make_comparisons(const struct report_panel * panel, struct arena * a) {
    static const char * const HEAD[] = { "model", "targets", "difference", "ratio of ppl",
        "windows won", "p" };
    struct table *            g = table_new(a, 2 * panel->n, sizeof(HEAD) / sizeof(HEAD[0]));
    int                       n_buckets = 0;

    table_head(g, HEAD);
    for (int i = 0; i < panel->n; ++i) {
        const struct report_run *      run = panel->runs[i];
        const struct comparison *      c = &run->comparison;
        const struct byte_comparison * b = &run->bytes;
        if (c->base != NULL) {
            char where[64], buf[32];
            snprintf(where, sizeof(where), "beyond %s", report_count(c->trained_length, buf));
            n_buckets = c->n_buckets;
            add_paired(g, run->name, "all, nats", &c->all, true);
            if (c->beyond.difference.n > 0) {
                add_paired(g, run->name, where, &c->beyond, true);
            }
        } else if (b->bytes > 0) {
            add_paired(g, run->name, "all, bits per byte", &b->all, false);
            if (b->beyond.difference.n > 0) {
                add_paired(g, run->name, "beyond both lengths", &b->beyond, false);
            }
        } else if (i != panel->baseline) {
            const int row = g->n_rows;
            table_set(g, row, 0, "%s", run->name);
            table_set(g, row, 1, "not comparable: %s", run->refused != NULL ? run->refused : "");
        }
    }
    if (g->n_rows == 1) {
        return NULL;
    }
    g->left = true;
    table_title(g, "Difference from %s, paired by window", panel->runs[panel->baseline]->name);
    table_note(g,
            "Negative values are better. p is from Student's t on window differences. Rely on the "
            "row beyond the trained length: of %d buckets, one in 20 seems to differ by chance.",
            n_buckets);
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
    const int      n = s->n_sources + 1;
    struct table * g = table_new(a, (s->buckets.n + every - 1) / every + 1, n + 1);
    const char *   p = s->meta.sources;

    table_set(g, 0, 0, "position");
    for (int k = 0; k < n; ++k) {
        const size_t length = strcspn(p, "\t");
        const bool   named = k < s->n_sources;
        table_set(g, 0, k + 1, "%.*s", named ? (int) length : 4, named ? p : "none");
        p += length + (p[length] == '\t');
    }
    for (int b = 0, row = 1; b < s->buckets.n; ++b) {
        if ((s->buckets.n - 1 - b) % every != 0) {
            continue;
        }
        int64_t total = 0;
        for (int k = 0; k < n; ++k) {
            total += s->composition[b * n + k];
        }
        set_range(g, row, &s->buckets.at[b].range);
        for (int k = 0; k < n; ++k) {
            table_set(g, row, k + 1, "%.1f %%",
                    total > 0 ? 100.0 * (double) s->composition[b * n + k] / (double) total : 0.0);
        }
        row++;
    }
    table_title(g, "Sources of the targets");
    table_note(g, "If the shares change along the window, so may the loss.");
    return g;
}

//
// Norms of states
//

// One row per bucket in which a state of any model was measured.
static struct table * make_norms(const struct report_panel * panel, struct arena * a) {
    const struct losses * rows = longest(panel, false);
    const bool            contexts = panel->runs[0]->summary.n_contexts > 0;
    struct table * g = table_of_models(panel, a, rows->n + 1, contexts ? "context" : "position");
    int            row = 1;
    for (int b = 0; b < rows->n; ++b) {
        bool any = false;
        for (int i = 0; i < panel->n; ++i) {
            const struct range_norm * norm = summary_norm(&panel->runs[i]->summary, b);
            if (norm != NULL) {
                any = true;
                table_set(g, row, i + 1, "%.4g / %.4g", norm->median, norm->most);
            }
        }
        if (any && contexts) {
            char from[32];
            table_set(g, row, 0, "%s", report_count(rows->at[b].range.from, from));
        } else if (any) {
            set_range(g, row, &rows->at[b].range);
        }
        row += any;
    }
    table_title(g, "Largest state norm: median / maximum over windows");
    table_note(g, "Frobenius norm, over layers and heads. An exploding state grows with the "
                  "position; a useless one does not.");
    return row > 1 ? g : NULL;
}

int report_make_tables(const struct report * r, const struct report_panel * panel, struct arena * a,
        struct table * tables[REPORT_MAX_TABLES]) {
    const bool           contexts = panel->runs[0]->summary.n_contexts > 0;
    struct table * const made[] = {
        contexts ? NULL : make_lengths(r, panel, true, a),
        make_lengths(r, panel, false, a),
        make_extrapolation(panel, a),
        panel->n > 1 ? make_comparisons(panel, a) : NULL,
        make_overview(panel, a),
        make_composition(panel, a),
        make_norms(panel, a),
    };
    int n = 0;
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); ++i) {
        if (made[i] != NULL) {
            tables[n++] = made[i];
        }
    }
    return n;
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
