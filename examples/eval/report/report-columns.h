#pragma once

// The columns of a report. This one table feeds report.json, the CSV files, the tables in text and
// HTML, and `report --list-columns`. A new column is one row of the table in report-columns.c and,
// if it is a new quantity, its computation in eval/estimates.

#include "eval/report/report-model.h"

#include <stdio.h>

struct report_value {
    enum { REPORT_INT, REPORT_NUMBER, REPORT_TEXT } type;
    int64_t      integer;
    double       number; // NaN: none
    const char * text;
};

// The source of values: one range of positions of one run.
struct report_row {
    const struct report_run * run;
    const char *              panel; // title
    const struct loss *       loss;
    const struct range_norm * norm; // NULL: states were not probed here
};

// Where a column appears.
enum {
    REPORT_JSON_TOTAL = 1 << 0,
    REPORT_JSON_BUCKETS = 1 << 1,
    REPORT_JSON_PREFIX = 1 << 2,
    REPORT_CSV_BUCKETS = 1 << 3,
    REPORT_CSV_PREFIX = 1 << 4,
    REPORT_TABLE_TOTAL = 1 << 5, // the table "Overall", in which columns are rows
};

struct report_column {
    const char * key;   // in JSON and CSV; NULL: in neither
    const char * title; // in tables; NULL: in none
    const char * unit;
    const char * about; // definition, for --list-columns
    int          in;    // where: a set of the bits above
    struct report_value (*get)(const struct report_row * row);
    void (*show)(const struct report_row * row, char * text, size_t size); // NULL: by type
};

// The columns that appear in one place, in order; NULL after the last.
const struct report_column * report_column_at(int in, int i);

// The text of a cell. Returns text.
const char * report_column_show(
        const struct report_column * c, const struct report_row * row, char * text, size_t size);

// The columns of a paired comparison in report.json.
struct paired_column {
    const char * key;
    const char * about;
    bool         of_estimate; // depends on the difference alone, not on pairs of windows
    struct report_value (*get)(const struct paired * p);
};

const struct paired_column * paired_column_at(int i); // NULL after the last

// Prints every column: key, unit, definition.
void report_list_columns(FILE * out);

//
// Facts about a run
//

// Shown by HTML and written to report.json.
struct report_fact {
    const char * section;                                    // of a run in report.json
    const char * key;                                        // in the section; NULL: not in JSON
    const char * title;                                      // in HTML; NULL: not shown
    enum { FACT_INT, FACT_BOOL, FACT_TEXT, FACT_LIST } type; // list: separated by '\t'
    size_t offset;                                           // in struct report_run
};

const struct report_fact * report_fact_at(int i); // NULL after the last

// The member of the run. A fact of another type gives 0 or "".
int64_t report_fact_int(const struct report_fact * f, const struct report_run * run);
const char * report_fact_text(const struct report_fact * f, const struct report_run * run);

//
// Numbers as text
//

const char * report_unit_name(enum loss_unit unit);  // "perplexity"
const char * report_count(int64_t x, char text[32]); // 32,768. Returns text
int report_decimals(enum loss_unit unit, double x);  // digits after the point
void report_loss(const struct loss * l, enum loss_unit unit, char * text,
        size_t size); // "20.113 ± 0.380 !2": value, half of the interval, diverged windows
