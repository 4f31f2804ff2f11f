// One panel of a chart.

#include "chart/chart-impl.h"

#include "base/unicode.h"
#include "chart/markup.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME_CHARS = CHART_LABEL_CHARS, MAX_EXITS = 4 };

static const double HEAD_HEIGHT = 36.0; // title and labels of marks
static const double TICK_HEIGHT = 24.0; // numbers of the x axis
static const double NAME_HEIGHT = 20.0; // label of the x axis
static const double SPACE_BELOW = 14.0;
static const double SWATCH_WIDTH = 26.0; // sample of the line before its name
static const double LABEL_SPACING = 15.0;

//
// Names
//

static int count_chars(const char * text) {
    int n = 0;
    for (const char * p = text; *p != '\0'; ++p) {
        n += ((unsigned char) *p & 0xc0) != 0x80;
    }
    return n;
}

void chart_label(const char * name, char * out, size_t size) {
    const int n = count_chars(name);
    if (n <= MAX_NAME_CHARS) {
        snprintf(out, size, "%s", name);
        return;
    }
    const int head = MAX_NAME_CHARS / 2 - 1;
    const int tail = MAX_NAME_CHARS - head - 1;
    size_t    w = 0;
    int       at = -1;
    for (const char * p = name; *p != '\0'; ++p) {
        at += ((unsigned char) *p & 0xc0) != 0x80;
        if (at == head && ((unsigned char) *p & 0xc0) != 0x80) {
            w += (size_t) snprintf(out + w, size - w, "\xe2\x80\xa6");
        }
        if ((at < head || at >= n - tail) && w + 2 < size) {
            out[w++] = *p;
        }
    }
    out[w] = '\0';
}

// Characters of a shortened name; an ellipsis is as wide as two.
static int label_chars(const char * text) {
    const int n = count_chars(text);
    int       chars = n < MAX_NAME_CHARS ? n : MAX_NAME_CHARS;
    for (const char * p = text; (p = strstr(p, "\xe2\x80\xa6")) != NULL; ++p) {
        chars++;
    }
    return chars;
}

double panel_label_width(const struct chart_panel * p) {
    const char * zero = p->zero_label != NULL ? p->zero_label : p->zero;
    int          longest = zero != NULL ? label_chars(zero) : 0;
    for (int i = 0; i < p->n_series; ++i) {
        const struct chart_series * s = &p->series[i];
        const int                   n = label_chars(s->label != NULL ? s->label : s->name);
        longest = n > longest ? n : longest;
    }
    return SWATCH_WIDTH + 12.0 + CHART_CHAR_WIDTH * longest;
}

static double foot_height(const struct chart_panel * p) {
    return TICK_HEIGHT + (p->x_label != NULL ? NAME_HEIGHT : 0.0);
}

double panel_axes_height(const struct chart_panel * p) {
    const double labels = LABEL_SPACING * (p->n_series + (p->zero != NULL));
    return labels > p->height ? labels : p->height;
}

double panel_height(const struct chart_panel * p, double width) {
    return HEAD_HEIGHT + panel_axes_height(p) + foot_height(p) +
           CHART_LINE_HEIGHT * chart_lines(p->note, width) + SPACE_BELOW;
}

//
// Axes
//

static void write_number(FILE * out, double v, double step) {
    const int digits = step >= 1.0 ? 0 : (int) ceil(-log10(step) - 1e-9);
    if (fabs(v) < 1e-9 * step) {
        v = 0.0;
    }
    if (fabs(v) >= 1e6) {
        fprintf(out, "%.3g", v);
    } else {
        fprintf(out, "%s%.*f", v < 0.0 ? "\xe2\x88\x92" : "", digits, fabs(v)); // with U+2212
    }
}

static void write_y_axis(
        FILE * out, const struct axis * x, const struct axis * y, const char * label) {
    const double mid = 0.5 * (y->from + y->to);
    const double first = ceil(y->lo / y->step - 1e-9) * y->step;
    for (int i = 0; first + i * y->step <= y->hi + 1e-9 * y->step; ++i) {
        const double v = first + i * y->step;
        const double at = axis_coordinate(y, v);
        fprintf(out, "<path class=\"lc-thin lc-grid\" d=\"M%.1f %.1fH%.1f\"/>", x->from, at, x->to);
        fprintf(out, "<text class=\"lc-faint\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                x->from - 7.0, at + 4.0);
        write_number(out, v, y->step);
        fputs("</text>\n", out);
    }
    if (label != NULL) {
        fprintf(out,
                "<text class=\"lc-ink\" transform=\"translate(%.1f %.1f) rotate(-90)\" "
                "text-anchor=\"middle\">",
                x->from - CHART_Y_LABEL, mid);
        markup_text(out, label);
        fputs("</text>\n", out);
    }
    for (int end = 0; end < 2; ++end) { // two slanted strokes where the axis is cut
        if (end == 0 ? y->cut_hi : y->cut_lo) {
            fprintf(out, "<path class=\"lc-thin lc-mark\" d=\"M%.1f %.1fl10 -5m-10 10l10 -5\"/>\n",
                    x->from - 5.0, end == 0 ? y->to + 6.0 : y->from - 6.0);
        }
    }
}

static void write_tick(FILE * out, const struct axis * x, double bottom, double v,
        const char * text, bool is_named) {
    const double at = axis_coordinate(x, v);
    fprintf(out, "<path class=\"lc-thin lc-axis\" d=\"M%.1f %.1fv%d\"/>", at, bottom,
            is_named ? 5 : 3);
    if (is_named) {
        fprintf(out,
                "<text class=\"lc-faint\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                at, bottom + 18.0, text);
    }
    fputs("\n", out);
}

static void write_x_axis(
        FILE * out, const struct axis * x, const struct axis * y, const char * label) {
    const double width = x->to - x->from;
    char         text[32];

    fprintf(out, "<path class=\"lc-thin lc-axis\" d=\"M%.1f %.1fH%.1f\"/>\n", x->from, y->from,
            x->to);
    if (x->scale == CHART_LOG2) {
        const int first = (int) ceil(log2(x->lo) - 1e-9);
        const int last = (int) floor(log2(x->hi) + 1e-9);
        int       every = 1;
        while ((last - first) / every * 38.0 > width) {
            every++;
        }
        for (int k = first; k <= last; ++k) {
            write_tick(out, x, y->from, exp2(k), chart_power(exp2(k), text),
                    (last - k) % every == 0); // the last tick has a label
        }
    } else {
        const double span = x->hi - x->lo;
        double       step = pow(10.0, floor(log10(span)));
        const bool   is_length = x->lo >= 0.0 && span >= 2048.0; // tokens: ticks at powers of two
        if (is_length) {
            step = exp2(floor(log2(span)));
        }
        while (span / step < 4.0) {
            step *= 0.5;
        }
        for (double v = ceil(x->lo / step - 1e-9) * step + 0.0; v <= x->hi + 1e-9 * step;
                v += step) {
            if (is_length) {
                chart_power(v, text);
            } else {
                snprintf(text, sizeof(text), "%.6g", fabs(v) < 1e-9 * step ? 0.0 : v);
            }
            write_tick(out, x, y->from, v, text, true);
        }
    }
    if (label != NULL) {
        fprintf(out, "<text class=\"lc-ink\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                x->from + 0.5 * width, y->from + TICK_HEIGHT + 13.0);
        markup_text(out, label);
        fputs("</text>\n", out);
    }
}

//
// Lines
//

// The coordinate of a value, limited to what renderers handle.
static double limited_y(const struct axis * y, double v) {
    const double at = axis_coordinate(y, v);
    return fmax(-1e4, fmin(1e4, at));
}

// - n_bands: overlapping bands; more of them are fainter
static void write_band(FILE * out, const struct chart_series * s, const struct axis * x,
        const struct axis * y, int n_bands) {
    for (int i = 0; i < s->n;) {
        int end = i;
        while (end < s->n && isfinite(s->y[end]) && isfinite(s->lo[end]) && isfinite(s->hi[end])) {
            end++;
        }
        if (end - i > 1) {
            fprintf(out, "<path class=\"lc-f%d\" fill-opacity=\"%.2f\" d=\"",
                    s->color % CHART_COLORS, fmin(0.15, 0.45 / n_bands));
            for (int k = i; k < end; ++k) {
                fprintf(out, "%c%.1f %.1f", k == i ? 'M' : 'L', axis_coordinate(x, s->x[k]),
                        limited_y(y, s->hi[k]));
            }
            for (int k = end - 1; k >= i; k--) {
                fprintf(out, "L%.1f %.1f", axis_coordinate(x, s->x[k]), limited_y(y, s->lo[k]));
            }
            fputs("Z\"/>\n", out);
        }
        i = end + 1;
    }
}

static void write_line(
        FILE * out, const struct chart_series * s, const struct axis * x, const struct axis * y) {
    bool down = false;
    fprintf(out, "<path class=\"lc-line lc-s%d\"", s->color % CHART_COLORS);
    chart_write_dash(out, s->dash);
    fputs(" d=\"", out);
    for (int i = 0; i < s->n; ++i) {
        if (isfinite(s->y[i])) {
            fprintf(out, "%c%.1f %.1f", down ? 'L' : 'M', axis_coordinate(x, s->x[i]),
                    limited_y(y, s->y[i]));
        }
        down = isfinite(s->y[i]);
    }
    fputs("\"/>\n", out);
}

static void write_steps(
        FILE * out, const struct chart_series * s, const struct axis * x, const struct axis * y) {
    for (int pass = 0; pass < 2; ++pass) { // filled, then the outline
        fprintf(out,
                pass == 0 ? "<path class=\"lc-steps lc-f%d\"" : "<path class=\"lc-line lc-s%d\"",
                s->color % CHART_COLORS);
        if (pass == 1) {
            chart_write_dash(out, s->dash);
        }
        fprintf(out, " d=\"M%.1f %.1f", axis_coordinate(x, s->x[0]), limited_y(y, 0.0));
        for (int i = 0; i < s->n; ++i) {
            fprintf(out, "V%.1fH%.1f", limited_y(y, isfinite(s->y[i]) ? s->y[i] : 0.0),
                    axis_coordinate(x, s->x[i + 1]));
        }
        fprintf(out, "V%.1f%s\"/>\n", limited_y(y, 0.0), pass == 0 ? "Z" : "");
    }
}

// Circle, square, diamond or triangle, by color: for readers who cannot see it.
static void write_marker(FILE * out, int color, double cx, double cy) {
    fprintf(out, "<path class=\"lc-f%d\" d=\"", color % CHART_COLORS);
    switch (color % 5) {
        case 0: fprintf(out, "M%.1f %.1fa3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z", cx - 3.0, cy); break;
        case 1: fprintf(out, "M%.1f %.1fh5.4v5.4h-5.4Z", cx - 2.7, cy - 2.7); break;
        case 2: fprintf(out, "M%.1f %.1fl3.5 6h-7Z", cx, cy - 3.8); break;
        case 4: fprintf(out, "M%.1f %.1fl3.5 -6h-7Z", cx, cy + 3.8); break;
        default: fprintf(out, "M%.1f %.1fl3.8 3.8l-3.8 3.8l-3.8 -3.8Z", cx, cy - 3.8); break;
    }
    fputs("\"/>", out);
}

static void write_markers(
        FILE * out, const struct chart_series * s, const struct axis * x, const struct axis * y) {
    const int every = s->n > 12 ? (s->n + 9) / 10 : 1;
    for (int i = s->n - 1; i >= 0; i -= every) { // the last point has a marker
        if (isfinite(s->y[i]) && s->y[i] >= y->lo && s->y[i] <= y->hi) {
            write_marker(out, s->color, axis_coordinate(x, s->x[i]), limited_y(y, s->y[i]));
        }
    }
    fputs("\n", out);
}

// The farthest value of a line beyond an end of the axis, or 0. *at: the first point beyond it; −1:
// none.
static double farthest(
        const struct chart_series * s, const struct axis * y, bool is_top, int * at) {
    double most = 0.0;
    *at = -1;
    for (int i = 0; i < s->n; ++i) {
        if (isfinite(s->y[i]) && (is_top ? s->y[i] > y->hi : s->y[i] < y->lo)) {
            *at = *at < 0 ? i : *at;
            most = fabs(s->y[i]) > fabs(most) ? s->y[i] : most;
        }
    }
    return most;
}

// True if the line is one of the MAX_EXITS that extend farthest beyond an end of the axis.
static bool is_far(const struct chart_panel * p, int series, const struct axis * y, bool is_top) {
    int          at, n_farther = 0;
    const double most = fabs(farthest(&p->series[series], y, is_top, &at));
    for (int i = 0; i < p->n_series; ++i) {
        const double other = fabs(farthest(&p->series[i], y, is_top, &at));
        n_farther += other > most || (other == most && i < series);
    }
    return n_farther < MAX_EXITS;
}

// Marks where a line leaves a cut axis. Returns true if it is far beyond; then it has its value.
static bool write_exit(const struct chart_panel * p, int series, FILE * out, const struct axis * x,
        const struct axis * y, bool is_top, int row) {
    const struct chart_series * s = &p->series[series];
    int                         at;
    const double                most = farthest(s, y, is_top, &at);
    if (at < 0) {
        return false;
    }
    const double cx = axis_coordinate(x, s->x[at]);
    const bool   to_left = cx + 80.0 > x->to;
    const double edge = is_top ? y->to + 1.0 : y->from - 1.0;
    const double cy = is_top ? y->to + 12.0 + 15.0 * row : y->from - 5.0 - 15.0 * row;
    fprintf(out, "<path class=\"lc-f%d\" d=\"M%.1f %.1fl5 %dh-10Z\"/>", s->color % CHART_COLORS, cx,
            edge, is_top ? 9 : -9);
    if (!is_far(p, series, y, is_top)) {
        fputs("\n", out);
        return false;
    }
    fprintf(out,
            "<text class=\"lc-ink lc-small lc-halo\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s "
            "to ",
            cx + (to_left ? -9.0 : 9.0), cy, to_left ? "end" : "start", is_top ? "up" : "down");
    fprintf(out, fabs(most) < 100.0 ? "%.3g" : fabs(most) < 1e5 ? "%.0f" : "%.1e", most);
    fputs("</text>\n", out);
    return true;
}

//
// Names at the ends of lines
//

struct label {
    int    series;   // −1: the zero line
    double want, at; // y of the end of the line, y of the name
    double x;        // of the end of the line
};

static int compare_labels(const void * a, const void * b) {
    const struct label * p = a;
    const struct label * q = b;
    return p->want != q->want ? (p->want > q->want) - (p->want < q->want)
                              : (p->series > q->series) - (p->series < q->series);
}

// Spreads names that would overlap around their mean: neighbors form groups, and groups that meet
// are merged.
static void spread_labels(struct label * labels, int n, double top, double bottom) {
    for (int first = 0; first < n;) {
        int start = first, end = first + 1;
        for (bool moved = true; moved;) {
            double middle = 0.0;
            moved = false;
            for (int i = start; i < end; ++i) {
                middle += labels[i].want / (end - start);
            }
            double y = middle - 0.5 * (end - start - 1) * LABEL_SPACING;
            y = fmin(y, bottom - (end - start - 1) * LABEL_SPACING);
            y = fmax(y, top);
            for (int i = start; i < end; ++i) {
                labels[i].at = y + (i - start) * LABEL_SPACING;
            }
            if (start > 0 && labels[start - 1].at + LABEL_SPACING > labels[start].at) {
                start--;
                while (start > 0 && labels[start - 1].at + 1.001 * LABEL_SPACING >
                                            labels[start].at) { // its group
                    start--;
                }
                moved = true;
            } else if (end < n && labels[end].want < labels[end - 1].at + LABEL_SPACING) {
                end++;
                moved = true;
            }
        }
        first = end;
    }
}

// Draws a thin connecting line, a sample of the line, and its name.
static void write_label(
        const struct chart_panel * p, FILE * out, const struct label * l, const struct axis * x) {
    const struct chart_series * s = l->series >= 0 ? &p->series[l->series] : NULL;
    const char *                full = s != NULL ? s->name : p->zero;
    const double                from = x->to + 10.0;
    char                        name[4 * MAX_NAME_CHARS + 8], class[24] = "lc-mark";

    if (s != NULL) {
        snprintf(class, sizeof(class), "lc-s%d", s->color % CHART_COLORS);
    }
    fprintf(out, "<path class=\"lc-thin %s\" opacity=\".55\" d=\"M%.1f %.1fL%.1f %.1f\"/>", class,
            fmin(l->x, x->to) + 3.0, l->want, from, l->at);
    fprintf(out, "<path class=\"%s %s\"", s != NULL ? "lc-line" : "lc-thin", class);
    if (s != NULL) {
        chart_write_dash(out, s->dash);
    }
    fprintf(out, " d=\"M%.1f %.1fh%.1f\"/>", from, l->at, SWATCH_WIDTH - 4.0);
    if (s != NULL && s->kind == CHART_LINE) {
        write_marker(out, s->color, from + 0.5 * (SWATCH_WIDTH - 4.0), l->at);
    }
    const char * label = s != NULL ? s->label : p->zero_label;
    chart_label(label != NULL ? label : full, name, sizeof(name));
    fprintf(out, "<text class=\"lc-ink\" x=\"%.1f\" y=\"%.1f\"><title>", from + SWATCH_WIDTH,
            l->at + 4.0);
    markup_text(out, full);
    fputs("</title>", out);
    markup_text(out, name);
    fputs("</text>\n", out);
}

static void write_labels(
        const struct chart_panel * p, FILE * out, const struct axis * x, const struct axis * y) {
    struct label * labels = program_alloc((size_t) p->n_series + 1, sizeof(*labels));
    int            n = 0;
    for (int i = 0; i < p->n_series; ++i) {
        const struct chart_series * s = &p->series[i];
        int                         last = s->n - 1;
        while (last >= 0 && !isfinite(s->y[last])) {
            last--;
        }
        const double end = last < 0 ? y->to : fmax(y->to, fmin(y->from, limited_y(y, s->y[last])));
        const double at =
                last < 0 ? x->to : axis_coordinate(x, s->x[last + (s->kind == CHART_STEPS)]);
        labels[n++] = (struct label) { .series = i, .want = end, .x = at };
    }
    if (p->zero != NULL) {
        labels[n++] = (struct label) { .series = -1, .want = axis_coordinate(y, 0.0), .x = x->to };
    }
    qsort(labels, (size_t) n, sizeof(*labels), compare_labels);
    spread_labels(labels, n, y->to + 4.0, y->from - 4.0);
    for (int i = 0; i < n; ++i) {
        write_label(p, out, &labels[i], x);
    }
    free(labels);
}

static void write_marks(
        const struct chart_panel * p, FILE * out, const struct axis * x, const struct axis * y) {
    double last_end = -INFINITY;
    int    row = 0;
    for (int i = 0; i < p->n_marks; ++i) {
        const struct chart_mark * m = &p->marks[i];
        if (!(m->x >= x->lo && m->x <= x->hi)) {
            continue;
        }
        const double at = axis_coordinate(x, m->x);
        fprintf(out,
                "<path class=\"lc-thin lc-mark\" stroke-dasharray=\"4 3\" d=\"M%.1f "
                "%.1fV%.1f\"/>\n",
                at, y->from, y->to - 4.0);
        if (m->label != NULL) {
            const double half = 0.5 * 5.9 * count_chars(m->label);
            double       mid = fmax(x->from + half, fmin(x->to - half, at));
            // a label that would touch the previous one goes above it
            row = mid - half < last_end + 6.0 ? row + 1 : 0;
            last_end = mid + half;
            fprintf(out,
                    "<text class=\"lc-ink lc-small\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                    mid, y->to - 7.0 - 12.0 * (row % 2));
            markup_text(out, m->label);
            fputs("</text>\n", out);
        }
    }
}

void panel_write(const struct chart_panel * p, FILE * out, double x0, double y0, double width,
        const struct margins * m) {
    struct axis x = { .from = x0, .to = x0 + width };
    struct axis y = { .from = y0 + HEAD_HEIGHT + panel_axes_height(p), .to = y0 + HEAD_HEIGHT };
    axis_x(p, &x);
    axis_y(p, &y);

    if (p->title != NULL) {
        fprintf(out, "<text class=\"lc-ink lc-head\" x=\"%.1f\" y=\"%.1f\">", x0 - m->left + 2.0,
                y0 + 12.0);
        markup_text(out, p->title);
        fputs("</text>\n", out);
    }
    write_y_axis(out, &x, &y, p->y_label);
    write_x_axis(out, &x, &y, p->x_label);
    write_marks(p, out, &x, &y);
    if (p->zero != NULL) {
        fprintf(out, "<path class=\"lc-thin lc-mark\" d=\"M%.1f %.1fH%.1f\"/>\n", x.from,
                axis_coordinate(&y, 0.0), x.to);
    }

    // an inner <svg> with the same coordinates clips the lines
    const double top = y.to - (y.cut_hi ? 0.0 : 4.0);
    const double height = y.from + (y.cut_lo ? 0.0 : 4.0) - top;
    fprintf(out,
            "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" viewBox=\"%.1f %.1f %.1f "
            "%.1f\" overflow=\"hidden\">\n",
            x.from - 4.0, top, width + 8.0, height, x.from - 4.0, top, width + 8.0, height);
    for (int i = 0; i < p->n_series; ++i) {
        if (p->series[i].kind == CHART_LINE && p->series[i].lo != NULL) {
            write_band(out, &p->series[i], &x, &y, p->n_series);
        }
    }
    for (int i = 0; i < p->n_series; ++i) {
        if (p->series[i].kind == CHART_STEPS) {
            write_steps(out, &p->series[i], &x, &y);
        } else {
            write_line(out, &p->series[i], &x, &y);
            write_markers(out, &p->series[i], &x, &y);
        }
    }
    fputs("</svg>\n", out);
    for (int end = 0, row = 0; end < 2; ++end, row = 0) {
        for (int i = 0; i < p->n_series && (end == 0 ? y.cut_hi : y.cut_lo); ++i) {
            row += write_exit(p, i, out, &x, &y, end == 0, row);
        }
    }
    write_labels(p, out, &x, &y);
    chart_write_lines(out, p->note, m->left + width + m->right, x0 - m->left + 2.0,
            y.from + foot_height(p) + 12.0, "lc-faint lc-small");
}
