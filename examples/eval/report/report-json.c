#include "eval/report/report-write.h"

#include "json-write.h"
#include "eval/report/report-columns.h"
#include "lrnn.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void exact_number(struct json_writer * w, const char * key, double x) {
    json_exact(w, key, x, 9, false);
}

static void write_range(struct json_writer * w, const struct position_range * range) {
    json_int(w, "from", range->from);
    json_int(w, "to", range->to);
}

// "a\tb" as an array
static void write_list(struct json_writer * w, const char * key, const char * list) {
    json_array(w, key);
    for (const char * p = list; *p != '\0';) {
        const size_t n = strcspn(p, "\t");
        json_bytes(w, NULL, p, n);
        p += n + (p[n] == '\t');
    }
    json_end(w);
}

static void write_value(struct json_writer * w, const char * key, struct report_value v) {
    switch (v.type) {
        case REPORT_INT: json_int(w, key, v.integer); break;
        case REPORT_NUMBER: json_number(w, key, v.number); break;
        case REPORT_TEXT: json_string(w, key, v.text); break;
    }
}

static void write_row(
        struct json_writer * w, int in, const struct report_run * run, const struct loss * loss) {
    const struct report_row      row = { .run = run, .loss = loss };
    const struct report_column * c;
    for (int i = 0; (c = report_column_at(in, i)) != NULL; ++i) {
        write_value(w, c->key, c->get(&row));
    }
    json_end(w);
}

static void write_losses(struct json_writer * w, const char * key, int in,
        const struct report_run * run, const struct losses * l) {
    json_array(json_line(w, 4), key);
    for (int i = 0; i < l->n; ++i) {
        json_object(json_line(w, 6), NULL);
        write_row(w, in, run, &l->at[i]);
    }
    json_end(w);
}

// - is_estimate: only the columns of the difference itself
static void write_paired(struct json_writer * w, const struct paired * p, bool is_estimate) {
    const struct paired_column * c;
    for (int i = 0; (c = paired_column_at(i)) != NULL; ++i) {
        if (!is_estimate || c->of_estimate) {
            write_value(w, c->key, c->get(p));
        }
    }
    json_end(w);
}

static void write_estimate(struct json_writer * w, const struct stats_estimate * e) {
    write_paired(w, &(struct paired) { .difference = *e }, true);
}

static void write_facts(struct json_writer * w, const struct report_run * run) {
    const char *               section = "";
    const struct report_fact * f;
    for (int i = 0; (f = report_fact_at(i)) != NULL; ++i) {
        if (f->key == NULL) {
            continue;
        }
        if (strcmp(section, f->section) != 0) {
            if (section[0] != '\0') {
                json_end(w);
            }
            json_object(json_line(w, 4), f->section);
            section = f->section;
        }
        switch (f->type) {
            case FACT_INT: json_int(w, f->key, report_fact_int(f, run)); break;
            case FACT_BOOL: json_bool(w, f->key, report_fact_int(f, run) != 0); break;
            case FACT_TEXT: json_string(w, f->key, report_fact_text(f, run)); break;
            case FACT_LIST: write_list(w, f->key, report_fact_text(f, run)); break;
        }
    }
    json_end(w);
}

static void write_positions(struct json_writer * w, const struct summary * s) {
    json_object(json_line(w, 4), "positions");
    json_int(w, "stride", s->stride);
    json_array(w, "loss");
    for (int64_t i = 0; i < s->n_positions; ++i) {
        json_number(w, NULL, s->position_loss[i]);
    }
    json_end(w);
    json_end(w);
}

// Targets by source, then of none, per bucket.
static void write_composition(struct json_writer * w, const struct summary * s) {
    if (s->n_sources == 0) {
        return;
    }
    json_array(json_line(w, 4), "composition");
    for (int b = 0; b < s->buckets.n; ++b) {
        json_array(w, NULL);
        for (int k = 0; k <= s->n_sources; ++k) {
            json_int(w, NULL, s->composition[b * (s->n_sources + 1) + k]);
        }
        json_end(w);
    }
    json_end(w);
}

static void write_norms(struct json_writer * w, const struct summary * s) {
    if (s->norms == NULL) {
        return;
    }
    json_array(json_line(w, 4), "state_norm");
    for (int b = 0; b < s->buckets.n; ++b) {
        const struct range_norm * f = &s->norms[b];
        if (f->windows > 0) {
            json_object(json_line(w, 6), NULL);
            write_range(w, &s->buckets.at[b].range);
            json_int(w, "windows", f->windows);
            json_number(w, "median", f->median);
            json_number(w, "most", f->most);
            json_int(w, "layer", f->layer);
            json_end(w);
        }
    }
    json_end(w);
}

static void write_extrapolation(struct json_writer * w, const struct summary * s) {
    const struct extrapolation * e = &s->extrapolation;
    json_object(json_line(w, 4), "extrapolation");
    json_int(w, "trained_length", e->trained_length);
    if (e->inside >= 0) {
        json_object(w, "inside");
        write_range(w, &s->buckets.at[e->inside].range);
        json_number(w, "nll", s->buckets.at[e->inside].nats.value);
        json_end(w);
    } else {
        json_null(w, "inside");
    }
    json_array(w, "at");
    for (int i = 0; i < e->n; ++i) {
        const struct loss * f = &s->buckets.at[e->bucket[i]];
        json_object(w, NULL);
        json_int(w, "factor", e->factor[i]);
        write_range(w, &f->range);
        json_number(w, "nll", f->nats.value);
        write_estimate(w, &e->difference[i]);
    }
    json_end(w);
    if (e->degrades >= 0) {
        json_object(w, "degrades_from");
        json_int(w, "position", s->buckets.at[e->degrades].range.from);
        json_int(w, "best", s->buckets.at[e->best].range.from);
        write_estimate(w, &e->rise);
    } else {
        json_null(w, "degrades_from");
    }
    json_end(w);
}

// For paired comparisons: the exact sums of every window in every bucket; null: diverged.
static void write_units(struct json_writer * w, const struct summary * s) {
    json_array(json_line(w, 4), "units");
    for (int64_t u = 0; u < s->n_units; ++u) {
        json_object(json_line(w, 6), NULL);
        json_int(w, "index", s->unit[u]);
        json_array(w, "buckets");
        for (int b = 0; b < s->buckets.n; ++b) {
            const struct score_cell * c = &s->buckets.cells[u * s->buckets.n + b];
            if (c->diverged) {
                json_null(w, NULL);
                continue;
            }
            json_array(w, NULL);
            exact_number(w, NULL, c->nll);
            json_int(w, NULL, c->tokens);
            json_int(w, NULL, c->bytes);
            json_int(w, NULL, c->hits);
            json_end(w);
        }
        json_end(w);
        json_end(w);
    }
    json_end(w);
}

static void write_windows(struct json_writer * w, const struct report_run * run) {
    const struct summary * s = &run->summary;
    json_array(json_line(w, 4), "windows");
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * window = &run->scores.windows[i];
        double                      nll = 0.0;
        int64_t                     tokens = 0;
        for (int64_t t = 1; t <= window->n_targets; ++t) {
            if (window->flags[t - 1] & SCORE_COUNTED) {
                nll += (double) window->nll[t - 1];
                tokens++;
            }
        }
        json_object(json_line(w, 6), NULL);
        json_int(w, "index", window->index);
        exact_number(w, "nll", nll);
        json_int(w, "tokens", tokens);
        if (s->diverged_from[i] > 0) {
            json_int(w, "diverged_from", s->diverged_from[i]);
        }
        json_array(w, "source"); // [first token, document, byte, file]
        for (int32_t k = 0; k < window->n_spans; ++k) {
            const struct window_span * p = &window->spans[k];
            json_array(w, NULL);
            json_int(w, NULL, p->first);
            json_int(w, NULL, p->document);
            json_int(w, NULL, p->byte);
            json_int(w, NULL, p->file);
            json_end(w);
        }
        json_end(w);
        json_end(w);
    }
    json_end(w);
}

static void write_run(struct json_writer * w, const struct report_run * run) {
    const struct summary * s = &run->summary;
    json_object(json_line(w, 2), NULL);
    write_facts(w, run);
    json_object(json_line(w, 4), "total");
    write_row(w, REPORT_JSON_TOTAL, run, &s->total.at[0]);
    write_losses(w, "buckets", REPORT_JSON_BUCKETS, run, &s->buckets);
    write_losses(w, "prefix", REPORT_JSON_PREFIX, run, &s->prefixes);
    write_positions(w, s);
    write_composition(w, s);
    write_norms(w, s);
    write_extrapolation(w, s);
    write_windows(w, run);
    write_units(w, s);
    json_array(json_line(w, 4), "warnings");
    for (int i = 0; i < s->n_warnings; ++i) {
        json_string(w, NULL, s->warnings[i]);
    }
    json_end(w);
    json_end(json_line(w, 2));
}

static void write_tokens(struct json_writer * w, const char * key, const struct paired * p) {
    json_object(w, key);
    json_number(w, "ppl_ratio", exp(p->difference.value));
    write_paired(w, p, false);
}

static void write_bytes(struct json_writer * w, const char * key, const struct paired * p) {
    json_object(json_line(w, 4), key);
    json_string(w, "unit", "bits per byte");
    write_paired(w, p, false);
}

static void write_comparison(
        struct json_writer * w, const struct report_panel * panel, const struct report_run * run) {
    const struct comparison *      c = &run->comparison;
    const struct byte_comparison * b = &run->bytes;
    json_object(json_line(w, 2), NULL);
    json_string(w, "dataset", panel->title);
    json_string(w, "base", panel->runs[panel->baseline]->name);
    json_string(w, "other", run->name);
    if (c->base != NULL) {
        json_string(w, "unit", "nats per token");
        json_int(w, "trained_length", c->trained_length);
        json_int(w, "windows_left_out", c->n_left_out);
        json_line(w, 4);
        write_tokens(w, "all", &c->all);
        json_line(w, 4);
        write_tokens(w, "beyond_trained_length", &c->beyond);
        json_array(json_line(w, 4), "buckets");
        for (int k = 0; k < c->n_buckets; ++k) {
            json_object(json_line(w, 6), NULL);
            write_range(w, &c->base->buckets.at[k].range);
            json_number(w, "ppl_ratio", exp(c->buckets[k].difference.value));
            write_paired(w, &c->buckets[k], false);
        }
        json_end(w);
    } else if (b->bytes > 0) {
        json_string(w, "unit", "bits per byte");
        json_int(w, "bytes", b->bytes);
        json_int(w, "base_bytes", b->base_bytes);
        json_int(w, "other_bytes", b->other_bytes);
        json_number(w, "base_bpb", b->base.value);
        json_number(w, "other_bpb", b->other.value);
        write_bytes(w, "all", &b->all);
        write_bytes(w, "beyond_trained_length", &b->beyond);
    } else {
        json_string(w, "refused", run->refused != NULL ? run->refused : "");
    }
    json_end(w);
}

void report_write_json(const struct report * r, FILE * out) {
    struct json_writer w = { .out = out };
    json_object(&w, NULL);
    json_string(&w, "schema", "lrnn-perplexity/2");
    json_string(&w, "lrnn", lrnn_version());
    json_string(&w, "ggml", lrnn_ggml_version());
    json_number(&w, "level", STATS_LEVEL);
    json_int(&w, "draws", STATS_DRAWS);
    json_int(&w, "seed", (int64_t) STATS_SEED);
    json_array(json_line(&w, 2), "runs");
    for (int i = 0; i < r->n_runs; ++i) {
        write_run(&w, &r->runs[i]);
    }
    json_end(&w);
    json_array(json_line(&w, 2), "comparisons");
    json_line(&w, 0);
    for (int p = 0; p < r->n_panels; ++p) {
        for (int i = 0; i < r->panels[p].n; ++i) {
            if (i != r->panels[p].baseline) {
                write_comparison(&w, &r->panels[p], r->panels[p].runs[i]);
            }
        }
    }
    json_end(&w);
    json_end(json_line(&w, 0));
    putc('\n', out);
}
