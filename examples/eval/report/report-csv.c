// Tables for other programs: RFC 4180, UTF-8, a header row, '.' for decimals, empty where there is
// no number.

#include "eval/report/report-write.h"

#include "eval/report/report-columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// Spreadsheets calculate cells that begin with one of these; after an apostrophe they are text.
static const char FORMULA[] = "=+-@\t\r\n";

static void write_text(FILE * out, const char * text) {
    const char * prefix = text[0] != '\0' && strchr(FORMULA, text[0]) != NULL ? "'" : "";
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fprintf(out, "%s%s", prefix, text);
        return;
    }
    fprintf(out, "\"%s", prefix);
    for (const char * p = text; *p != '\0'; ++p) {
        if (*p == '"') {
            putc('"', out);
        }
        putc(*p, out);
    }
    putc('"', out);
}

static void write_value(FILE * out, struct report_value v) {
    switch (v.type) {
        case REPORT_INT: fprintf(out, "%" PRId64, v.integer); break;
        case REPORT_NUMBER:
            if (isfinite(v.number)) {
                fprintf(out, "%.8g", v.number);
            }
            break;
        case REPORT_TEXT: write_text(out, v.text); break;
    }
}

static void write_row(FILE * out, int in, const struct report_row * row) {
    const struct report_column * c;
    for (int i = 0; (c = report_column_at(in, i)) != NULL; ++i) {
        fputs(i == 0 ? "" : ",", out);
        if (row == NULL) { // the header
            fputs(c->key, out);
        } else {
            write_value(out, c->get(row));
        }
    }
    putc('\n', out);
}

static bool write_csv(const struct report * r, int in, FILE * out) {
    write_row(out, in, NULL);
    for (int k = 0; k < r->n_runs; ++k) {
        const struct report_run * run = &r->runs[k];
        const struct summary *    s   = &run->summary;
        const struct losses *     l   = in == REPORT_CSV_PREFIX ? &s->prefixes : &s->buckets;
        for (int i = 0; i < l->n; ++i) {
            const struct report_row row = {
                .run   = run,
                .panel = r->panels[run->panel].title,
                .loss  = &l->at[i],
                .norm  = l == &s->buckets ? summary_norm(s, i) : NULL,
            };
            write_row(out, in, &row);
        }
    }
    return true;
}

bool report_write_buckets_csv(const struct report * r, FILE * out) {
    return write_csv(r, REPORT_CSV_BUCKETS, out);
}

bool report_write_prefix_csv(const struct report * r, FILE * out) {
    return write_csv(r, REPORT_CSV_PREFIX, out);
}
