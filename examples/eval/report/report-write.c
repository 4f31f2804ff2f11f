#include "eval/report/report-write.h"

#include "base/arena.h"
#include "chart/chart.h"
#include "chart/markup.h"
#include "eval/report/report-columns.h"
#include "memory.h"
#include "lrnn.h"

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

#define LIGHT                                                                \
    "--paper:#fff;--ink:#1b1b1b;--faint:#5b5b5b;--line:#ddd;--head:#f4f5f6;" \
    "--warn:#8a4b00;--best:#e5f1fa"
#define DARK                                                                       \
    "--paper:#15171a;--ink:#eceef0;--faint:#a3a8ae;--line:#30343a;--head:#1d2024;" \
    "--warn:#ffb866;--best:#16324a"

// clang-format off
static const char STYLE[] =
        ":root{color-scheme:light dark;" LIGHT "}\n"
        "@media (prefers-color-scheme:dark){:root{" DARK "}}\n"
        "body{margin:0 auto;padding:1.2rem;max-width:60rem;background:var(--paper);"
        "color:var(--ink);"
        "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',Arial,sans-serif}\n"
        "h1{font-size:1.5rem;margin:.2rem 0}"
        "h2{font-size:1.2rem;margin:2.2rem 0 .3rem;border-top:1px solid var(--line);"
        "padding-top:1rem}"
        "h3{font-size:1rem;margin:1.4rem 0 .3rem}"
        "p{margin:.4rem 0}\n"
        ".faint,.note,figcaption{color:var(--faint)}"
        ".note{font-size:.87rem}"
        "figure{margin:1.2rem 0}"
        "figcaption{font-weight:600;color:var(--ink);margin-bottom:.3rem}\n"
        ".scroll{overflow-x:auto}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.87rem}\n"
        "th,td{padding:.18rem .7rem;text-align:right;white-space:nowrap;"
        "border-bottom:1px solid var(--line)}"
        "th{font-weight:600}"
        "tr:first-child th{background:var(--head)}"
        "th:first-child,table.left th,table.left td{text-align:left}\n"
        "tr.rule td{text-align:left;color:var(--faint);font-size:.8rem;"
        "border-bottom:1.5px dashed var(--faint);padding-top:0}"
        "td.best{background:var(--best);font-weight:600}\n"
        ".warn{color:var(--warn)}"
        "code{font-size:.87em;overflow-wrap:anywhere}"
        "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.87rem}"
        "dt{color:var(--faint)}"
        "dd{margin:0;overflow-wrap:anywhere}"
        "details{margin:.5rem 0}"
        "summary{cursor:pointer}\n"
        "@media print{:root{" LIGHT "}"
        "body{max-width:none;font-size:10pt}"
        "figure,tr{break-inside:avoid}"
        ".scroll{overflow:visible}}\n"
        "@media (max-width:34rem){body{padding:.7rem}"
        "th,td{padding:.15rem .4rem}"
        "dl{grid-template-columns:1fr}"
        "dd{margin-bottom:.4rem}}\n";
// clang-format on

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
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, "
          "initial-scale=1\"/>\n"
          "<title>Length extrapolation</title>\n<style>\n",
            out);
    fputs(STYLE, out);
    chart_write_style(out);
    fputs("</style>\n</head>\n<body>\n<h1>Length extrapolation</h1>\n<p class=\"faint\">", out);
    markup_text(out, report_subtitle(r, text, sizeof(text)));
    fputs("</p>\n", out);
    for (int p = 0; p < r->n_panels; ++p) {
        write_panel(r, p, out);
    }
    fputs("<p class=\"note\">", out);
    markup_text(out, REPORT_LEGEND);
    fprintf(out, " lrnn %s, ggml ", lrnn_version());
    markup_text(out, lrnn_ggml_version());
    fputs(".</p>\n</body>\n</html>\n", out);
}
