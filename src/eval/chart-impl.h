#pragma once

// What the files of the chart writer share: the picture as a whole (chart.c), one panel
// (chart-panel.c).

#include "eval/chart.h"

#define CHART_PAD         14.0
#define CHART_GAP         26.0
#define CHART_LINE_HEIGHT 16.0
#define CHART_CHAR_WIDTH  6.7 // of a 12 px sans-serif, on average, with something to spare

// Left and right of every plot: numbers of the y axis; names of the lines.
struct margins {
    double left, right;
};

struct axis {
    enum chart_scale scale;
    double           lo, hi;         // values
    double           from, to;       // where these are in the picture
    double           step;           // between ticks of a linear axis
    bool             cut_lo, cut_hi; // the data go on beyond lo, hi
};

void axis_x(const struct chart_panel * p, struct axis * a); // lo, hi
void axis_y(const struct chart_panel * p, struct axis * a); // lo, hi, step, cuts
double axis_place(const struct axis * a, double value);

double panel_height(const struct chart_panel * p, double width); // width: with its margins
double panel_label_width(const struct chart_panel * p);
void panel_write(const struct chart_panel * p, FILE * out, double x, double y, double width,
        const struct margins * m);

// Text of several lines: broken at '\n', and where it would be wider than `width`.
int chart_lines(const char * text, double width); // how many
void chart_write_lines(
        FILE * out, const char * text, double width, double x, double y, const char * class);

void chart_write_dash(FILE * out, int dash);
