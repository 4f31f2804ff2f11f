#include "eval/report/page.h"

#include "chart/chart.h"
#include "chart/markup.h"
#include "lrnn.h"

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

void page_begin(const char * title, FILE * out) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, "
          "initial-scale=1\"/>\n<title>",
            out);
    markup_text(out, title);
    fputs("</title>\n<style>\n", out);
    fputs(STYLE, out);
    chart_write_style(out);
    fputs("</style>\n</head>\n<body>\n<h1>", out);
    markup_text(out, title);
    fputs("</h1>\n", out);
}

void page_end(FILE * out) {
    fprintf(out, "<p class=\"note\">lrnn %s, ggml ", lrnn_version());
    markup_text(out, lrnn_ggml_version());
    fputs(".</p>\n</body>\n</html>\n", out);
}
