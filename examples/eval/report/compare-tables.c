#include "eval/report/compare-tables.h"

#include "base/arena.h"
#include "base/error.h"
#include "json-write.h"
#include "eval/scores/model-facts.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

//
// Runs
//

enum column { TARGETS, FIRST, SECOND, DIFFERENCE, INTERVAL, RATIO, WON, P, N_COLUMNS };

static const char * const TITLES[N_COLUMNS] = { "targets", "first", "second", "difference",
    "95 % interval", "ratio of ppl", "windows won", "p" };

// - base, other: the two values
static void add_row(struct table * t, const char * targets, const char * base, const char * other,
        const struct paired * p, bool is_nats) {
    const struct stats_estimate * e = &p->difference;
    const int                     row = t->n_rows;
    table_set(t, row, TARGETS, "%s", targets);
    table_set(t, row, FIRST, "%s", base);
    table_set(t, row, SECOND, "%s", other);
    if (!isfinite(e->value)) {
        table_set(t, row, DIFFERENCE, "diverged");
        return;
    }
    table_set(t, row, DIFFERENCE, "%+.5f", e->value);
    table_set(t, row, WON, "%" PRId64 " of %" PRId64, p->won, e->n);
    if (e->method != STATS_NONE) {
        table_set(t, row, INTERVAL, "%+.5f .. %+.5f", e->lo, e->hi);
    }
    if (is_nats) {
        table_set(t, row, RATIO, "%.5f", exp(e->value));
    }
    table_set_p_value(t, row, P, stats_p_value(e));
}

// A table with its header alone.
static struct table * begin(
        struct arena * a, int max_rows, const char * base, const char * other, const char * unit) {
    struct table * t = table_new(a, max_rows, N_COLUMNS);
    table_head(t, TITLES);
    table_title(t, "%s (second) minus %s (first), %s", other, base, unit);
    return t;
}

static const char * show_loss(const struct loss * l, char text[32]) {
    snprintf(text, 32, isfinite(l->nats.value) ? "%.4f" : "diverged", l->nats.value);
    return text;
}

struct table * comparison_table(const struct comparison * c, struct arena * a) {
    struct table * t =
            begin(a, c->n_buckets + 3, c->base->meta.model, c->other->meta.model, "nats per token");
    const bool has_beyond = c->beyond.difference.n > 0;
    char       targets[64], base[32], other[32], left_out[96] = "";

    for (int i = 0; i < c->n_buckets; ++i) {
        const struct loss * l = &c->base->buckets.at[i];
        snprintf(targets, sizeof(targets), "%" PRId64 "\xe2\x80\x93%" PRId64, l->range.from,
                l->range.to);
        add_row(t, targets, show_loss(l, base), show_loss(&c->other->buckets.at[i], other),
                &c->buckets[i], true);
    }
    table_rule(t, c->n_buckets + 1, "together");
    add_row(t, "all", show_loss(&c->base->total.at[0], base),
            show_loss(&c->other->total.at[0], other), &c->all, true);
    if (has_beyond) {
        snprintf(targets, sizeof(targets), "beyond %" PRId64, c->trained_length);
        add_row(t, targets, "", "", &c->beyond, true);
    }
    if (c->n_left_out > 0) {
        snprintf(left_out, sizeof(left_out),
                " %" PRId64 " windows are in only one run and are excluded.", c->n_left_out);
    }
    table_note(t,
            "Paired by window; negative: the second is better. Rely on %s: of %d buckets, one in "
            "20 seems to differ by chance.%s",
            has_beyond ? "the row beyond the trained length" : "the row of all targets",
            c->n_buckets, left_out);
    return t;
}

struct table * byte_comparison_table(const struct byte_comparison * c, const char * base_name,
        const char * other_name, struct arena * a) {
    struct table * t = begin(a, 3, base_name, other_name, "bits per byte");
    char           base[32], other[32];

    snprintf(base, sizeof(base), "%.4f", c->base.value);
    snprintf(other, sizeof(other), "%.4f", c->other.value);
    add_row(t, "all", base, other, &c->all, false);
    if (c->beyond.difference.n > 0) {
        add_row(t, "beyond both lengths", "", "", &c->beyond, false);
    }
    table_note(t,
            "The tokenizers differ, so the comparison covers stretches of text that both runs "
            "scored and that begin and end between tokens of both: %" PRId64 " of %" PRId64
            " and %" PRId64 " bytes, paired by windows of the first.",
            c->bytes, c->base_bytes, c->other_bytes);
    return t;
}

//
// Models by their distributions
//

bool kl_report_make(struct kl_report * r, const struct kl_windows * found, int64_t bucket,
        struct lrnn_error * err) {
    const int64_t           last = r->window - 1;
    struct position_range * ranges = program_alloc(RANGES_MAX_BUCKETS + 1, sizeof(*ranges));
    r->n_ranges = ranges_of_buckets(last, bucket, ranges);
    if (r->n_ranges < 0) {
        free(ranges);
        return error_bad_input(err,
                "bucket is %" PRId64 ", which cuts %" PRId64 " positions into more than %d", bucket,
                last, RANGES_MAX_BUCKETS);
    }
    const int n = r->n_ranges + 1;
    ranges[r->n_ranges] = (struct position_range) { 1, last };
    r->summaries = program_alloc((size_t) ((r->n_models - 1) * n), sizeof(*r->summaries));
    for (int m = 1; m < r->n_models; ++m) {
        kl_summarize(&found[m - 1], ranges, n, r->summaries + (m - 1) * n);
    }
    free(ranges);
    return true;
}

void kl_report_free(struct kl_report * r) {
    free(r->summaries);
    r->summaries = NULL;
}

static const char * base_name(const char * path) {
    const char * slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void estimate_json(
        struct json_writer * w, const char * key, const struct stats_estimate * e) {
    json_object(w, key);
    json_number(w, "value", e->value);
    json_number(w, "se", e->se);
    json_number(w, "lo", e->lo);
    json_number(w, "hi", e->hi);
    json_end(w);
}

static void summary_json(struct json_writer * w, const char * key, const struct kl_summary * s) {
    json_object(w, key);
    json_int(w, "from", s->range.from);
    json_int(w, "to", s->range.to);
    json_int(w, "positions", s->n);
    estimate_json(w, "kl", &s->kl);
    json_number(w, "kl_p99", s->kl_p99);
    json_number(w, "kl_max", s->kl_max);
    estimate_json(w, "nll_reference", &s->nll_p);
    estimate_json(w, "nll", &s->nll_q);
    estimate_json(w, "nll_change", &s->change);
    estimate_json(w, "same_top1", &s->same_top);
    json_end(w);
}

// Begins the object of model i.
static void model_json(
        struct json_writer * w, const char * key, const struct kl_report * r, int i) {
    const struct lrnn_model_info info = lrnn_model_get_info(r->models[i]);
    char                         identity[17];
    snprintf(identity, sizeof(identity), "%016" PRIx64, info.identity);
    json_object(w, key);
    json_string(w, "file", base_name(r->paths[i]));
    json_string(w, "family", info.family);
    json_string(w, "eigenvalues", info.eigenvalues);
    json_string(w, "type", model_type(r->models[i], NULL));
    json_int(w, "weight_bytes", info.weight_bytes);
    json_string(w, "identity", identity);
}

void kl_report_write_json(const struct kl_report * r, FILE * out) {
    struct json_writer w = { .out = out };
    json_object(&w, NULL);
    json_string(json_line(&w, 2), "schema", "lrnn-compare/1");
    json_object(json_line(&w, 2), "data");
    json_string(&w, "dataset", r->dataset);
    json_string(&w, "fingerprint", r->data->fingerprint);
    json_int(&w, "windows", r->data->n_windows);
    json_int(&w, "window", r->window);
    json_int(&w, "tokens", r->data->n_tokens);
    json_end(&w);
    json_line(&w, 2);
    model_json(&w, "reference", r, 0);
    json_end(&w);
    json_array(json_line(&w, 2), "models");
    for (int m = 1; m < r->n_models; ++m) {
        const struct kl_summary * s = r->summaries + (m - 1) * (r->n_ranges + 1);
        json_line(&w, 4);
        model_json(&w, NULL, r, m);
        json_line(&w, 6);
        summary_json(&w, "all", &s[r->n_ranges]);
        json_array(json_line(&w, 6), "buckets");
        for (int i = 0; i < r->n_ranges; ++i) {
            json_line(&w, 8);
            summary_json(&w, NULL, &s[i]);
        }
        json_end(json_line(&w, 6));
        json_end(&w);
    }
    json_end(json_line(&w, 2));
    json_end(json_line(&w, 0));
    putc('\n', out);
}

// The ratio of perplexities, from the difference of their logarithms, as a change in per cent.
static double percent(double ln_ratio) {
    return 100.0 * expm1(ln_ratio);
}

static void add_kl(struct table * t, int row, const struct kl_summary * s, bool is_all) {
    char range[64] = "all";
    if (!is_all) {
        snprintf(range, sizeof(range), "%" PRId64 "\xe2\x80\x93%" PRId64, s->range.from,
                s->range.to);
    }
    table_set(t, row, 0, "%s", range);
    table_set(t, row, 1, "%" PRId64, s->n);
    table_set(t, row, 2, "%.2e", s->kl.value);
    if (s->kl.method != STATS_NONE) {
        if (s->kl.value > 0.0) { // half of the interval, in per cent of the mean
            table_set(t, row, 3, "%.0f", 50.0 * (s->kl.hi - s->kl.lo) / s->kl.value);
        }
        table_set(t, row, 7, "%+.3f .. %+.3f", percent(s->change.lo), percent(s->change.hi));
    }
    table_set(t, row, 4, "%.2e", s->kl_p99);
    table_set(t, row, 5, "%.4g", exp(s->nll_p.value));
    table_set(t, row, 6, "%+.3f", percent(s->change.value));
    table_set(t, row, 8, "%.2f", 100.0 * s->same_top.value);
}

void kl_report_write_text(const struct kl_report * r, FILE * out) {
    static const char * const HEAD[] = { "position", "n", "KL", "+- %", "KL 99 %", "ppl",
        "change %", "95 %", "top-1 %" };
    enum { N_COLS = sizeof(HEAD) / sizeof(HEAD[0]), WIDTH = 100 };
    struct arena * a = program_arena();
    fprintf(out, "reference  %s: %s, %s, %" PRId64 " bytes of weights\n", base_name(r->paths[0]),
            lrnn_model_get_info(r->models[0]).family, model_type(r->models[0], NULL),
            lrnn_model_get_info(r->models[0]).weight_bytes);
    fprintf(out, "text       %s, %" PRId64 " windows of %" PRId64 " tokens, fingerprint %.16s\n\n",
            r->dataset, r->data->n_windows, r->window, r->data->fingerprint);
    for (int m = 1; m < r->n_models; ++m) {
        struct table * t = table_new(a, r->n_ranges + 2, N_COLS);
        table_head(t, HEAD);
        table_title(t, "%s: %s, %" PRId64 " bytes of weights", base_name(r->paths[m]),
                model_type(r->models[m], NULL), lrnn_model_get_info(r->models[m]).weight_bytes);
        for (int i = 0; i <= r->n_ranges; ++i) {
            add_kl(t, i + 1, &r->summaries[(m - 1) * (r->n_ranges + 1) + i], i == r->n_ranges);
        }
        table_write_text(t, WIDTH, false, out);
    }
    arena_free(a);
}
