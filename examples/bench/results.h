#pragma once

// Rows of results on stdout: a Markdown table, CSV or JSON.

#include <stdbool.h>
#include <stdint.h>

enum results_format { RESULTS_MD, RESULTS_CSV, RESULTS_JSON };

struct results {
    int  format; // enum results_format
    int  n_rows;
    int  n_fields; // of the current row
    bool is_head;  // CSV: write keys instead of values
};

//
// Markdown
//

struct results_column {
    const char * title;
    int          width; // negative: aligned to the left
};

enum { RESULTS_CELL = 128 };

void results_table_head(const struct results_column * columns, int n);
void results_table_row(const struct results_column * columns, int n, char (*cells)[RESULTS_CELL]);

//
// CSV and JSON: a row is a sequence of fields. A field without a value is empty in CSV and absent
// in JSON.
//

void results_row_begin(struct results * r);
void results_row_end(struct results * r);

void results_text(struct results * r, const char * key, const char * text); // NULL: no value
void results_int(struct results * r, const char * key, int64_t x);
void results_bool(struct results * r, const char * key, bool x); // CSV: 0 or 1

// - decimals: -1: six significant digits
void results_real(struct results * r, const char * key, bool has_value, double x, int decimals);
void results_reals(struct results * r, const char * key, const double * x, int64_t n, int decimals);
