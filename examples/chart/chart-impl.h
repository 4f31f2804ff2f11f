#pragma once

// Shared by the files that write charts: the whole chart (chart.c) and one panel (chart-panel.c).

#include "chart/chart.h"

#define CHART_PAD         14.0
#define CHART_GAP         26.0
#define CHART_LINE_HEIGHT 16.0
#define CHART_CHAR_WIDTH  6.7  // of a 12 px sans-serif font, on average, with some reserve
#define CHART_Y_LABEL     54.0 // from the y axis to its label: numbers such as -0.05 fit in between

// Space on both sides of the axes: numbers on the left, names of lines on the right.
struct margins {
    double left, right;
};

struct axis {
    enum chart_scale scale;
    double           lo, hi;         // values
    double           from, to;       // their coordinates
    double           step;           // between ticks of a linear axis
    bool             cut_lo, cut_hi; // the data extend beyond lo, hi
};

void axis_x(const struct chart_panel * p, struct axis * a); // sets lo, hi
void axis_y(const struct chart_panel * p, struct axis * a); // sets lo, hi, step, cuts
double axis_coordinate(const struct axis * a, double value);

double panel_axes_height(const struct chart_panel * p);
double panel_height(const struct chart_panel * p, double width); // width: with margins
double panel_label_width(const struct chart_panel * p);
void panel_write(const struct chart_panel * p, FILE * out, double x, double y, double width,
        const struct margins * m);

// Text in lines, broken at '\n' and at `width`.
int chart_lines(const char * text, double width); // their number
void chart_write_lines(
        FILE * out, const char * text, double width, double x, double y, const char * class);

void chart_write_dash(FILE * out, int dash);
