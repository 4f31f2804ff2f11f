#include "eval/report/report-write.h"

#include "base/json-write.h"
#include "eval/report/report-columns.h"
#include "lrnn.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Writes the fewest digits that read back as the same double.
static void exact_number(FILE * out, double x) {
    char text[40] = "null";
    for (int digits = 9; digits <= 17 && isfinite(x); ++digits) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x) {
            break;
        }
    }
    fputs(text, out);
}

static void key(FILE * out, const char * name, bool is_first) {
    fprintf(out, "%s\"%s\": ", is_first ? "" : ", ", name);
}

static void text_field(FILE * out, const char * name, const char * text, bool is_first) {
    key(out, name, is_first);
    json_write_string(out, text);
}

static void number_field(FILE * out, const char * name, double x) {
    key(out, name, false);
    json_write_number(out, x);
}

static void int_field(FILE * out, const char * name, int64_t x) {
    fprintf(out, ", \"%s\": %" PRId64, name, x);
}

// "a\tb" as an array
static void write_list(FILE * out, const char * list) {
    putc('[', out);
    for (const char * p = list; *p != '\0';) {
        const size_t n = strcspn(p, "\t");
        fputs(p == list ? "" : ", ", out);
        json_write_bytes(out, p, n);
        p += n + (p[n] == '\t');
    }
    putc(']', out);
}

static void value_field(FILE * out, const char * name, struct report_value v, bool is_first) {
    key(out, name, is_first);
    switch (v.type) {
        case REPORT_INT: fprintf(out, "%" PRId64, v.integer); break;
        case REPORT_NUMBER: json_write_number(out, v.number); break;
        case REPORT_TEXT: json_write_string(out, v.text); break;
    }
}

static void row_fields(
        FILE * out, int in, const struct report_run * run, const struct loss * loss) {
    const struct report_row      row = { .run = run, .loss = loss };
    const struct report_column * c;
    for (int i = 0; (c = report_column_at(in, i)) != NULL; ++i) {
        value_field(out, c->key, c->get(&row), i == 0);
    }
}

static void write_losses(FILE * out, const char * name, int in, const struct report_run * run,
        const struct losses * l) {
    fprintf(out, ",\n    \"%s\": [", name);
    for (int i = 0; i < l->n; ++i) {
        fputs(i == 0 ? "\n      { " : ",\n      { ", out);
        row_fields(out, in, run, &l->at[i]);
        fputs(" }", out);
    }
    fputs("]", out);
}

// - is_estimate: only the columns of the difference itself
static void paired_fields(FILE * out, const struct paired * p, bool is_estimate) {
    const struct paired_column * c;
    for (int i = 0; (c = paired_column_at(i)) != NULL; ++i) {
        if (!is_estimate || c->of_estimate) {
            value_field(out, c->key, c->get(p), false);
        }
    }
}

static void estimate_fields(FILE * out, const struct stats_estimate * e) {
    paired_fields(out, &(struct paired) { .difference = *e }, true);
}

static void write_facts(FILE * out, const struct report_run * run) {
    const char *               section = "";
    const struct report_fact * f;
    for (int i = 0; (f = report_fact_at(i)) != NULL; ++i) {
        if (f->key == NULL) {
            continue;
        }
        const bool is_first = strcmp(section, f->section) != 0;
        if (is_first) {
            fprintf(out, "%s    \"%s\": { ", i == 0 ? "" : " },\n", f->section);
            section = f->section;
        }
        key(out, f->key, is_first);
        const char *  text = report_fact_text(f, run);
        const int64_t x    = report_fact_int(f, run);
        switch (f->type) {
            case FACT_INT: fprintf(out, "%" PRId64, x); break;
            case FACT_BOOL: fputs(x != 0 ? "true" : "false", out); break;
            case FACT_TEXT: json_write_string(out, text); break;
            case FACT_LIST: write_list(out, text); break;
        }
    }
    fputs(" }", out);
}

static void write_positions(FILE * out, const struct summary * s) {
    fprintf(out, ",\n    \"positions\": { \"stride\": %" PRId64 ", \"loss\": [", s->stride);
    for (int64_t i = 0; i < s->n_positions; ++i) {
        fputs(i == 0 ? "" : ", ", out);
        json_write_number(out, s->position_loss[i]);
    }
    fputs("] }", out);
}

static void write_composition(FILE * out, const struct summary * s) {
    if (s->n_sources == 0) {
        return;
    }
    fputs(",\n    \"composition\": [", out); // targets by source, then of none, per bucket
    for (int b = 0; b < s->buckets.n; ++b) {
        fputs(b == 0 ? "[" : ", [", out);
        for (int k = 0; k <= s->n_sources; ++k) {
            fprintf(out, "%s%" PRId64, k == 0 ? "" : ", ",
                    s->composition[b * (s->n_sources + 1) + k]);
        }
        putc(']', out);
    }
    fputs("]", out);
}

static void write_norms(FILE * out, const struct summary * s) {
    bool is_first = true;
    fputs(s->norms != NULL ? ",\n    \"state_norm\": [" : "", out);
    for (int b = 0; b < s->buckets.n && s->norms != NULL; ++b) {
        const struct range_norm * f = &s->norms[b];
        if (f->windows > 0) {
            fprintf(out, "%s{ \"from\": %" PRId64 ", \"to\": %" PRId64,
                    is_first ? "\n      " : ",\n      ", s->buckets.at[b].range.from,
                    s->buckets.at[b].range.to);
            int_field(out, "windows", f->windows);
            number_field(out, "median", f->median);
            number_field(out, "most", f->most);
            int_field(out, "layer", f->layer);
            fputs(" }", out);
            is_first = false;
        }
    }
    fputs(s->norms != NULL ? "]" : "", out);
}

static void write_extrapolation(FILE * out, const struct summary * s) {
    const struct extrapolation * e = &s->extrapolation;
    fprintf(out, ",\n    \"extrapolation\": { \"trained_length\": %" PRId64 ", \"inside\": ",
            e->trained_length);
    if (e->inside >= 0) {
        const struct loss * f = &s->buckets.at[e->inside];
        fprintf(out, "{ \"from\": %" PRId64 ", \"to\": %" PRId64, f->range.from, f->range.to);
        number_field(out, "nll", f->nats.value);
        fputs(" }", out);
    } else {
        fputs("null", out);
    }
    fputs(", \"at\": [", out);
    for (int i = 0; i < e->n; ++i) {
        const struct loss * f = &s->buckets.at[e->bucket[i]];
        fprintf(out, "%s{ \"factor\": %d, \"from\": %" PRId64 ", \"to\": %" PRId64,
                i == 0 ? "" : ", ", e->factor[i], f->range.from, f->range.to);
        number_field(out, "nll", f->nats.value);
        estimate_fields(out, &e->difference[i]);
        fputs(" }", out);
    }
    fputs("], \"degrades_from\": ", out);
    if (e->degrades >= 0) {
        fprintf(out, "{ \"position\": %" PRId64 ", \"best\": %" PRId64,
                s->buckets.at[e->degrades].range.from, s->buckets.at[e->best].range.from);
        estimate_fields(out, &e->rise);
        fputs(" } }", out);
    } else {
        fputs("null }", out);
    }
}

// For paired comparisons: the exact sums of every window in every bucket; null: diverged.
static void write_units(FILE * out, const struct summary * s) {
    fputs(",\n    \"units\": [", out);
    for (int64_t u = 0; u < s->n_units; ++u) {
        fprintf(out, "%s{ \"index\": %" PRId64 ", \"buckets\": [",
                u == 0 ? "\n      " : ",\n      ", s->unit[u]);
        for (int b = 0; b < s->buckets.n; ++b) {
            const struct score_cell * c = &s->buckets.cells[u * s->buckets.n + b];
            fputs(b == 0 ? "" : ", ", out);
            if (c->diverged) {
                fputs("null", out);
            } else {
                putc('[', out);
                exact_number(out, c->nll);
                fprintf(out, ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", c->tokens, c->bytes,
                        c->hits);
            }
        }
        fputs("] }", out);
    }
    fputs("]", out);
}

static void write_windows(FILE * out, const struct report_run * run) {
    const struct summary * s = &run->summary;
    fputs(",\n    \"windows\": [", out);
    for (int64_t i = 0; i < s->n_windows; ++i) {
        const struct score_window * w      = &run->scores.windows[i];
        double                      nll    = 0.0;
        int64_t                     tokens = 0;
        for (int64_t t = 1; t <= w->n_targets; ++t) {
            if (w->flags[t - 1] & SCORE_COUNTED) {
                nll += (double) w->nll[t - 1];
                tokens++;
            }
        }
        fprintf(out, "%s{ \"index\": %" PRId64 ", \"nll\": ", i == 0 ? "\n      " : ",\n      ",
                w->index);
        exact_number(out, nll);
        int_field(out, "tokens", tokens);
        if (s->diverged_from[i] > 0) {
            int_field(out, "diverged_from", s->diverged_from[i]);
        }
        fputs(", \"source\": [", out); // [first token, document, byte, file]
        for (int32_t k = 0; k < w->n_spans; ++k) {
            const struct window_span * p = &w->spans[k];
            fprintf(out, "%s[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId32 "]",
                    k == 0 ? "" : ", ", p->first, p->document, p->byte, p->file);
        }
        fputs("] }", out);
    }
    fputs("]", out);
}

static void write_warnings(FILE * out, const struct summary * s) {
    fputs(",\n    \"warnings\": [", out);
    for (int i = 0; i < s->n_warnings; ++i) {
        fputs(i == 0 ? "" : ", ", out);
        json_write_string(out, s->warnings[i]);
    }
    fputs("]", out);
}

static void write_run(FILE * out, const struct report_run * run) {
    const struct summary * s = &run->summary;
    fputs("  {\n", out);
    write_facts(out, run);
    fputs(",\n    \"total\": { ", out);
    row_fields(out, REPORT_JSON_TOTAL, run, &s->total.at[0]);
    fputs(" }", out);
    write_losses(out, "buckets", REPORT_JSON_BUCKETS, run, &s->buckets);
    write_losses(out, "prefix", REPORT_JSON_PREFIX, run, &s->prefixes);
    write_positions(out, s);
    write_composition(out, s);
    write_norms(out, s);
    write_extrapolation(out, s);
    write_windows(out, run);
    write_units(out, s);
    write_warnings(out, s);
    fputs("\n  }", out);
}

static void write_comparison(FILE * out, const struct report_panel * panel, int i) {
    const struct comparison *      c = &panel->comparisons[i];
    const struct byte_comparison * b = &panel->bytes[i];
    fputs("  { ", out);
    text_field(out, "dataset", panel->title, true);
    text_field(out, "base", panel->runs[panel->baseline]->name, false);
    text_field(out, "other", panel->runs[i]->name, false);
    if (c->base != NULL) {
        text_field(out, "unit", "nats per token", false);
        int_field(out, "trained_length", c->trained_length);
        int_field(out, "windows_left_out", c->n_left_out);
        fputs(",\n    \"all\": { \"ppl_ratio\": ", out);
        json_write_number(out, exp(c->all.difference.value));
        paired_fields(out, &c->all, false);
        fputs(" },\n    \"beyond_trained_length\": { \"ppl_ratio\": ", out);
        json_write_number(out, exp(c->beyond.difference.value));
        paired_fields(out, &c->beyond, false);
        fputs(" },\n    \"buckets\": [", out);
        for (int k = 0; k < c->n_buckets; ++k) {
            const struct position_range * range = &c->base->buckets.at[k].range;
            fprintf(out, "%s{ \"from\": %" PRId64 ", \"to\": %" PRId64,
                    k == 0 ? "\n      " : ",\n      ", range->from, range->to);
            number_field(out, "ppl_ratio", exp(c->buckets[k].difference.value));
            paired_fields(out, &c->buckets[k], false);
            fputs(" }", out);
        }
        fputs("]", out);
    } else if (b->bytes > 0) {
        text_field(out, "unit", "bits per byte", false);
        int_field(out, "bytes", b->bytes);
        int_field(out, "base_bytes", b->base_bytes);
        int_field(out, "other_bytes", b->other_bytes);
        number_field(out, "base_bpb", b->base.value);
        number_field(out, "other_bpb", b->other.value);
        fputs(",\n    \"all\": { \"unit\": \"bits per byte\"", out);
        paired_fields(out, &b->all, false);
        fputs(" },\n    \"beyond_trained_length\": { \"unit\": \"bits per byte\"", out);
        paired_fields(out, &b->beyond, false);
        fputs(" }", out);
    } else {
        text_field(out, "refused", panel->refused[i] != NULL ? panel->refused[i] : "", false);
    }
    fputs(" }", out);
}

bool report_write_json(const struct report * r, FILE * out) {
    bool is_first = true;
    fputs("{ \"schema\": \"lrnn-perplexity/2\"", out);
    text_field(out, "lrnn", lrnn_version(), false);
    text_field(out, "ggml", lrnn_ggml_version(), false);
    fprintf(out, ", \"level\": %g, \"draws\": %d, \"seed\": %" PRIu64 ",\n  \"runs\": [\n",
            STATS_LEVEL, STATS_DRAWS, STATS_SEED);
    for (int i = 0; i < r->n_runs; ++i) {
        fputs(i == 0 ? "" : ",\n", out);
        write_run(out, &r->runs[i]);
    }
    fputs("],\n  \"comparisons\": [\n", out);
    for (int p = 0; p < r->n_panels; ++p) {
        for (int i = 0; i < r->panels[p].n; ++i) {
            if (i != r->panels[p].baseline) {
                fputs(is_first ? "" : ",\n", out);
                write_comparison(out, &r->panels[p], i);
                is_first = false;
            }
        }
    }
    fputs("]\n}\n", out);
    return true;
}
