#pragma once

// A table of texts, shown on a terminal or as HTML.

#include <stdbool.h>
#include <stdio.h>

enum { TABLE_MAX_RULES = 16 };

struct table {
    const char *  title;  // above it
    const char *  note;   // below it, NULL: none
    int           n_rows; // the first is the head
    int           n_cols;
    const char ** cells;   // [n_rows][n_cols]; NULL: empty
    bool          left;    // all columns begin at the left; otherwise only the first
    int           n_rules; // lines across the table, with a word
    struct {
        int          before; // row
        const char * word;
    } rules[TABLE_MAX_RULES];
};

struct arena;

// Cells empty. NULL: out of memory.
struct table * table_new(struct arena * arena, int n_rows, int n_cols);

// Sets a cell; false: out of memory.
bool table_set(struct arena * arena, struct table * g, int row, int col, const char * format, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 5, 6)))
#endif
        ;

// Draws a line with a word across the table before the next row, number n_rows. Ignored if there are
// too many.
void table_add_rule(struct table * t, const char * word);

// A probability; below 1e-6 it says more about the model of the noise than about the data, and only
// that much is shown.
bool table_set_p_value(struct arena * arena, struct table * g, int row, int col, double p);

// Text of at most `columns` columns: where the table is wider it is split, and the first column
// begins each part.
// - utf8: false writes plain ASCII, with "+-" for "±" and the like
void table_write_text(const struct table * g, int columns, bool utf8, FILE * out);
void table_write_html(const struct table * g, FILE * out);

// A paragraph from column `at` on, broken between words, its lines after the first indented.
void text_write_wrapped(const char * text, int at, int columns, int indent, bool utf8, FILE * out);
