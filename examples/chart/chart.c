#include "chart/chart.h"

#include "chart/chart-impl.h"
#include "chart/markup.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

//
// Style, with classes instead of CSS variables, which not all SVG viewers support.
//

// The palette of Okabe and Ito for all kinds of color vision, without its yellow, which is too
// faint on paper; for dark screens the same hues, lighter.
static const char * const COLORS_LIGHT[CHART_COLORS] = { "#0072b2", "#d55e00", "#009e73", "#a8558a",
    "#3a9bd8", "#b87a00", "#555555" };
static const char * const COLORS_DARK[CHART_COLORS] = { "#5ab4ef", "#ff8a3d", "#2fd0a3", "#e39cc6",
    "#9ad4fb", "#f5b942", "#bbbbbb" };

static void write_theme(FILE * out, const char * const * colors, const char * paper,
        const char * ink, const char * faint, const char * grid) {
    fprintf(out,
            ".lc-paper{fill:%s}.lc-ink{fill:%s}.lc-faint{fill:%s}.lc-grid{stroke:%s}.lc-axis{strok"
            "e:%s}.lc-mark{stroke:%s}.lc-halo{stroke:%s}\n",
            paper, ink, faint, grid, faint, ink, paper);
    for (int i = 0; i < CHART_COLORS; ++i) {
        fprintf(out, ".lc-s%d{stroke:%s}.lc-f%d{fill:%s}\n", i, colors[i], i, colors[i]);
    }
}

void chart_write_style(FILE * out) {
    fputs(".lc{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
          "Sans',Arial,sans-serif;font-size:12px}\n"
          ".lc text{font-variant-numeric:tabular-nums}\n"
          ".lc-title{font-size:17px;font-weight:600}.lc-head{font-size:13.5px;font-weight:600}.lc-"
          "small{font-size:11px}\n"
          ".lc-line{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:butt}.lc-steps"
          "{opacity:.3}\n"
          ".lc-thin{fill:none;stroke-width:1}.lc-halo{stroke-width:3;stroke-linejoin:round;paint-o"
          "rder:stroke}\n",
            out);
    write_theme(out, COLORS_LIGHT, "#ffffff", "#1b1b1b", "#5b5b5b", "#e3e3e3");
    fputs("@media (prefers-color-scheme:dark){\n", out);
    write_theme(out, COLORS_DARK, "#15171a", "#eceef0", "#a3a8ae", "#30343a");
    fputs("}\n@media print{\n", out); // paper is white
    write_theme(out, COLORS_LIGHT, "#ffffff", "#1b1b1b", "#5b5b5b", "#e3e3e3");
    fputs("}\n", out);
}

static const char * const DASHES[CHART_DASHES] = { NULL, "7 3", "2.5 2.5", "9 3 2 3", "14 3",
    "9 3 2 3 2 3", "5 5", "14 3 5 3" };

//
// Axes
//

const char * chart_power(double x, char buf[16]) {
    const char * suffix = "";
    if (x >= 1024.0 * 1024.0) {
        x /= 1024.0 * 1024.0;
        suffix = "M";
    } else if (x >= 1024.0) {
        x /= 1024.0;
        suffix = "k";
    }
    snprintf(buf, 16, "%.4g%s", x, suffix);
    return buf;
}

double axis_coordinate(const struct axis * a, double value) {
    const bool   is_log = a->scale == CHART_LOG2;
    const double v = is_log ? log2(value) : value;
    const double lo = is_log ? log2(a->lo) : a->lo;
    const double hi = is_log ? log2(a->hi) : a->hi;
    return a->from + (v - lo) / (hi - lo) * (a->to - a->from);
}

// 1, 2 or 5 times a power of ten, for about n steps.
static double nice_step(double span, int n) {
    const double raw = span / n;
    const double power = pow(10.0, floor(log10(raw)));
    const double m = raw / power;
    return power * (m <= 1.0 ? 1.0 : m <= 2.0 ? 2.0 : m <= 5.0 ? 5.0 : 10.0);
}

static void extend(double * lo, double * hi, double v) {
    if (isfinite(v)) {
        *lo = v < *lo ? v : *lo;
        *hi = v > *hi ? v : *hi;
    }
}

void axis_x(const struct chart_panel * p, struct axis * a) {
    double lo = INFINITY, hi = -INFINITY;
    if (p->x_lo != 0.0 || p->x_hi != 0.0) {
        lo = p->x_lo;
        hi = p->x_hi;
    } else {
        for (int i = 0; i < p->n_series; ++i) {
            const struct chart_series * s = &p->series[i];
            for (int k = 0; k < s->n + (s->kind == CHART_STEPS); ++k) {
                extend(&lo, &hi, s->x[k]);
            }
        }
    }
    if (!(lo < hi)) {
        lo = isfinite(lo) ? (p->x_scale == CHART_LOG2 ? lo / 2.0 : lo - 1.0) : 1.0;
        hi = isfinite(hi) ? (p->x_scale == CHART_LOG2 ? hi * 2.0 : hi + 1.0) : 2.0;
    }
    a->scale = p->x_scale;
    a->lo = lo;
    a->hi = hi;
}

// Spans the lines. Bands widen it by at most half, so that one uncertain point does not flatten the
// rest. Only lines cause a cut.
void axis_y(const struct chart_panel * p, struct axis * a) {
    double lo = INFINITY, hi = -INFINITY, band_lo = INFINITY, band_hi = -INFINITY;
    if (p->zero != NULL) {
        extend(&lo, &hi, 0.0);
    }
    for (int i = 0; i < p->n_series; ++i) {
        const struct chart_series * s = &p->series[i];
        if (s->kind == CHART_STEPS) {
            extend(&lo, &hi, 0.0);
        }
        for (int k = 0; k < s->n; ++k) {
            extend(&lo, &hi, s->y[k]);
            if (s->lo != NULL && isfinite(s->y[k])) {
                extend(&band_lo, &band_hi, s->lo[k]);
                extend(&band_lo, &band_hi, s->hi[k]);
            }
        }
    }
    if (!(lo <= hi)) {
        lo = 0.0;
        hi = 1.0;
    }
    if (hi - lo < 1e-9 * (fabs(lo) + fabs(hi)) || hi == lo) { // all equal
        const double half = hi == 0.0 ? 0.01 : 0.05 * fabs(hi);
        lo -= half;
        hi += half;
    }
    const double room = 0.5 * (hi - lo);
    const bool   may_cut = p->y_min != 0.0 || p->y_max != 0.0;
    a->cut_lo = may_cut && lo < p->y_min;
    a->cut_hi = may_cut && hi > p->y_max;
    lo = a->cut_lo ? p->y_min : band_lo < lo ? fmax(band_lo, lo - room) : lo;
    hi = a->cut_hi ? p->y_max : band_hi > hi ? fmin(band_hi, hi + room) : hi;

    a->scale = CHART_LINEAR;
    a->step = nice_step(hi - lo, panel_axes_height(p) > 200.0 ? 6 : 4);
    a->lo = a->cut_lo ? lo : floor(lo / a->step + 1e-9) * a->step;
    a->hi = a->cut_hi ? hi : ceil(hi / a->step - 1e-9) * a->step;
}

//
// Layout
//

// The length of the next line of a text: up to '\n', or as many words as fit. *skip: characters
// between it and the following line.
static size_t next_line(const char * text, double width, size_t * skip) {
    const size_t whole = strcspn(text, "\n");
    const size_t most =
            (size_t) (width / CHART_CHAR_WIDTH); // bytes, at least as many as characters
    size_t n = whole;
    if (whole > most) {
        n = most;
        while (n > 0 && text[n] != ' ') {
            n--;
        }
        n = n > 0 ? n : strcspn(text, " \n"); // a long word is not broken
    }
    *skip = text[n] != '\0';
    return n;
}

int chart_lines(const char * text, double width) {
    int    lines = 0;
    size_t skip;
    for (const char * p = text; p != NULL && *p != '\0'; ++lines) {
        p += next_line(p, width, &skip);
        p += skip;
    }
    return lines;
}

void chart_write_lines(
        FILE * out, const char * text, double width, double x, double y, const char * class) {
    size_t skip;
    for (const char * p = text; p != NULL && *p != '\0'; y += CHART_LINE_HEIGHT) {
        char         line[1024];
        const size_t n = next_line(p, width, &skip);
        snprintf(line, sizeof(line), "%.*s", (int) n, p);
        fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
        markup_text(out, line);
        fputs("</text>\n", out);
        p += n + skip;
    }
}

static void write_content(const struct chart * c, FILE * out, double width, double top,
        const double * row_heights, const struct margins * m) {
    fprintf(out, "<rect class=\"lc-paper\" width=\"%.0f\" height=\"100%%\"/>\n", width);
    if (c->title != NULL) {
        chart_write_lines(out, c->title, 1e4, CHART_PAD, CHART_PAD + 14.0, "lc-ink lc-title");
    }
    chart_write_lines(out, c->subtitle, width - 2.0 * CHART_PAD, CHART_PAD,
            CHART_PAD + (c->title != NULL ? 34.0 : 12.0), "lc-faint");
    double y = top;
    for (int b = 0; b < c->n_stacks; ++b) {
        const double x =
                CHART_PAD + (b % c->n_across) * (m->left + c->panel_width + m->right + CHART_GAP);
        double v = y;
        for (int i = 0; i < c->stacks[b].n_panels; ++i) {
            const struct chart_panel * p = &c->stacks[b].panels[i];
            panel_write(p, out, x + m->left, v, c->panel_width, m);
            v += panel_height(p, m->left + c->panel_width + m->right);
        }
        if (b % c->n_across == c->n_across - 1) {
            y += row_heights[b / c->n_across];
        }
    }
}

void chart_write(const struct chart * c, bool is_file, FILE * out) {
    struct margins m = { .left = CHART_Y_LABEL + 12.0, .right = 16.0 };
    const int      across = c->n_stacks < c->n_across ? c->n_stacks : c->n_across;
    const int      n_rows = across > 0 ? (c->n_stacks + across - 1) / across : 0;
    double *       heights = program_alloc((size_t) n_rows, sizeof(*heights));
    struct chart   chart = *c;
    double         total = 0.0;

    chart.n_across = across > 0 ? across : 1;
    for (int b = 0; b < c->n_stacks; ++b) {
        for (int i = 0; i < c->stacks[b].n_panels; ++i) {
            const double right = panel_label_width(&c->stacks[b].panels[i]);
            m.right = right > m.right ? right : m.right;
        }
    }
    const double width = 2.0 * CHART_PAD + across * (m.left + c->panel_width + m.right) +
                         (across - 1) * CHART_GAP;
    for (int b = 0; b < c->n_stacks; ++b) {
        double h = 0.0;
        for (int i = 0; i < c->stacks[b].n_panels; ++i) {
            h += panel_height(&c->stacks[b].panels[i], m.left + c->panel_width + m.right);
        }
        heights[b / chart.n_across] =
                h > heights[b / chart.n_across] ? h : heights[b / chart.n_across];
    }
    for (int i = 0; i < n_rows; ++i) {
        total += heights[i];
    }
    const double top = CHART_PAD + (c->title != NULL ? 24.0 : 0.0) +
                       CHART_LINE_HEIGHT * chart_lines(c->subtitle, width - 2.0 * CHART_PAD) +
                       (c->subtitle != NULL ? 8.0 : 0.0);
    const double height = top + total + CHART_PAD;

    fputs(is_file ? "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" : "", out);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lc\" viewBox=\"0 0 %.0f %.0f\" "
            "role=\"img\"",
            width, height);
    if (is_file) {
        fprintf(out, " width=\"%.0f\" height=\"%.0f\"", width, height);
    } else {
        fprintf(out, " style=\"width:100%%;min-width:%.0fpx;max-width:%.0fpx;height:auto\"",
                0.7 * width, width); // smaller could not be read
    }
    fputs(">\n", out);
    if (c->title != NULL) {
        fputs("<title>", out);
        markup_text(out, c->title);
        fputs("</title>\n", out);
    }
    if (is_file) {
        fputs("<style>\n", out);
        chart_write_style(out);
        fputs("</style>\n", out);
    }
    write_content(&chart, out, width, top, heights, &m);
    fputs("</svg>\n", out);
    free(heights);
}

void chart_write_dash(FILE * out, int dash) {
    if (DASHES[dash % CHART_DASHES] != NULL) {
        fprintf(out, " stroke-dasharray=\"%s\"", DASHES[dash % CHART_DASHES]);
    }
}
