#pragma once

// Charts as SVG: panels with lines, bands and histograms, for print and for light and dark screens.
// Files are self-contained and have no date: equal input gives equal bytes.
//
// A series is identified by color (also for color-blind readers), dashes and markers, and has its
// name at the end of its line. Axes span the data. They are cut only where the caller says so; a
// cut is marked, with the value that the line reaches.

#include <stdbool.h>
#include <stdio.h>

enum chart_scale { CHART_LINEAR, CHART_LOG2 };

enum chart_kind {
    CHART_LINE,
    CHART_STEPS, // a histogram: y[i] from x[i] to x[i + 1]; x has n + 1 values
};

enum {
    CHART_LABEL_CHARS = 30, // of a name; longer ones are shortened
    CHART_COLORS = 7,
    CHART_DASHES = 8, // 0: solid
};

struct chart_series {
    const char *    name;
    const char *    label; // short name at the end of the line; NULL: the name, shortened
    enum chart_kind kind;
    int             n;
    const double *  x;
    const double *  y;     // NaN: a gap
    const double *  lo;    // band around the line; NaN: a gap; NULL: none
    const double *  hi;    // the same
    int             color; // modulo CHART_COLORS; the shape of markers differs beyond that
    int             dash;  // modulo CHART_DASHES
};

// A dashed vertical line with a label at its top.
struct chart_mark {
    double       x;
    const char * label; // NULL: none
};

struct chart_panel {
    const char *                title;   // NULL: none
    const char *                x_label; // NULL: none, it is on the panel below
    const char *                y_label;
    const char *                note;       // below the panel, lines separated by '\n'; NULL: none
    const char *                zero;       // name of a line at y = 0; NULL: none
    const char *                zero_label; // its short name; NULL: the name, shortened
    enum chart_scale            x_scale;
    double                      x_lo, x_hi;   // both 0: from the data
    double                      y_min, y_max; // cut the axis beyond these; both 0: never
    double                      height;       // of the axes; more if labels need it
    const struct chart_series * series;
    int                         n_series;
    const struct chart_mark *   marks;
    int                         n_marks;
};

// Panels below each other.
struct chart_stack {
    const struct chart_panel * panels;
    int                        n_panels;
};

// Stacks next to each other, n_across per row.
struct chart {
    const char *               title;    // NULL: none
    const char *               subtitle; // lines separated by '\n'; NULL: none
    const struct chart_stack * stacks;
    int                        n_stacks;
    int                        n_across;
    double                     panel_width; // of the axes
};

// Writes an SVG file or, for HTML, an <svg> element, which needs the style once in the head. For
// write errors, check ferror.
void chart_write(const struct chart * chart, bool is_file, FILE * out);
void chart_write_style(FILE * out);

// A position or count on an axis: 512, 1k, 128k, 1.5k. Returns buf.
const char * chart_power(double x, char buf[16]);

// Shortens a name to CHART_LABEL_CHARS characters. It loses its middle: models usually differ at
// the ends.
// - size: at least 4 CHART_LABEL_CHARS + 4
void chart_label(const char * name, char * label, size_t size);
