#include "results.h"

#include "json-write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Markdown
//

// Columns that a UTF-8 text takes: bytes that do not continue a character.
static int width_of(const char * text) {
    int n = 0;
    for (; *text != '\0'; ++text) {
        n += (*text & 0xc0) != 0x80;
    }
    return n;
}

static void print_cell(int width, const char * text) {
    const int blank = abs(width) - width_of(text);
    printf("| %*s%s%*s ", width > 0 && blank > 0 ? blank : 0, "", text,
            width < 0 && blank > 0 ? blank : 0, "");
}

void results_table_head(const struct results_column * columns, int n) {
    static const char dashes[] = "----------------------------------------";

    for (int i = 0; i < n; ++i) {
        print_cell(columns[i].width, columns[i].title);
    }
    printf("|\n");
    for (int i = 0; i < n; ++i) {
        printf(columns[i].width < 0 ? "| :%.*s " : "| %.*s: ", abs(columns[i].width) - 1, dashes);
    }
    printf("|\n");
    fflush(stdout);
}

void results_table_row(const struct results_column * columns, int n, char (*cells)[RESULTS_CELL]) {
    for (int i = 0; i < n; ++i) {
        print_cell(columns[i].width, cells[i]);
    }
    printf("|\n");
    fflush(stdout);
}

//
// CSV and JSON
//

void results_row_begin(struct results * r) {
    r->n_fields = 0;
    if (r->format == RESULTS_JSON) {
        printf("%s\n    { ", r->n_rows > 0 ? "," : "");
    }
}

void results_row_end(struct results * r) {
    printf(r->format == RESULTS_JSON ? " }" : "\n");
    fflush(stdout);
    r->n_rows += !r->is_head;
}

// Begins a field. Returns true if its value is to be printed.
static bool begin_field(struct results * r, const char * key, bool has_value) {
    if (r->format == RESULTS_JSON && has_value) {
        printf("%s\"%s\": ", r->n_fields > 0 ? ",\n      " : "", key);
    } else if (r->format == RESULTS_CSV) {
        printf("%s%s", r->n_fields > 0 ? "," : "", r->is_head ? key : "");
    }
    r->n_fields++;
    return has_value && !r->is_head;
}

void results_text(struct results * r, const char * key, const char * text) {
    if (!begin_field(r, key, text != NULL)) {
        return;
    }
    if (r->format == RESULTS_JSON) {
        json_write_string(stdout, text);
        return;
    }
    putchar('"');
    for (; *text != '\0'; ++text) {
        printf("%s%c", *text == '"' ? "\"" : "", *text); // RFC 4180 doubles quotes
    }
    putchar('"');
}

void results_int(struct results * r, const char * key, int64_t x) {
    if (begin_field(r, key, true)) {
        printf("%" PRId64, x);
    }
}

void results_bool(struct results * r, const char * key, bool x) {
    if (begin_field(r, key, true)) {
        printf("%s", r->format == RESULTS_CSV ? (x ? "1" : "0") : (x ? "true" : "false"));
    }
}

static void print_real(const struct results * r, double x, int decimals) {
    if (r->format == RESULTS_JSON && !isfinite(x)) {
        printf("null");
    } else if (decimals < 0) {
        printf("%.6g", x);
    } else {
        printf("%.*f", decimals, x);
    }
}

void results_real(struct results * r, const char * key, bool has_value, double x, int decimals) {
    if (begin_field(r, key, has_value)) {
        print_real(r, x, decimals);
    }
}

void results_reals(
        struct results * r, const char * key, const double * x, int64_t n, int decimals) {
    if (!begin_field(r, key, true)) {
        return;
    }
    putchar(r->format == RESULTS_JSON ? '[' : '"'); // in CSV, one field with spaces
    for (int64_t i = 0; i < n; ++i) {
        printf("%s", i == 0 ? "" : r->format == RESULTS_JSON ? ", " : " ");
        print_real(r, x[i], decimals);
    }
    putchar(r->format == RESULTS_JSON ? ']' : '"');
}
