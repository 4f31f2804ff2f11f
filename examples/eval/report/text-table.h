#pragma once

// Tables of text, for a terminal or HTML.

#include <stdbool.h>
#include <stdio.h>

enum { TABLE_MAX_RULES = 16 };

struct table {
    struct arena * arena;
    const char *   title;  // above the table
    const char *   note;   // below the table; NULL: none
    int            n_rows; // the first row is the header
    int            n_cols;
    const char **  cells; // [max_rows][n_cols]; NULL: empty
    bool           left;  // all columns are left-aligned; otherwise only the first
    int            n_rules;
    struct {
        int          before; // row
        const char * word;
    } rules[TABLE_MAX_RULES]; // lines with a word across the table
};

struct arena;

struct table * table_new(struct arena * arena, int max_rows, int n_cols);

#ifdef __GNUC__
#    define TABLE_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#    define TABLE_PRINTF(fmt, first)
#endif

void table_title(struct table * t, const char * format, ...) TABLE_PRINTF(2, 3);
void table_note(struct table * t, const char * format, ...) TABLE_PRINTF(2, 3);
void table_head(struct table * t, const char * const * titles); // [n_cols]

// Sets a cell. The table ends with the last row that has one.
void table_set(struct table * t, int row, int col, const char * format, ...) TABLE_PRINTF(4, 5);

// Sets a cell to a probability, unless it is NaN. Below 1e-6 the exact value depends on the model
// of the noise, so it is not shown.
void table_set_p_value(struct table * t, int row, int col, double p);

// Adds a rule before a row, unless there is one or there are too many.
void table_rule(struct table * t, int before, const char * format, ...) TABLE_PRINTF(3, 4);

// Writes text of at most `columns` columns. Wider tables are split; each part repeats the first
// column.
// - utf8: otherwise symbols are ASCII, "+-" for "±"; names are UTF-8 in any case
void table_write_text(const struct table * t, int columns, bool utf8, FILE * out);
void table_write_html(const struct table * t, FILE * out);

// Writes a paragraph that starts at column `at`, wrapped between words; later lines are indented.
void text_write_wrapped(const char * text, int at, int columns, int indent, bool utf8, FILE * out);
