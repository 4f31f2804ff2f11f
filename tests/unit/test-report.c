// Tests of reports in all formats: well-formed for any model name, within the columns, equal bytes
// from shards and from one file, and equal comparisons when read back.

#include "lrnn.h"
#include "base/json-read.h"
#include "base/unicode.h"
#include "chart/chart.h"
#include "eval/report/report-write.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/synthetic-scores.h"

#include <inttypes.h>
#include <unistd.h>

//
// Formats, in memory
//

struct text {
    char * data;
    size_t size;
};

enum form { JSON, BUCKETS, PREFIX, SVG, HTML, TABLE, TABLE_80, N_FORMS };

static const char * const FORM_NAMES[N_FORMS] = { "json", "buckets.csv", "prefix.csv", "svg",
    "html", "table", "table of 80 columns" };

static struct text write_form(struct test * t, const struct report * r, enum form form) {
    const struct report_screen wide = { .columns = 100 };
    const struct report_screen narrow = { .columns = 80, .utf8 = true };
    struct text                text = { 0 };
    FILE *                     out = open_memstream(&text.data, &text.size);
    switch (form) {
        case JSON: report_write_json(r, out); break;
        case BUCKETS: report_write_buckets_csv(r, out); break;
        case PREFIX: report_write_prefix_csv(r, out); break;
        case SVG: report_write_svg(r, out); break;
        case HTML: report_write_html(r, out); break;
        case TABLE: report_write_text(r, &wide, out); break;
        case TABLE_80: report_write_text(r, &narrow, out); break;
        case N_FORMS: break;
    }
    fclose(out);
    test_check(t, text.size > 0, "%s was written", FORM_NAMES[form]);
    return text;
}

static bool read_report(struct test * t, const char * const * paths, int n, enum loss_unit unit,
        bool log2_x, int64_t smooth, struct report * r) {
    const struct report_params p = { .paths = paths,
        .n_paths = n,
        .bucket = -1,
        .tolerance = 0.02,
        .unit = unit,
        .log2_x = log2_x,
        .smooth = smooth };
    struct lrnn_error          err = { LRNN_ERROR_NONE, "" };
    return test_check(t, report_read(&p, r, &err), "report: %s", err.text);
}

//
// Well-formed XML: one root, properly nested elements, quoted attributes, known entities, allowed
// characters
//

struct xml {
    const char * p, *end;
    const char * why;
};

static bool xml_fail(struct xml * x, const char * why) {
    x->why = x->why == NULL ? why : x->why;
    return false;
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == ':' || c == '_';
}

static bool xml_text(struct xml * x, const char * stop) {
    while (x->p < x->end && strchr(stop, *x->p) == NULL) {
        const unsigned char c = (unsigned char) *x->p;
        if (c == '<' || (c < 0x20 && c != '\t' && c != '\n' && c != '\r')) {
            return xml_fail(x, "a character that is not allowed");
        }
        if (c == '&') {
            static const char * const KNOWN[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#177;" };
            bool                      known = false;
            for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); ++i) {
                known |= strncmp(x->p, KNOWN[i], strlen(KNOWN[i])) == 0;
            }
            if (!known) {
                return xml_fail(x, "an unknown entity");
            }
        }
        x->p++;
    }
    return x->p < x->end || xml_fail(x, "the text ends early");
}

static bool xml_is_well_formed(const struct text * text, const char ** why) {
    enum { DEPTH = 64 };
    struct xml x = { text->data, text->data + text->size, NULL };
    struct {
        const char * name;
        size_t       n;
    } open[DEPTH];
    int depth = 0, n_roots = 0;
    *why = NULL;
    if (utf8_valid(text->data, text->size) != text->size) {
        *why = "not UTF-8";
        return false;
    }
    while (x.p < x.end && x.why == NULL) {
        if (*x.p != '<') {
            if (depth == 0) {
                if (*x.p != '\n') {
                    xml_fail(&x, "text outside the root");
                }
                x.p++;
            } else {
                xml_text(&x, "<");
            }
            continue;
        }
        x.p++;
        if (*x.p == '?' || *x.p == '!') { // a declaration, which has no '>' inside
            x.p = strchr(x.p, '>') + 1;
            continue;
        }
        const bool   ends = *x.p == '/';
        const char * name = x.p + ends;
        for (x.p = name; is_name(*x.p); ++x.p) {
        }
        const size_t n = (size_t) (x.p - name);
        if (n == 0) {
            xml_fail(&x, "an element without a name");
        } else if (ends) {
            if (depth == 0 || open[depth - 1].n != n ||
                    strncmp(open[depth - 1].name, name, n) != 0 || *x.p != '>') {
                xml_fail(&x, "an end tag without a start tag");
            }
            depth--;
            x.p++;
        } else {
            const char * attributes = x.p;
            while (*x.p == ' ') { // attributes, none twice
                const char * attribute = ++x.p;
                while (is_name(*x.p)) {
                    x.p++;
                }
                const size_t length = (size_t) (x.p - attribute);
                for (const char * q = attributes; q + length < attribute; ++q) {
                    if (q[0] == ' ' && strncmp(q + 1, attribute, length) == 0 &&
                            q[1 + length] == '=') {
                        xml_fail(&x, "an attribute twice");
                    }
                }
                if (x.p[0] != '=' || x.p[1] != '"') {
                    xml_fail(&x, "an attribute without a quoted value");
                    break;
                }
                x.p += 2;
                if (!xml_text(&x, "\"")) {
                    break;
                }
                x.p++;
            }
            n_roots += depth == 0;
            if (x.p[0] == '/' && x.p[1] == '>') {
                x.p += 2;
            } else if (*x.p == '>' && depth < DEPTH) {
                open[depth].name = name;
                open[depth++].n = n;
                x.p++;
            } else {
                xml_fail(&x, "an element that does not end");
            }
        }
    }
    if (x.why == NULL && (depth != 0 || n_roots != 1)) {
        xml_fail(&x, "expected one complete root");
    }
    *why = x.why;
    return x.why == NULL;
}

// The checker must be able to fail.
static void test_checker(struct test * t) {
    const char * why;
    const struct {
        const char * text;
        bool         ok;
    } cases[] = {
        { "<a b=\"c\">d<e/></a>", true },
        { "<a><b></a></b>", false },
        { "<a>&x;</a>", false },
        { "<a", false },
        { "<a/><b/>", false },
        { "<a b=c/>", false },
        { "<a>\x01</a>", false },
        { "<a>\xff</a>", false },
        { "<a b=\"1\" b=\"2\"/>", false },
        { "<a><</a>", false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct text text = { strdup(cases[i].text), strlen(cases[i].text) };
        test_check(t, xml_is_well_formed(&text, &why) == cases[i].ok, "the XML checker on %s",
                cases[i].text);
        free(text.data);
    }
}

//
// Formats
//

static void check_xml(struct test * t, const struct text * text, const char * what) {
    const char * why;
    const bool   ok = xml_is_well_formed(text, &why);
    test_check(t, ok, "%s is well-formed XML: %s", what, ok ? "" : why);
    // no external resources; the name of a namespace is not fetched
    const char * p = text->data;
    int          n = 0;
    while ((p = strstr(p, "http")) != NULL) {
        n += strncmp(p, "http://www.w3.org/2000/svg\"", 27) != 0;
        p++;
    }
    test_check(t,
            n == 0 && strstr(text->data, "<script") == NULL && strstr(text->data, "url(") == NULL &&
                    strstr(text->data, "@import") == NULL,
            "%s is self-contained", what);
    test_check(t, strstr(text->data, "prefers-color-scheme:dark") != NULL,
            "%s supports dark screens", what);
}

static void check_json(struct test * t, const struct text * text) {
    struct json_error    error;
    const enum json_kind kind = json_read(text->data, text->size, NULL, 0, NULL, &error);
    test_check(t, kind == JSON_OBJECT, "report.json is JSON: byte %zu: %s",
            kind == JSON_OBJECT ? (size_t) 0 : error.at, kind == JSON_OBJECT ? "" : error.what);
}

// Every row has the same number of fields, and quotes are balanced.
static void check_csv(struct test * t, const struct text * text, const char * what) {
    int  fields = 1, expected = 0, rows = 0;
    bool quoted = false;
    for (size_t i = 0; i < text->size; ++i) {
        const char c = text->data[i];
        quoted ^= c == '"';
        fields += c == ',' && !quoted;
        if (c == '\n' && !quoted) {
            expected = rows++ == 0 ? fields : expected;
            test_check(t, fields == expected, "%s: row %d has %d fields, the header has %d", what,
                    rows, fields, expected);
            fields = 1;
        }
    }
    test_check(t, !quoted && rows > 1, "%s: %d rows", what, rows);
}

static void check_columns(
        struct test * t, const struct text * text, int columns, bool ascii, const char * what) {
    static const char * const SYMBOLS[] = { "±", "−", "–", "…", "×" };
    int                       n = 0, longest = 0;
    bool                      plain = true, has_controls = false;
    for (int i = 0; i < 5; ++i) {
        plain &= strstr(text->data, SYMBOLS[i]) == NULL;
    }
    for (size_t i = 0; i < text->size; ++i) {
        const unsigned char c = (unsigned char) text->data[i];
        has_controls |= (c < 0x20 && c != '\n') || c == 0x7f ||
                        (c == 0xc2 && (unsigned char) text->data[i + 1] < 0xa0);
        n = c == '\n' ? 0 : n + ((c & 0xc0) != 0x80);
        longest = n > longest ? n : longest;
    }
    test_check(t, longest <= columns && longest > columns / 2,
            "%s: the longest line has %d columns, limit %d", what, longest, columns);
    test_check(t, !ascii || plain, "%s: a symbol is not ASCII", what);
    test_check(t, !has_controls, "%s: control characters", what);
    test_check(t, utf8_valid(text->data, text->size) == text->size, "%s: not UTF-8", what);
}

static void check_forms(struct test * t, const struct report * r) {
    for (enum form f = 0; f < N_FORMS; ++f) {
        struct text text = write_form(t, r, f);
        if (f == SVG || f == HTML) {
            check_xml(t, &text, FORM_NAMES[f]);
        } else if (f == JSON) {
            check_json(t, &text);
        } else if (f == BUCKETS || f == PREFIX) {
            check_csv(t, &text, FORM_NAMES[f]);
        } else {
            check_columns(t, &text, f == TABLE ? 100 : 80, f != TABLE_80, FORM_NAMES[f]);
        }
        free(text.data);
    }
}

// Names that need escapes in every format, a degrading model, non-finite losses, two tokenizers,
// sources.
static void test_forms(struct test * t) {
    const char * paths[] = { "test-report-0.nll", "test-report-1.nll", "test-report-2.nll",
        "test-report-3.nll", "test-report-4.nll", "test-report-5.nll" };
    const struct synthetic plain = { .model = "plain",
        .trained_length = 512,
        .window = 4096,
        .n_windows = 12,
        .level = 0.6,
        .spread = 0.2,
        .warm = 1.0,
        .sources = "web\t<b>&\"books\"" };
    struct synthetic       runs[6] = { plain, plain, plain, plain, plain, plain };
    runs[0].norm = 1.0;
    runs[1].model = "<script>\"x\" & 'y', z</script>-q4_k";
    runs[1].quantization = "q4_k";
    runs[1].level = 0.61;
    runs[2].model = "a name that is a good deal longer than any table or chart would like it to be "
                    "\xc3\xa9\xe4\xb8\xad";
    runs[2].trained_length = 1024;
    runs[2].rise = 2.0;
    runs[3].model = "nan";
    runs[3].nan_window = 5;
    runs[3].nan_position = 3000;
    runs[4].model = "other tokens";
    runs[4].tokenizer = "t1";
    runs[5] = (struct synthetic) { .model = "few windows", .dataset = "other", .level = 0.6 };
    runs[5].window = 600;
    runs[5].n_windows = 2;
    struct lrnn_error err;
    for (int i = 0; i < 6; ++i) {
        test_check(t, synthetic_write(&runs[i], paths[i], &err), "run %d: %s", i, err.text);
    }
    for (int k = 0; k < 4; ++k) {
        struct report r;
        if (read_report(t, paths, 6,
                    k == 0   ? LOSS_PPL
                    : k == 1 ? LOSS_NATS
                             : LOSS_BPB,
                    k != 1, k == 3 ? 101 : 0, &r)) {
            test_check(t, r.n_panels == (k < 2 ? 3 : 2),
                    "%d panels: tokenizers share one only in bits per byte", r.n_panels);
            test_check(t, r.runs[1].dash > 0 && r.runs[0].dash == 0, "a quantized model is dashed");
            check_forms(t, &r);
            report_free(&r);
        }
    }
    // a single run
    struct report r;
    if (read_report(t, paths, 1, LOSS_PPL, true, 0, &r)) {
        check_forms(t, &r);
        report_free(&r);
    }
    for (int i = 0; i < 6; ++i) {
        unlink(paths[i]);
    }
}

// Four shards, in any order, give the bytes of one file in every format. So does a second report.
static void test_shards(struct test * t) {
    const char *      whole[] = { "test-report-whole.nll", "test-report-other.nll" };
    const char *      shards[] = { "test-report-3of4.nll", "test-report-1of4.nll",
             "test-report-4of4.nll", "test-report-2of4.nll", "test-report-other.nll" };
    const int         number[] = { 3, 1, 4, 2 };
    struct synthetic  s = { .model = "a",
         .trained_length = 256,
         .window = 1024,
         .n_windows = 21,
         .group = 2,
         .level = 0.6,
         .spread = 0.2,
         .warm = 1.0 };
    struct report     one, again, split;
    struct lrnn_error err;

    test_check(t, synthetic_write(&s, whole[0], &err), "%s", err.text);
    s.n_shards = 4;
    for (int i = 0; i < 4; ++i) {
        s.shard = number[i];
        test_check(t, synthetic_write(&s, shards[i], &err), "%s", err.text);
    }
    s.n_shards = s.shard = 0;
    s.model = "b";
    s.wobble = 0.02;
    test_check(t, synthetic_write(&s, whole[1], &err), "%s", err.text);

    if (read_report(t, whole, 2, LOSS_PPL, true, 0, &one) &&
            read_report(t, whole, 2, LOSS_PPL, true, 0, &again) &&
            read_report(t, shards, 5, LOSS_PPL, true, 0, &split)) {
        for (enum form f = 0; f < N_FORMS; ++f) {
            struct text a = write_form(t, &one, f), b = write_form(t, &again, f),
                        c = write_form(t, &split, f);
            test_check(t, a.size == b.size && memcmp(a.data, b.data, a.size) == 0,
                    "%s: equal bytes the second time", FORM_NAMES[f]);
            test_check(t, a.size == c.size && memcmp(a.data, c.data, a.size) == 0,
                    "%s: equal bytes from shards", FORM_NAMES[f]);
            free(a.data);
            free(b.data);
            free(c.data);
        }
        report_free(&one);
        report_free(&again);
        report_free(&split);
    }
    // a missing shard, and a duplicate under another name
    const struct report_params missing = { .paths = shards, .n_paths = 3, .bucket = -1 };
    test_check(t,
            !report_read(&missing, &one, &err) && strstr(err.text, "shard 2 is missing") != NULL,
            "a missing shard: %s", err.text);
    s.model = "a";
    s.wobble = 0.0;
    s.n_shards = 4;
    s.shard = 1;
    test_check(t, synthetic_write(&s, whole[1], &err), "%s", err.text);
    const struct report_params overlap = { .paths = shards, .n_paths = 5, .bucket = -1 };
    test_check(t, !report_read(&overlap, &one, &err) && strstr(err.text, "overlap") != NULL,
            "a duplicate shard: %s", err.text);
    for (int i = 0; i < 5; ++i) {
        unlink(shards[i]);
    }
    unlink(whole[0]);
}

//
// Charts
//

// Names of lines that end close together do not touch and stay next to the axes. Also histograms, a
// single point, an empty panel.
static void test_chart(struct test * t) {
    enum { N = 12, POINTS = 20, BINS = 8 };
    static double       x[POINTS], y[N][POINTS], edges[BINS + 1], counts[BINS];
    struct chart_series series[N], steps[2];
    const char * const  names[N] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l" };
    for (int i = 0; i < POINTS; ++i) {
        x[i] = exp2(6.0 + 0.5 * i);
        for (int k = 0; k < N; ++k) {
            y[k][i] = 20.0 - 0.5 * i + (k < 9 ? 1e-3 * k : 1.5 * k);
        }
    }
    for (int k = 0; k < N; ++k) {
        series[k] = (struct chart_series) {
            .name = names[k], .n = k == 11 ? 1 : POINTS, .x = x, .y = y[k], .color = k, .dash = k
        };
    }
    for (int i = 0; i <= BINS; ++i) {
        edges[i] = -1.0 + 0.25 * i;
        counts[i % BINS] = 3.0 * i;
    }
    steps[0] = (struct chart_series) {
        .name = "layer 0", .kind = CHART_STEPS, .n = BINS, .x = edges, .y = counts
    };
    steps[1] = (struct chart_series) { .name = "layer 1",
        .kind = CHART_STEPS,
        .n = BINS,
        .x = edges,
        .y = counts,
        .color = 1,
        .dash = 1 };
    const struct chart_panel panels[] = {
        { .title = "lines",
                .x_label = "x",
                .y_label = "y",
                .x_scale = CHART_LOG2,
                .height = 250.0,
                .series = series,
                .n_series = N },
        { .title = "eigenvalues",
                .x_label = "eigenvalue",
                .y_label = "count",
                .height = 150.0,
                .series = steps,
                .n_series = 2 },
        { .title = "nothing", .x_label = "x", .height = 100.0 },
    };
    const struct chart_stack stacks[] = { { &panels[0], 1 }, { &panels[1], 2 } };
    const struct chart       chart = {
              .title = "test",
              .stacks = stacks,
              .n_stacks = 2,
              .n_across = 2,
              .panel_width = 300.0,
    };
    struct text text = { 0 };
    FILE *      out = open_memstream(&text.data, &text.size);
    chart_write(&chart, true, out);
    fclose(out);
    check_xml(t, &text, "a chart");

    double       ys[N + 2];
    int          n = 0;
    const char * p = text.data;
    while ((p = strstr(p, "<text class=\"lc-ink\" x=\"")) != NULL) { // names contain a <title>
        double       tx, ty;
        const char * end = strchr(p, '>');
        if (sscanf(p, "<text class=\"lc-ink\" x=\"%lf\" y=\"%lf\">", &tx, &ty) == 2 &&
                strncmp(end, "><title>", 8) == 0 && n < N) {
            ys[n++] = ty;
        }
        p = end;
    }
    test_check(t, n == N, "%d names", n);
    stats_sort(ys, n);
    for (int i = 1; i < n; ++i) {
        test_check(t, ys[i] - ys[i - 1] > 14.0, "names at %.1f and %.1f overlap", ys[i - 1], ys[i]);
    }
    test_check(t, ys[n - 1] - ys[0] < 255.0, "names stay next to the axes");
    free(text.data);
}

int main(void) {
    struct test t = { 0 };
    test_checker(&t);
    test_forms(&t);
    test_shards(&t);
    test_chart(&t);
    return test_end(&t, "test-report");
}
