#pragma once

// Charts as SVG: panels with lines, bands and histograms, for print and for light and dark screens.
// One file, nothing from outside, no date: equal input gives equal bytes.
//
// A series is told from the others by colour (a set that colour-blind readers can tell apart), by
// dashes and by its markers, and is named at the end of its line. An axis begins and ends where the
// data do; a chart cuts it only where it is told to, marks the cut, and shows how far the line goes
// on.

#include <stdbool.h>
#include <stdio.h>

enum chart_scale { CHART_LINEAR, CHART_LOG2 };
enum chart_kind {
    CHART_LINE,
    CHART_STEPS
}; // steps: y[i] from x[i] to x[i + 1], filled down to the axis; x has n + 1 values

enum {
    CHART_COLORS = 7,
    CHART_DASHES = 4, // 0: solid
};

struct chart_series {
    const char *    name;
    enum chart_kind kind;
    int             n;
    const double *  x;
    const double *  y;  // NaN: a gap
    const double *  lo; // ends of a band around the line; NULL: none; NaN: not there
    const double *  hi;
    int             color; // modulo CHART_COLORS
    int             dash;  // modulo CHART_DASHES
};

// A dashed vertical with a word at its top.
struct chart_mark {
    double       x;
    const char * label;
};

struct chart_panel {
    const char *     title;   // NULL: none
    const char *     x_label; // NULL: none, the panel stands on one that has it
    const char *     y_label;
    const char *     note; // below the panel, may be NULL; '\n' between lines
    const char *     zero; // names a line at y = 0; NULL: none
    enum chart_scale x_scale;
    double           x_lo, x_hi;   // both 0: from the data
    double           y_min, y_max; // the axis is cut here if a line goes beyond; both 0: never
    double           height;       // of the plot
    const struct chart_series * series;
    int                         n_series;
    const struct chart_mark *   marks;
    int                         n_marks;
};

// A block is a column of panels that share their width; blocks stand side by side, n_across in a
// row.
struct chart_block {
    const struct chart_panel * panels;
    int                        n_panels;
};

struct chart {
    const char *               title;    // NULL: none
    const char *               subtitle; // NULL: none; '\n' between lines
    const struct chart_block * blocks;
    int                        n_blocks;
    int                        n_across;
    double                     plot_width;
};

// The whole file. False: out of memory. Writing errors are those of the stream: ferror tells.
bool chart_write_svg(const struct chart * chart, FILE * out);

// For HTML: the style once, in the head, then as many pictures as there are, each an <svg> element
// as wide as its place.
void chart_write_style(FILE * out);
bool chart_write_element(const struct chart * chart, FILE * out);

// A position or a count on an axis: 512, 1k, 128k, 1.5k. Returns buf.
const char * chart_power(double x, char buf[16]);
