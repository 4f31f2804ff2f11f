#include "eval/report/divergence-report.h"

#include "base/json-write.h"
#include "eval/scores/model-facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool divergence_report_make(
        struct divergence_report * r, const struct divergence_windows * found, int64_t bucket) {
    const int64_t             last   = r->window - 1;
    struct divergence_range * ranges = calloc(DIVERGENCE_RANGES_MAX + 1, sizeof(*ranges));
    bool                      ok     = ranges != NULL;
    if (ok) {
        r->n_ranges         = divergence_ranges(last, bucket, ranges, DIVERGENCE_RANGES_MAX);
        ranges[r->n_ranges] = (struct divergence_range) { 1, last };
        r->summaries =
                calloc((size_t) ((r->n_models - 1) * (r->n_ranges + 1)), sizeof(*r->summaries));
        ok = r->summaries != NULL;
    }
    for (int m = 1; m < r->n_models && ok; ++m) {
        ok = divergence_summarize(
                &found[m - 1], ranges, r->n_ranges + 1, r->summaries + (m - 1) * (r->n_ranges + 1));
    }
    free(ranges);
    return ok;
}

void divergence_report_free(struct divergence_report * r) {
    free(r->summaries);
    r->summaries = NULL;
}

static const char * base_name(const char * path) {
    const char * slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

//
// JSON
//

static void number_field(FILE * out, const char * key, double x) {
    fprintf(out, ", \"%s\": ", key);
    json_write_number(out, x);
}

static void estimate_field(FILE * out, const char * key, const struct stats_estimate * e) {
    fprintf(out, ", \"%s\": { \"value\": ", key);
    json_write_number(out, e->value);
    number_field(out, "se", e->se);
    number_field(out, "lo", e->lo);
    number_field(out, "hi", e->hi);
    fputs(" }", out);
}

static void write_summary(FILE * out, const struct divergence_summary * s) {
    fprintf(out, "{ \"from\": %" PRId64 ", \"to\": %" PRId64 ", \"positions\": %" PRId64,
            s->range.first, s->range.last, s->n);
    estimate_field(out, "kl", &s->kl);
    number_field(out, "kl_p99", s->kl_p99);
    number_field(out, "kl_max", s->kl_max);
    estimate_field(out, "nll_reference", &s->nll_p);
    estimate_field(out, "nll", &s->nll_q);
    estimate_field(out, "nll_change", &s->change);
    estimate_field(out, "same_top1", &s->same_top);
    fputs(" }", out);
}

static void write_model(FILE * out, const struct divergence_report * r, int i) {
    const struct lrnn_model_info info = lrnn_model_get_info(r->models[i]);
    fputs("{ \"file\": ", out);
    json_write_string(out, base_name(r->paths[i]));
    fprintf(out,
            ", \"family\": \"%s\", \"eigenvalues\": \"%s\", \"type\": \"%s\", \"weight_bytes\": "
            "%" PRId64 ", \"identity\": \"%016" PRIx64 "\"",
            info.family, info.eigenvalues, model_type(r->models[i], NULL), info.weight_bytes,
            info.identity);
}

void divergence_write_json(const struct divergence_report * r, FILE * out) {
    fputs("{\n  \"schema\": \"lrnn-compare/1\",\n  \"data\": { \"dataset\": ", out);
    json_write_string(out, r->dataset);
    fprintf(out,
            ", \"fingerprint\": \"%s\", \"windows\": %" PRId64 ", \"window\": %" PRId64
            ", \"tokens\": %" PRId64 " },\n  \"reference\": ",
            r->data->fingerprint, r->data->n_windows, r->window, r->data->n_tokens);
    write_model(out, r, 0);
    fputs(" },\n  \"models\": [", out);
    for (int m = 1; m < r->n_models; ++m) {
        const struct divergence_summary * s = r->summaries + (m - 1) * (r->n_ranges + 1);
        fputs(m > 1 ? ",\n    " : "\n    ", out);
        write_model(out, r, m);
        fputs(",\n      \"all\": ", out);
        write_summary(out, &s[r->n_ranges]);
        fputs(",\n      \"buckets\": [", out);
        for (int i = 0; i < r->n_ranges; ++i) {
            fputs(i > 0 ? ",\n        " : "\n        ", out);
            write_summary(out, &s[i]);
        }
        fputs("\n      ] }", out);
    }
    fputs("\n  ]\n}\n", out);
}

//
// Table
//

// The ratio of perplexities, from the difference of their logarithms, as a change in per cent.
static double percent(double ln_ratio) {
    return 100.0 * expm1(ln_ratio);
}

static void write_row(FILE * out, const struct divergence_summary * s, bool is_all) {
    const bool known        = s->kl.method != STATS_NONE;
    char       position[48] = "all";
    char       width[16]    = "-"; // half of the interval, in per cent of the mean
    char       interval[48] = "-";

    if (!is_all) {
        snprintf(position, sizeof(position), "%" PRId64 "-%" PRId64, s->range.first, s->range.last);
    }
    if (known && s->kl.value > 0.0) {
        snprintf(width, sizeof(width), "%.0f", 50.0 * (s->kl.hi - s->kl.lo) / s->kl.value);
    }
    if (known) {
        snprintf(interval, sizeof(interval), "[%+.3f, %+.3f]", percent(s->change.lo),
                percent(s->change.hi));
    }
    fprintf(out, "%-15s %9" PRId64 " %9.2e %5s %9.2e %9.4g %+8.3f %-18s %7.2f\n", position, s->n,
            s->kl.value, width, s->kl_p99, exp(s->nll_p.value), percent(s->change.value), interval,
            100.0 * s->same_top.value);
}

void divergence_write_table(const struct divergence_report * r, FILE * out) {
    fprintf(out, "reference  %s: %s, %s, %" PRId64 " bytes of weights\n", base_name(r->paths[0]),
            lrnn_model_get_info(r->models[0]).family, model_type(r->models[0], NULL),
            lrnn_model_get_info(r->models[0]).weight_bytes);
    fprintf(out, "text       %s, %" PRId64 " windows of %" PRId64 " tokens, fingerprint %.16s\n",
            r->dataset, r->data->n_windows, r->window, r->data->fingerprint);
    for (int m = 1; m < r->n_models; ++m) {
        const struct divergence_summary * s = r->summaries + (m - 1) * (r->n_ranges + 1);
        fprintf(out, "\n%s: %s, %" PRId64 " bytes of weights\n", base_name(r->paths[m]),
                model_type(r->models[m], NULL), lrnn_model_get_info(r->models[m]).weight_bytes);
        fprintf(out, "%-15s %9s %9s %5s %9s %9s %8s %-18s %7s\n", "position", "n", "KL", "+- %",
                "KL 99 %", "ppl", "change %", "95 %", "top-1 %");
        for (int i = 0; i <= r->n_ranges; ++i) {
            write_row(out, &s[i], i == r->n_ranges);
        }
    }
}
