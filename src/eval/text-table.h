#pragma once

// A table of texts, shown on a terminal or as HTML.

#include <stdbool.h>
#include <stdio.h>

enum { GRID_MAX_RULES = 16 };

struct grid {
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
    } rules[GRID_MAX_RULES];
};

struct arena;

// Cells empty. NULL: out of memory.
struct grid * grid_new(struct arena * arena, int n_rows, int n_cols);

// Sets a cell; false: out of memory.
bool grid_set(struct arena * arena, struct grid * g, int row, int col, const char * format, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 5, 6)))
#endif
        ;

// A probability; below 1e-6 it says more about the model of the noise than about the data, and only
// that much is shown.
bool grid_set_p_value(struct arena * arena, struct grid * g, int row, int col, double p);

// Text of at most `columns` columns: where the table is wider it is split, and the first column
// begins each part.
// - utf8: false writes plain ASCII, with "+-" for "±" and the like
void grid_write_text(const struct grid * g, int columns, bool utf8, FILE * out);
void grid_write_html(const struct grid * g, FILE * out);

// A paragraph from column `at` on, broken between words, its lines after the first indented.
void text_write_wrapped(const char * text, int at, int columns, int indent, bool utf8, FILE * out);
