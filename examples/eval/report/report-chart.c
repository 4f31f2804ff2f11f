// The chart of a panel: the curves of its models, and below them the differences from the baseline.

#include "eval/report/report-write.h"

#include "base/arena.h"
#include "chart/chart.h"
#include "eval/report/report-columns.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double CURVE_HEIGHT = 260.0;
static const double DIFFERENCE_HEIGHT = 150.0;
static const double MAX_DIFFERENCE =
        1.5; // nats, a factor of 4.5 in perplexity; the axis is cut here

// A panel of the report: the curves and, if there are several, the differences.
struct panel_chart {
    struct chart_panel panels[2];
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

// The curve of a run.
// - pairs: instead of it, the differences from the baseline; NULL: none
static struct chart_series make_series(struct arena * arena, const struct report * r,
        const struct report_run * run, const struct paired * pairs) {
    const struct losses * l = &run->summary.curve;
    const int             n = l->n;
    double *              x = program_alloc_in(arena, 4 * (size_t) n, sizeof(*x));
    double *              y = x + n, *lo = y + n, *hi = lo + n;
    for (int i = 0; i < n; ++i) {
        const struct loss_in_unit     loss = loss_in(&l->at[i], r->params.unit);
        const struct stats_estimate * d = pairs != NULL ? &pairs[i].difference : NULL;
        x[i] = center(r, &run->summary, &l->at[i].range);
        y[i] = d != NULL ? d->value : loss.value;
        lo[i] = d != NULL ? d->lo : loss.lo;
        hi[i] = d != NULL ? d->hi : loss.hi;
    }
    return (struct chart_series) { .name = run->name,
        .label = run->label,
        .color = run->color,
        .dash = run->dash,
        .n = n,
        .x = x,
        .y = y,
        .lo = lo,
        .hi = hi };
}

// One dashed line per trained length.
static void make_marks(
        struct arena * arena, const struct report_panel * panel, struct chart_panel * p) {
    struct chart_mark * marks = program_alloc_in(arena, (size_t) panel->n + 1, sizeof(*marks));
    int                 n = 0;
    for (int i = 0; i < panel->n; ++i) {
        const double T = (double) panel->runs[i]->summary.extrapolation.trained_length;
        int          k = 0;
        while (k < n && marks[k].x < T) {
            k++;
        }
        if (T > 0.0 && (k == n || marks[k].x != T)) {
            char power[16];
            memmove(&marks[k + 1], &marks[k], (size_t) (n - k) * sizeof(*marks));
            marks[k] = (struct chart_mark) { T,
                program_print_in(arena, "trained on %s", chart_power(T, power)) };
            n++;
        }
    }
    p->marks = marks;
    p->n_marks = n;
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

static const char * make_note(struct arena * arena, const struct report_panel * panel,
        const struct chart_series * series, double y_max) {
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
    return program_print_in(arena, "%s", text);
}

static void make_top(struct panel_chart * p, const struct report * r,
        const struct report_panel * panel, struct arena * arena) {
    struct chart_series * curves = program_alloc_in(arena, (size_t) panel->n, sizeof(*curves));
    double                x_lo = INFINITY, x_hi = 2.0;
    for (int i = 0; i < panel->n; ++i) {
        const struct losses * f = &panel->runs[i]->summary.curve;
        curves[i] = make_series(arena, r, panel->runs[i], NULL);
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
    make_marks(arena, panel, top);
    top->note = make_note(arena, panel, curves, top->y_max);
}

static void make_bottom(struct panel_chart * p, const struct report * r,
        const struct report_panel * panel, struct arena * arena) {
    const struct report_run * base = panel->runs[panel->baseline];
    struct chart_panel *      top = &p->panels[0];
    struct chart_series *     series = program_alloc_in(arena, (size_t) panel->n, sizeof(*series));
    struct chart_mark * marks = program_alloc_in(arena, (size_t) top->n_marks, sizeof(*marks));
    int                 n = 0;

    for (int i = 0; i < panel->n; ++i) {
        struct paired * pairs = i == panel->baseline
                                        ? NULL
                                        : report_pair(r, base, &base->summary.curve, panel->runs[i],
                                                  &panel->runs[i]->summary.curve);
        if (pairs != NULL) {
            series[n++] = make_series(arena, r, panel->runs[i], pairs);
        }
        free(pairs);
    }
    p->stack = (struct chart_stack) { p->panels, n > 0 ? 2 : 1 };
    if (n == 0) {
        return;
    }
    for (int k = 0; k < top->n_marks; ++k) { // labeled above
        marks[k].x = top->marks[k].x;
    }
    p->panels[1] = (struct chart_panel) {
        .title = program_print_in(arena, "difference from %s; below 0: better", base->label),
        .x_label = top->x_label,
        .y_label = r->params.unit == LOSS_BPB ? "bits per byte" : "nats per token",
        .zero = base->name,
        .zero_label = base->label,
        .x_scale = top->x_scale,
        .x_lo = top->x_lo,
        .x_hi = top->x_hi,
        .y_min = -MAX_DIFFERENCE,
        .y_max = MAX_DIFFERENCE,
        .height = DIFFERENCE_HEIGHT,
        .series = series,
        .n_series = n,
        .marks = marks,
        .n_marks = top->n_marks,
    };
    top->x_label = NULL; // below the lower panel
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

void report_write_chart(const struct report * r, int first, int n, bool is_file, FILE * out) {
    struct arena *       arena = program_arena();
    struct panel_chart * charts = program_alloc_in(arena, (size_t) n, sizeof(*charts));
    struct chart_stack * stacks = program_alloc_in(arena, (size_t) n, sizeof(*stacks));
    char                 text[256];
    for (int i = 0; i < n; ++i) {
        make_top(&charts[i], r, &r->panels[first + i], arena);
        make_bottom(&charts[i], r, &r->panels[first + i], arena);
        if (!is_file) { // a heading of the page
            charts[i].panels[0].title = NULL;
        }
        stacks[i] = charts[i].stack;
    }
    const struct chart chart = {
        .title = is_file ? title(r->params.unit) : NULL,
        .subtitle = is_file ? report_subtitle(r, text, sizeof(text)) : NULL,
        .stacks = stacks,
        .n_stacks = n,
        .n_across = 2,
        .panel_width = is_file ? 430.0 : 600.0,
    };
    chart_write(&chart, is_file, out);
    arena_free(arena);
}

void report_write_svg(const struct report * r, FILE * out) {
    report_write_chart(r, 0, r->n_panels, true, out);
}
