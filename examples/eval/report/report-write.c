#include "eval/report/report-write.h"

#include "base/arena.h"
#include "chart/markup.h"
#include "eval/report/page.h"
#include "eval/report/report-columns.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

//
// Text
//

static void print_warnings(
        const struct report_panel * panel, const struct report_screen * screen, FILE * out) {
    char         names[512], text[2048];
    const char * warning;
    for (int i = 0; (warning = report_warning(panel, i, names, sizeof(names))) != NULL; ++i) {
        snprintf(text, sizeof(text), "warning: %s: %s", names, warning);
        text_write_wrapped(text, 0, screen->columns, 4, screen->utf8, out);
    }
}

static void print_heading(
        const struct report_panel * panel, const struct report_screen * screen, FILE * out) {
    char text[1024];
    fputs(screen->color ? "\033[1m" : "", out);
    text_write_wrapped(panel->title, 0, screen->columns, 0, screen->utf8, out);
    fputs(screen->color ? "\033[0m" : "", out);
    text_write_wrapped(
            report_describe(panel, text, sizeof(text)), 0, screen->columns, 2, screen->utf8, out);
    for (int i = 0; i < panel->n; ++i) { // the key of shortened names
        const struct report_run * run = panel->runs[i];
        if (strcmp(run->label, run->name) != 0) {
            snprintf(text, sizeof(text), "%s: %s", run->label, run->name);
            text_write_wrapped(text, 0, screen->columns, 4, screen->utf8, out);
        }
    }
    putc('\n', out);
}

void report_write_text(const struct report * r, const struct report_screen * screen, FILE * out) {
    for (int p = 0; p < r->n_panels; ++p) {
        struct table * tables[REPORT_MAX_TABLES];
        struct arena * arena = program_arena();
        const int      n = report_make_tables(r, &r->panels[p], arena, tables);
        fputs(p > 0 ? "\n" : "", out);
        print_heading(&r->panels[p], screen, out);
        for (int i = 0; i < n; ++i) {
            table_write_text(tables[i], screen->columns, screen->utf8, out);
        }
        print_warnings(&r->panels[p], screen, out);
        arena_free(arena);
    }
    text_write_wrapped(REPORT_LEGEND, 0, screen->columns, 0, screen->utf8, out);
}

//
// CSV: tables for other programs. RFC 4180, UTF-8, a header row, '.' for decimals, empty where
// there is no number.
//

// Spreadsheets calculate cells that begin with one of these; after an apostrophe they are text.
static const char FORMULA[] = "=+-@\t\r\n";

static void csv_text(FILE * out, const char * text) {
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

static void csv_value(FILE * out, struct report_value v) {
    switch (v.type) {
        case REPORT_INT: fprintf(out, "%" PRId64, v.integer); break;
        case REPORT_NUMBER:
            if (isfinite(v.number)) {
                fprintf(out, "%.8g", v.number);
            }
            break;
        case REPORT_TEXT: csv_text(out, v.text); break;
    }
}

static void csv_row(FILE * out, int in, const struct report_row * row) {
    const struct report_column * c;
    for (int i = 0; (c = report_column_at(in, i)) != NULL; ++i) {
        fputs(i == 0 ? "" : ",", out);
        if (row == NULL) { // the header
            fputs(c->key, out);
        } else {
            csv_value(out, c->get(row));
        }
    }
    putc('\n', out);
}

static void write_csv(const struct report * r, int in, FILE * out) {
    csv_row(out, in, NULL);
    for (int k = 0; k < r->n_runs; ++k) {
        const struct report_run * run = &r->runs[k];
        const struct summary *    s = &run->summary;
        const struct losses *     l = in == REPORT_CSV_PREFIX ? &s->prefixes : &s->buckets;
        for (int i = 0; i < l->n; ++i) {
            const struct report_row row = {
                .run = run,
                .panel = r->panels[run->panel].title,
                .loss = &l->at[i],
                .norm = l == &s->buckets ? summary_norm(s, i) : NULL,
            };
            csv_row(out, in, &row);
        }
    }
}

void report_write_buckets_csv(const struct report * r, FILE * out) {
    write_csv(r, REPORT_CSV_BUCKETS, out);
}

void report_write_prefix_csv(const struct report * r, FILE * out) {
    write_csv(r, REPORT_CSV_PREFIX, out);
}

//
// HTML: one self-contained page without scripts: charts, tables, provenance, warnings
//

static const char NONE[] = "\xe2\x80\x93"; // en dash

// Texts between tabs, one per line of the page.
static void write_list(FILE * out, const char * list) {
    for (const char * p = list; *p != '\0';) {
        char         item[1024];
        const size_t n = strcspn(p, "\t");
        snprintf(item, sizeof(item), "%.*s", (int) n, p);
        fputs(p == list ? "" : "<br/>", out);
        markup_text(out, item);
        p += n + (p[n] == '\t');
    }
}

static void write_provenance(const struct report_run * run, FILE * out) {
    const struct report_fact * f;
    fputs("<details><summary>", out);
    markup_text(out, run->name);
    fputs("</summary>\n<dl>\n", out);
    for (int i = 0; (f = report_fact_at(i)) != NULL; ++i) {
        const char *  text = report_fact_text(f, run);
        const int64_t x = report_fact_int(f, run);
        if (f->title == NULL) {
            continue;
        }
        fprintf(out, "<dt>%s</dt><dd>", f->title);
        switch (f->type) {
            case FACT_INT: fprintf(out, "%" PRId64, x); break;
            case FACT_BOOL: fputs(x != 0 ? "yes" : "no", out); break;
            case FACT_TEXT: markup_text(out, text[0] != '\0' ? text : NONE); break;
            case FACT_LIST: write_list(out, text[0] != '\0' ? text : NONE); break;
        }
        fputs("</dd>\n", out);
    }
    fputs("</dl></details>\n", out);
}

static void write_warnings(const struct report_panel * panel, FILE * out) {
    char         names[512];
    const char * warning;
    for (int i = 0; (warning = report_warning(panel, i, names, sizeof(names))) != NULL; ++i) {
        fputs(i == 0 ? "<h3>Warnings</h3>\n<ul class=\"warn\">\n<li>" : "<li>", out);
        markup_text(out, names);
        fputs(": ", out);
        markup_text(out, warning);
        fputs("</li>\n", out);
    }
    fputs(report_warning(panel, 0, names, sizeof(names)) != NULL ? "</ul>\n" : "", out);
}

static void write_panel(const struct report * r, int number, FILE * out) {
    const struct report_panel * panel = &r->panels[number];
    struct table *              tables[REPORT_MAX_TABLES];
    struct arena *              arena = program_arena();
    const int                   n = report_make_tables(r, panel, arena, tables);
    char                        text[1024];

    fputs("<h2>", out);
    markup_text(out, panel->title);
    fputs("</h2>\n<p class=\"faint\">", out);
    markup_text(out, report_describe(panel, text, sizeof(text)));
    fputs("</p>\n<figure><div class=\"scroll\">\n", out);
    report_write_chart(r, number, 1, false, out);
    fputs("</div></figure>\n", out);
    write_warnings(panel, out);
    for (int i = 0; i < n; ++i) {
        table_write_html(tables[i], out);
    }
    fputs("<h3>Provenance</h3>\n", out);
    for (int i = 0; i < panel->n; ++i) {
        write_provenance(panel->runs[i], out);
    }
    arena_free(arena);
}

void report_write_html(const struct report * r, FILE * out) {
    char text[256];
    page_begin("Length extrapolation", out);
    fputs("<p class=\"faint\">", out);
    markup_text(out, report_subtitle(r, text, sizeof(text)));
    fputs("</p>\n", out);
    for (int p = 0; p < r->n_panels; ++p) {
        write_panel(r, p, out);
    }
    fputs("<p class=\"note\">", out);
    markup_text(out, REPORT_LEGEND);
    fputs("</p>\n", out);
    page_end(out);
}
