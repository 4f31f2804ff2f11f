#pragma once

// Writes a report in several formats. For write errors, check ferror.

#include "eval/report/report-model.h"
#include "eval/report/text-table.h"

#include <stdio.h>

void report_write_json(const struct report * r, FILE * out);
void report_write_buckets_csv(const struct report * r, FILE * out);
void report_write_prefix_csv(const struct report * r, FILE * out);
void report_write_svg(const struct report * r, FILE * out);
void report_write_html(const struct report * r, FILE * out);

// The terminal or file that tables are written to.
struct report_screen {
    int  columns;
    bool utf8; // otherwise ASCII symbols
    bool color;
};

void report_write_text(const struct report * r, const struct report_screen * screen, FILE * out);

// Writes panels first … first + n − 1 as one chart: the curves, and below them the differences from
// the baseline.
// - is_file: an SVG file; otherwise an element of HTML
void report_write_chart(const struct report * r, int first, int n, bool is_file, FILE * out);

// Explains lines and bands. Returns text.
const char * report_subtitle(const struct report * r, char * text, size_t size);

// The tables of a panel, with one column per model (report-tables.c).
enum { REPORT_MAX_TABLES = 8 };

// Explains the marks in cells.
extern const char REPORT_LEGEND[];

// Fills `tables` and returns their number.
int report_make_tables(const struct report * r, const struct report_panel * panel,
        struct arena * arena, struct table * tables[REPORT_MAX_TABLES]);

// Describes data and protocol of a panel in one paragraph. Returns text.
const char * report_describe(const struct report_panel * panel, char * text, size_t size);
