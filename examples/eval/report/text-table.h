#pragma once

// Tables of text, for a terminal or HTML.

#include <stdbool.h>
#include <stdio.h>

enum { TABLE_MAX_RULES = 16 };

struct table {
    const char *  title;  // above the table
    const char *  note;   // below the table; NULL: none
    int           n_rows; // the first row is the header
    int           n_cols;
    const char ** cells; // [n_rows][n_cols]; NULL: empty
    bool          left;  // all columns are left-aligned; otherwise only the first
    int           n_rules;
    struct {
        int          before; // row
        const char * word;
    } rules[TABLE_MAX_RULES]; // lines with a word across the table
};

struct arena;

// Returns a table with empty cells; NULL: out of memory.
struct table * table_new(struct arena * arena, int n_rows, int n_cols);

// The same with the cells of its first row, and no other row yet: n_rows is 1.
// - max_rows: with the first one
struct table * table_with_head(
        struct arena * arena, int max_rows, const char * const * head, int n_cols);

// Sets a cell. Returns false if out of memory.
bool table_set(struct arena * arena, struct table * t, int row, int col, const char * format, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 5, 6)))
#endif
        ;

// Adds a rule before the next row, number n_rows; ignored if there are too many.
void table_add_rule(struct table * t, const char * word);

// Sets a cell to a probability. Below 1e-6 the exact value depends on the model of the noise, so it
// is not shown.
bool table_set_p_value(struct arena * arena, struct table * t, int row, int col, double p);

// Writes text of at most `columns` columns. Wider tables are split; each part repeats the first
// column.
// - utf8: otherwise symbols are ASCII, "+-" for "±"; names are UTF-8 in any case
void table_write_text(const struct table * t, int columns, bool utf8, FILE * out);
void table_write_html(const struct table * t, FILE * out);

// Writes a paragraph that starts at column `at`, wrapped between words; later lines are indented.
void text_write_wrapped(const char * text, int at, int columns, int indent, bool utf8, FILE * out);
