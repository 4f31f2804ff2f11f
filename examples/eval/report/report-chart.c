// The chart of a panel: the curves of its models, and below them the differences from the baseline.

#include "eval/report/report-write.h"

#include "base/arena.h"
#include "chart/chart.h"
#include "eval/report/report-columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double CURVE_HEIGHT = 260.0;
static const double DIFFERENCE_HEIGHT = 150.0;
static const double MAX_DIFFERENCE =
        1.5; // nats, a factor of 4.5 in perplexity; the axis is cut here

enum { N_PANELS = 2 };

struct panel_chart {
    struct arena *     arena;
    struct chart_panel panels[N_PANELS];
    struct chart_stack stack;
};

static double center(
        const struct report * r, const struct summary * s, const struct position_range * range) {
    if (s->n_contexts > 0) {
        return (double) range->from;
    }
    return r->params.log2_x ? sqrt((double) range->from * (double) range->to)
                            : 0.5 * ((double) range->from + (double) range->to);
}

// A series with the x values of a run's curve. Returns its values [4][n]: x, y, lo, hi; NULL: out
// of memory.
static double * make_series(struct arena * arena, const struct report * r,
        const struct report_run * run, struct chart_series * s) {
    const struct losses * l = &run->summary.curve;
    const int             n = l->n;
    double *              v = arena_alloc(arena, (4 * (size_t) n + 1) * sizeof(double));
    if (v != NULL) {
        *s = (struct chart_series) { .name = run->name,
            .label = run->label,
            .color = run->color,
            .dash = run->dash,
            .n = n,
            .x = v,
            .y = v + n,
            .lo = v + 2 * n,
            .hi = v + 3 * n };
        for (int i = 0; i < n; ++i) {
            v[i] = center(r, &run->summary, &l->at[i].range);
        }
    }
    return v;
}

static bool make_curve(struct arena * arena, const struct report * r, const struct report_run * run,
        struct chart_series * s) {
    const struct losses * l = &run->summary.curve;
    double *              v = make_series(arena, r, run, s);
    for (int i = 0; i < l->n && v != NULL; ++i) {
        v[l->n + i] = loss_value(&l->at[i], r->params.unit);
        v[2 * l->n + i] = loss_lo(&l->at[i], r->params.unit);
        v[3 * l->n + i] = loss_hi(&l->at[i], r->params.unit);
    }
    return v != NULL;
}

static bool make_difference(struct arena * arena, const struct report * r,
        const struct report_run * run, const struct paired * pairs, struct chart_series * s) {
    const int n = run->summary.curve.n;
    double *  v = make_series(arena, r, run, s);
    for (int i = 0; i < n && v != NULL; ++i) {
        v[n + i] = pairs[i].difference.value;
        v[2 * n + i] = pairs[i].difference.lo;
        v[3 * n + i] = pairs[i].difference.hi;
    }
    return v != NULL;
}

// One dashed line per trained length.
static bool make_marks(
        struct arena * arena, const struct report_panel * panel, struct chart_panel * p) {
    struct chart_mark * marks = arena_alloc(arena, ((size_t) panel->n + 1) * sizeof(*marks));
    int                 n = 0;
    for (int i = 0; i < panel->n && marks != NULL; ++i) {
        const double T = (double) panel->runs[i]->summary.extrapolation.trained_length;
        int          k = 0;
        while (k < n && marks[k].x < T) {
            k++;
        }
        if (T > 0.0 && (k == n || marks[k].x != T)) {
            char   power[16];
            char * label = arena_alloc(arena, 64);
            if (label == NULL) {
                return false;
            }
            snprintf(label, 64, "trained on %s", chart_power(T, power));
            memmove(&marks[k + 1], &marks[k], (size_t) (n - k) * sizeof(*marks));
            marks[k] = (struct chart_mark) { T, label };
            n++;
        }
    }
    p->marks = marks;
    p->n_marks = n;
    return marks != NULL;
}

// A diverged model would flatten the others, so the axis ends at four times the largest of the
// models' best values (in nats: ln 4 above it).
static double cut_at(const struct chart_series * series, int n, enum loss_unit unit) {
    double reference = -INFINITY;
    for (int i = 0; i < n; ++i) {
        double best = INFINITY;
        for (int k = 0; k < series[i].n; ++k) {
            best = series[i].y[k] < best ? series[i].y[k] : best;
        }
        reference = isfinite(best) && best > reference ? best : reference;
    }
    return !isfinite(reference) ? 0.0 : unit == LOSS_NATS ? reference + log(4.0) : 4.0 * reference;
}

static bool make_note(struct arena * arena, const struct report_panel * panel,
        const struct chart_series * series, double y_max, const char ** note) {
    enum { MAX_LINES = 4 };
    char               text[2048] = "", names[512] = "";
    struct name_series beyond = { .text = names, .size = sizeof(names) };
    size_t             n = 0;
    int                n_diverged = 0;
    for (int i = 0; i < panel->n; ++i) {
        bool is_beyond = false;
        for (int k = 0; k < series[i].n; ++k) {
            is_beyond |= y_max > 0.0 && series[i].y[k] > y_max;
        }
        if (is_beyond) {
            name_series_add(&beyond, panel->runs[i]->label);
        }
    }
    name_series_end(&beyond);
    if (beyond.n_shown > 0) {
        n += (size_t) snprintf(text, sizeof(text), "The axis is cut: %s exceed%s it.", names,
                beyond.n_shown == 1 ? "s" : "");
    }
    for (int i = 0; i < panel->n; ++i) {
        const struct summary * s = &panel->runs[i]->summary;
        if (s->n_diverged > 0 && n_diverged++ < MAX_LINES) {
            n += (size_t) snprintf(text + n, sizeof(text) - n,
                    "%s%s: %" PRId64 " of %" PRId64
                    " windows have non-finite losses and are excluded from there on.",
                    n > 0 ? "\n" : "", panel->runs[i]->label, s->n_diverged, s->n_windows);
        }
    }
    if (n_diverged > MAX_LINES) {
        snprintf(text + n, sizeof(text) - n, "\nThe same applies to %d more.",
                n_diverged - MAX_LINES);
    }
    char * copy = arena_alloc(arena, strlen(text) + 1);
    if (copy != NULL) {
        *note = strcpy(copy, text);
    }
    return copy != NULL;
}

static bool make_top(
        struct panel_chart * p, const struct report * r, const struct report_panel * panel) {
    struct chart_series * curves = arena_alloc(p->arena, ((size_t) panel->n + 1) * sizeof(*curves));
    double                x_lo = INFINITY, x_hi = 2.0;

    if (curves == NULL) {
        return false;
    }
    for (int i = 0; i < panel->n; ++i) {
        const struct losses * f = &panel->runs[i]->summary.curve;
        if (!make_curve(p->arena, r, panel->runs[i], &curves[i])) {
            return false;
        }
        if (f->n > 0) {
            x_lo = fmin(
                    x_lo, r->params.log2_x ? fmax(1.0, (double) f->at[0].range.from - 1.0) : 0.0);
        }
        x_hi = fmax(x_hi, (double) panel->runs[i]->summary.length + 1.0);
    }
    const bool           contexts = panel->runs[0]->summary.n_contexts > 0;
    struct chart_panel * top = &p->panels[0];
    *top = (struct chart_panel) {
        .title = panel->title,
        .x_label = contexts ? "context before the targets (tokens)"
                            : "position in the window (tokens seen)",
        .y_label = report_unit_name(r->params.unit),
        .x_scale = r->params.log2_x ? CHART_LOG2 : CHART_LINEAR,
        .x_lo = isfinite(x_lo) ? x_lo : 1.0,
        .x_hi = x_hi,
        .y_max = cut_at(curves, panel->n, r->params.unit),
        .height = CURVE_HEIGHT,
        .series = curves,
        .n_series = panel->n,
    };
    return make_marks(p->arena, panel, top) &&
           make_note(p->arena, panel, curves, top->y_max, &top->note);
}

static bool make_bottom(
        struct panel_chart * p, const struct report * r, const struct report_panel * panel) {
    const struct report_run * base = panel->runs[panel->baseline];
    struct chart_panel *      top = &p->panels[0];
    struct chart_series * series = arena_alloc(p->arena, ((size_t) panel->n + 1) * sizeof(*series));
    struct chart_mark * marks = arena_alloc(p->arena, ((size_t) top->n_marks + 1) * sizeof(*marks));
    char *              title = arena_alloc(p->arena, strlen(base->label) + 64);
    int                 n = 0;
    bool                ok = series != NULL && marks != NULL && title != NULL;

    for (int i = 0; i < panel->n && ok; ++i) {
        struct paired * pairs = i == panel->baseline
                                        ? NULL
                                        : report_pair(r, base, &base->summary.curve, panel->runs[i],
                                                  &panel->runs[i]->summary.curve);
        ok = pairs == NULL || make_difference(p->arena, r, panel->runs[i], pairs, &series[n]);
        n += pairs != NULL;
        free(pairs);
    }
    if (!ok || n == 0) {
        return ok;
    }
    for (int k = 0; k < top->n_marks; ++k) { // labeled above
        marks[k].x = top->marks[k].x;
    }
    sprintf(title, "difference from %s; below 0: better", base->label);
    p->panels[1] = *top;
    p->panels[1].title = title;
    p->panels[1].y_label = r->params.unit == LOSS_BPB ? "bits per byte" : "nats per token";
    p->panels[1].zero = base->name;
    p->panels[1].zero_label = base->label;
    p->panels[1].y_min = -MAX_DIFFERENCE;
    p->panels[1].y_max = MAX_DIFFERENCE;
    p->panels[1].height = DIFFERENCE_HEIGHT;
    p->panels[1].note = NULL;
    p->panels[1].series = series;
    p->panels[1].n_series = n;
    p->panels[1].marks = marks;
    p->stack.n_panels = 2;
    top->x_label = NULL; // below the lower panel
    return true;
}

static bool make_panels(
        struct panel_chart * p, const struct report * r, const struct report_panel * panel) {
    p->stack = (struct chart_stack) { p->panels, 1 };
    return make_top(p, r, panel) && make_bottom(p, r, panel);
}

static void panel_chart_free(struct panel_chart * p) {
    if (p != NULL) {
        arena_free(p->arena);
        free(p);
    }
}

static struct panel_chart * panel_chart_new(
        const struct report * r, const struct report_panel * panel) {
    struct panel_chart * p = calloc(1, sizeof(*p));
    if (p != NULL) {
        p->arena = arena_new();
        if (p->arena == NULL || !make_panels(p, r, panel)) {
            panel_chart_free(p);
            return NULL;
        }
    }
    return p;
}

static const char * title(enum loss_unit unit) {
    return unit == LOSS_PPL    ? "Perplexity by position"
           : unit == LOSS_NATS ? "Loss by position"
                               : "Bits per byte by position";
}

const char * report_subtitle(const struct report * r, char * text, size_t size) {
    const struct report_run * run = &r->runs[0];
    char                      how[160];
    if (run->summary.n_contexts > 0) {
        snprintf(how, sizeof(how), "Lines: same targets after contexts of several lengths.");
    } else if (r->params.smooth > 0) {
        snprintf(how, sizeof(how), "Lines: moving average over %" PRId64 " positions.",
                r->params.smooth);
    } else if (r->params.log2_x) {
        snprintf(how, sizeof(how), "Lines: mean over quarters of an octave of positions.");
    } else {
        snprintf(how, sizeof(how), "Lines: mean over buckets of positions.");
    }
    snprintf(text, size, "%s Bands: 95 %% intervals over windows, clipped at the frame.%s", how,
            report_is_crowded(r) ? "" : " Dashed: quantized.");
    return text;
}

bool report_write_chart(const struct report * r, int first, int n, bool is_file, FILE * out) {
    struct panel_chart ** charts = calloc((size_t) n + 1, sizeof(*charts));
    struct chart_stack *  stacks = calloc((size_t) n + 1, sizeof(*stacks));
    char                  text[256];
    int                   made = 0;
    bool                  ok = charts != NULL && stacks != NULL;

    while (ok && made < n) {
        charts[made] = panel_chart_new(r, &r->panels[first + made]);
        ok = charts[made] != NULL;
        if (ok) {
            if (!is_file) { // a heading of the page
                charts[made]->panels[0].title = NULL;
            }
            stacks[made] = charts[made]->stack;
            made++;
        }
    }
    const struct chart chart = {
        .title = is_file ? title(r->params.unit) : NULL,
        .subtitle = is_file ? report_subtitle(r, text, sizeof(text)) : NULL,
        .stacks = stacks,
        .n_stacks = n,
        .n_across = 2,
        .panel_width = is_file ? 430.0 : 600.0,
    };
    ok = ok && (is_file ? chart_write_svg(&chart, out) : chart_write_element(&chart, out));
    for (int i = 0; i < made; ++i) {
        panel_chart_free(charts[i]);
    }
    free(charts);
    free(stacks);
    return ok;
}

bool report_write_svg(const struct report * r, FILE * out) {
    return report_write_chart(r, 0, r->n_panels, true, out);
}
