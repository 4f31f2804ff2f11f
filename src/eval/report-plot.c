// Curves on a terminal: braille dots in colour, or letters where there is none.

#include "eval/report-files.h"

#include "eval/chart.h"
#include "eval/text-table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS       = 14,
    LEFT       = 10, // columns for the numbers of the y axis
    MAX_SERIES = 26, // letters
};

static const char * const COLORS[] = { "\033[34m", "\033[33m", "\033[32m", "\033[35m", "\033[36m",
    "\033[31m", "\033[37m" };
enum { N_COLORS = sizeof(COLORS) / sizeof(COLORS[0]) };

// Dots: 2 × 4 a character with braille, 1 × 1 with letters.
struct canvas {
    int       columns;      // characters
    int       across, down; // dots a character
    uint8_t * dots;         // [ROWS][columns] bits of the braille pattern, or 1
    int8_t *  series;       // [ROWS][columns] who was there last, −1: nobody
    double    x_lo, x_hi, y_lo, y_hi;
    bool      log2_x;
};

// Bits of U+2800: dots 1 2 3 7 of the left column from the top, 4 5 6 8 of the right.
static const uint8_t BRAILLE[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 },
    { 0x40, 0x80 } };

static double place_x(const struct canvas * c, double x) {
    const double t = c->log2_x ? log2(x / c->x_lo) / log2(c->x_hi / c->x_lo)
                               : (x - c->x_lo) / (c->x_hi - c->x_lo);
    return t * (c->columns * c->across - 1);
}

static double place_y(const struct canvas * c, double y) {
    return (c->y_hi - y) / (c->y_hi - c->y_lo) * (ROWS * c->down - 1);
}

static void put_dot(struct canvas * c, double x, double y, int series) {
    const int i = (int) lround(x);
    const int j = (int) lround(y);
    if (i >= 0 && i < c->columns * c->across && j >= 0 && j < ROWS * c->down) {
        const int cell = j / c->down * c->columns + i / c->across;
        c->dots[cell] |= c->across == 2 ? BRAILLE[j % 4][i % 2] : 1;
        c->series[cell] = (int8_t) series;
    }
}

static void draw_line(struct canvas * c, double x0, double y0, double x1, double y1, int series) {
    const int n = (int) ceil(fmax(fabs(x1 - x0), fmin(fabs(y1 - y0), 8.0 * ROWS * c->down))) + 1;
    for (int i = 0; i <= n; ++i) {
        put_dot(c, x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n, series);
    }
}

static double centre(const struct report * r, const struct summary * s, int i) {
    const struct position_range * range = &s->curve.at[i].range;
    return s->n_contexts > 0  ? (double) range->from
           : r->params.log2_x ? sqrt((double) range->from * (double) range->to)
                              : 0.5 * ((double) range->from + (double) range->to);
}

static bool find_ends(
        const struct report * r, const struct report_panel * panel, struct canvas * c) {
    double best = -INFINITY;
    c->x_lo = c->y_lo = INFINITY;
    c->x_hi = c->y_hi = -INFINITY;
    for (int k = 0; k < panel->n; ++k) {
        const struct summary * s   = &panel->runs[k]->summary;
        double                 low = INFINITY;
        for (int i = 0; i < s->curve.n; ++i) {
            const double y = figure_value(&s->curve.at[i], r->params.unit);
            if (isfinite(y)) {
                c->x_lo = fmin(c->x_lo, centre(r, s, i));
                c->x_hi = fmax(c->x_hi, centre(r, s, i));
                c->y_lo = fmin(c->y_lo, y);
                c->y_hi = fmax(c->y_hi, y);
                low     = fmin(low, y);
            }
        }
        best = isfinite(low) ? fmax(best, low) : best;
    }
    const double cut =
            r->params.unit == FIGURE_NATS ? best + log(4.0) : 4.0 * best; // as in the picture
    c->y_hi = fmin(c->y_hi, cut);
    if (c->y_hi <= c->y_lo) {
        c->y_hi = c->y_lo + fmax(1e-3, 0.05 * fabs(c->y_lo));
    }
    return c->x_lo < c->x_hi;
}

static void write_cell(const struct canvas * c, int cell, const struct report_screen * screen,
        const struct report_panel * panel, FILE * out) {
    const int s = c->series[cell];
    if (s < 0) {
        putc(c->dots[cell] == 0 ? ' ' : ':', out); // ':' is the training length
    } else if (c->across == 2) {
        const int cp = 0x2800 + c->dots[cell];
        fprintf(out,
                "%s%c%c%c"
                "\033[0m",
                COLORS[panel->runs[s]->color % N_COLORS], 0xe0 | cp >> 12, 0x80 | (cp >> 6 & 0x3f),
                0x80 | (cp & 0x3f));
    } else {
        fprintf(out, "%s%c%s", screen->color ? COLORS[panel->runs[s]->color % N_COLORS] : "",
                'A' + s % MAX_SERIES, screen->color ? "\033[0m" : "");
    }
}

static void write_canvas(const struct canvas * c, const struct report_screen * screen,
        const struct report_panel * panel, FILE * out) {
    for (int row = 0; row < ROWS; ++row) {
        const double y = c->y_hi - (c->y_hi - c->y_lo) * row / (ROWS - 1);
        if (row % 4 == 0 || row == ROWS - 1) {
            fprintf(out, "%*.4g |", LEFT - 2, y);
        } else {
            fprintf(out, "%*s|", LEFT - 1, "");
        }
        for (int i = 0; i < c->columns; ++i) {
            write_cell(c, row * c->columns + i, screen, panel, out);
        }
        putc('\n', out);
    }
    // ticks at powers of two, or at eighths, where they do not touch
    fprintf(out, "%*s+", LEFT - 1, "");
    for (int i = 0; i < c->columns; ++i) {
        putc('-', out);
    }
    fprintf(out, "\n%*s", LEFT, "");
    int at = 0;
    for (double x = exp2(ceil(log2(c->x_lo))); x <= c->x_hi * 1.0001;
            x     = c->log2_x ? 2.0 * x : x + exp2(floor(log2(c->x_hi))) / 4.0) {
        char      text[16];
        const int n     = (int) strlen(chart_power(x, text));
        const int start = (int) lround(place_x(c, x) / c->across) - n / 2;
        if (start >= at && start + n <= c->columns) {
            fprintf(out, "%*s%s", start - at, "", text);
            at = start + n + 1;
            if (at <= c->columns) {
                putc(' ', out);
            }
        }
    }
    putc('\n', out);
}

static void write_legend(const struct canvas * c, const struct report_screen * screen,
        const struct report_panel * panel, FILE * out) {
    for (int s = 0; s < panel->n && s < MAX_SERIES; ++s) {
        const char * color = screen->color ? COLORS[panel->runs[s]->color % N_COLORS] : "";
        char         mark[32];
        if (c->across == 2) {
            snprintf(mark, sizeof(mark), "%s\xe2\xa0\xa4\xe2\xa0\xa4\033[0m ", color);
        } else {
            snprintf(mark, sizeof(mark), "%s%c%s ", color, 'A' + s, screen->color ? "\033[0m" : "");
        }
        fprintf(out, "%*s%s", LEFT, "", mark);
        text_write_wrapped(panel->runs[s]->name, LEFT + 2 + (c->across == 2), screen->columns,
                LEFT + 4, screen->utf8, out);
    }
    putc('\n', out);
}

bool report_write_plot(const struct report * r, const struct report_panel * panel,
        const struct report_screen * screen, FILE * out) {
    const bool    braille = screen->utf8 && screen->color;
    struct canvas c       = { .columns = screen->columns - LEFT,
              .across                  = braille ? 2 : 1,
              .down                    = braille ? 4 : 1,
              .log2_x                  = r->params.log2_x };
    if (c.columns < 20 || !find_ends(r, panel, &c)) {
        return true;
    }
    c.dots        = calloc((size_t) ROWS * (size_t) c.columns, 1);
    c.series      = calloc((size_t) ROWS * (size_t) c.columns, 1);
    const bool ok = c.dots != NULL && c.series != NULL;
    if (ok) {
        memset(c.series, -1, (size_t) ROWS * (size_t) c.columns);
        for (int s = 0; s < panel->n; ++s) {
            const double T = (double) panel->runs[s]->summary.extrapolation.train_length;
            if (T > c.x_lo && T < c.x_hi) {
                for (int row = 0; row < ROWS; ++row) {
                    c.dots[row * c.columns + (int) lround(place_x(&c, T)) / c.across] = 1;
                }
            }
        }
        for (int s = 0; s < panel->n && s < MAX_SERIES; ++s) {
            const struct summary * sum  = &panel->runs[s]->summary;
            bool                   down = false;
            double                 px = 0.0, py = 0.0;
            for (int i = 0; i < sum->curve.n; ++i) {
                const double y = figure_value(&sum->curve.at[i], r->params.unit);
                if (isfinite(y)) {
                    const double x = place_x(&c, centre(r, sum, i)), v = place_y(&c, y);
                    draw_line(&c, down ? px : x, down ? py : v, x, v, s);
                    px = x;
                    py = v;
                }
                down = isfinite(y);
            }
        }
        fprintf(out, "%*s%s by position\n", LEFT, "", report_unit_name(r->params.unit));
        write_canvas(&c, screen, panel, out);
        write_legend(&c, screen, panel, out);
    }
    free(c.dots);
    free(c.series);
    return ok;
}
