#include "output.h"

#include "chart/chart.h"
#include "json-write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { BAR = 24 };

// The share of sequences whose answers up to this length are all right.
static double without_error(const struct probe_row * row) {
    return row->n_sequences == 0 ? NAN : (double) row->n_all_right / (double) row->n_sequences;
}

static double accuracy(const struct probe_row * row) {
    return row->n_asked == 0 ? NAN : (double) row->n_right / (double) row->n_asked;
}

//
// Tables
//

static void bar(FILE * out, double share) {
    const int n = (int) lround(share * BAR);
    for (int i = 0; i < n; ++i) {
        fputc('#', out);
    }
    fputc('\n', out);
}

void output_lengths(FILE * out, const struct probed * probed, int n, int64_t n_sequences) {
    fprintf(out,
            "%s: chance %.3f, %" PRId64
            " sequence%s; accuracy and scaled accuracy at positions up to the length,\n"
            "and the share of sequences without any error up to there\n\n",
            probed[0].task, probed[0].chance, n_sequences, n_sequences == 1 ? "" : "s");
    fprintf(out, "%10s", "");
    for (int i = 0; i < n; ++i) {
        char name[128 + 16 + 1];
        snprintf(name, sizeof(name), "%s %s", probed[i].name, probed[i].eigenvalues);
        fprintf(out, "  %-30.30s", name);
    }
    fprintf(out, "\n%10s", "length");
    for (int i = 0; i < n; ++i) {
        fprintf(out, "  %7s  %7s  %9s%s", "answers", "scaled", "sequences", n == 1 ? "" : "   ");
    }
    fprintf(out, "\n");
    for (int r = 0; r < probed[0].result.n_rows; ++r) {
        fprintf(out, "%10" PRId64, probed[0].result.rows[r].length);
        for (int i = 0; i < n; ++i) {
            const struct probe_row * row = &probed[i].result.rows[r];
            if (row->n_asked == 0) {
                fprintf(out, "  %-30s", "-");
            } else {
                fprintf(out, "  %7.4f  %7.4f  %9.4f%s", accuracy(row),
                        probe_scaled(row, probed[i].chance), without_error(row),
                        n == 1 ? "" : "   ");
            }
        }
        fputs(n == 1 ? "  " : "\n", out);
        if (n == 1) {
            bar(out, accuracy(&probed[0].result.rows[r]));
        }
    }
    fprintf(out, "\n");
    for (int i = 0; i < n; ++i) {
        const struct probe_result * result = &probed[i].result;
        int64_t                     right = 0, asked = 0;
        for (int r = 0; r < result->n_rows; ++r) {
            right += result->rows[r].n_right;
            asked += result->rows[r].n_asked;
        }
        fprintf(out, "%s: %" PRId64 " of %" PRId64 " answers wrong", probed[i].name, asked - right,
                asked);
        if (result->first_error > 0) {
            fprintf(out, ", the first at position %" PRId64, result->first_error);
        }
        fprintf(out, "%s\n", result->stopped ? "; stopped early" : "");
    }
}

void output_scores(FILE * out, const struct probed * probed, int n, int64_t lo, int64_t hi) {
    fprintf(out, "last answer of sequences of %" PRId64 " to %" PRId64 " tokens\n\n", lo, hi);
    fprintf(out, "%-34s %-12s %-8s %9s %8s %8s\n", "model", "task", "range", "sequences",
            "accuracy", "scaled");
    for (int i = 0; i < n; ++i) {
        const struct probe_row * row = &probed[i].result.rows[0];
        fprintf(out, "%-34.34s %-12.12s %-8s %9" PRId64 " %8.3f %8.3f\n", probed[i].name,
                probed[i].task, probed[i].eigenvalues, row->n_asked, accuracy(row),
                probe_scaled(row, probed[i].chance));
    }
}

static void print_position(FILE * out, int64_t position) {
    if (position > 0) {
        fprintf(out, " %12" PRId64, position);
    } else {
        fprintf(out, " %12s", "none");
    }
}

void output_horizons(FILE * out, const struct probed * probed, int n) {
    if (n == 1) {
        const struct horizon * h = &probed[0].horizon;
        fprintf(out, "%12s %12s %12s %12s\n", "position", "readouts", "spread", "separation");
        for (int i = 0; i < h->n_rows; ++i) {
            fprintf(out, "%12" PRId64 " %12" PRId64 " %12.4g %12.4g\n", h->rows[i].position,
                    h->rows[i].n, h->rows[i].spread, h->rows[i].separation);
        }
        fprintf(out, "\n");
    }
    fprintf(out,
            "position where the spread of the readouts exceeds the margin, up to %" PRId64 "\n\n",
            probed[0].horizon.rows[probed[0].horizon.n_rows - 1].position);
    fprintf(out, "%-28s %-12s %-8s %9s %12s %12s\n", "model", "task", "range", "margin", "measured",
            "first error");
    for (int i = 0; i < n; ++i) {
        const struct horizon * h = &probed[i].horizon;
        fprintf(out, "%-28.28s %-12.12s %-8s %9.3f", probed[i].name, probed[i].task,
                probed[i].eigenvalues, h->margin);
        print_position(out, h->crossed);
        print_position(out, h->first_error);
        fprintf(out, "%s\n", h->stopped ? "  stopped early" : "");
    }
}

static const char * counted(enum lrnn_transition kind) {
    switch (kind) {
        case LRNN_TRANSITION_HOUSEHOLDER:
            return "of the factors of each token; all others are the gate";
        case LRNN_TRANSITION_RANK_ONE: return "of the transition of each token";
        case LRNN_TRANSITION_GATE:
        case LRNN_TRANSITION_EXP:
        case LRNN_TRANSITION_TWO_EXP_M1:
        case LRNN_TRANSITION_MLSTM: return "of each token: its gates";
        case LRNN_TRANSITION_NONE: break;
    }
    return "not found: no recurrent layer";
}

void output_eigenvalues(FILE * out, const struct probed * probed) {
    const struct eigenvalues *     e = &probed->spectrum;
    const struct eigenvalues_layer total = eigenvalues_total(e);

    fprintf(out, "%s, range %s\neigenvalues %s\n\n", probed->name, probed->eigenvalues,
            counted(e->kind));
    if (total.n == 0) {
        return;
    }
    fprintf(out, "%-8s %12s %9s %9s %10s %9s %9s\n", "layer", "counted", "smallest", "largest",
            "negative", "complex", "|.| > 1");
    for (int i = 0; i <= e->n_layers; ++i) {
        const struct eigenvalues_layer * l = i < e->n_layers ? &e->layers[i] : &total;
        char                             name[16];
        snprintf(name, sizeof(name), "%d", i);
        if (l->n > 0) {
            fprintf(out, "%-8s %12" PRId64 " %9.4f %9.4f %9.2f%% %8.2f%% %8.2f%%\n",
                    i < e->n_layers ? name : "all", l->n, l->lo, l->hi,
                    100.0 * (double) l->n_negative / (double) l->n,
                    100.0 * (double) l->n_complex / (double) l->n,
                    100.0 * (double) l->n_outside / (double) l->n);
        }
    }
    if (total.n_complex > 0) {
        fprintf(out, "complex: more than 0.01 radians off the real axis\n");
    }
    if (total.gate_lo <= total.gate_hi) {
        fprintf(out, "%-8s %12s %9.4f %9.4f\n", "gate", "", total.gate_lo, total.gate_hi);
    }
    int64_t most = 1;
    for (int b = 0; b < EIGENVALUES_BINS; ++b) {
        most = total.bins[b] > most ? total.bins[b] : most;
    }
    fprintf(out, "\nreal part       share\n");
    for (int b = 0; b < EIGENVALUES_BINS; b += 2) { // two bins per line: twenty lines
        const int64_t n = total.bins[b] + total.bins[b + 1];
        const double  lo = -1.0 + 2.0 * b / EIGENVALUES_BINS;
        fprintf(out, "%5.1f to %4.1f  %6.2f%%  ", lo, lo + 4.0 / EIGENVALUES_BINS,
                100.0 * (double) n / (double) total.n);
        bar(out, (double) n / (double) (2 * most));
    }
}

//
// JSON
//

static void json_layer(
        struct json_writer * w, const char * key, const struct eigenvalues_layer * l) {
    json_object(w, key);
    json_int(w, "counted", l->n);
    json_int(w, "negative", l->n_negative);
    json_int(w, "complex", l->n_complex);
    json_int(w, "outside", l->n_outside);
    json_number(w, "least", l->lo);
    json_number(w, "greatest", l->hi);
    json_number(w, "largest_absolute", l->largest);
    json_array(w, "gate");
    json_number(w, NULL, l->gate_lo);
    json_number(w, NULL, l->gate_hi);
    json_end(w);
    json_array(w, "bins");
    for (int b = 0; b < EIGENVALUES_BINS; ++b) {
        json_int(w, NULL, l->bins[b]);
    }
    json_end(w);
    json_end(w);
}

static void json_result(struct json_writer * w, const struct probed * p, bool by_length) {
    json_string(w, "task", p->task);
    json_number(w, "chance", p->chance);
    json_string(w, "asked", by_length ? "every position" : "the end");
    json_int(w, "first_error", p->result.first_error);
    json_bool(w, "stopped", p->result.stopped);
    json_array(json_line(w, 6), "lengths");
    for (int r = 0; r < p->result.n_rows; ++r) {
        const struct probe_row * row = &p->result.rows[r];
        json_object(json_line(w, 8), NULL);
        json_int(w, "length", row->length);
        json_int(w, "asked", row->n_asked);
        json_int(w, "right", row->n_right);
        json_number(w, "accuracy", accuracy(row));
        json_number(w, "scaled", probe_scaled(row, p->chance));
        json_int(w, "sequences", row->n_sequences);
        json_int(w, "sequences_right", row->n_all_right);
        json_number(w, "margin", row->margin);
        json_end(w);
    }
    json_end(json_line(w, 6));
}

static void json_horizon(struct json_writer * w, const struct probed * p) {
    const struct horizon * h = &p->horizon;
    json_string(w, "task", p->task);
    json_int(w, "first_error", h->first_error);
    json_bool(w, "stopped", h->stopped);
    json_object(json_line(w, 6), "horizon");
    json_number(w, "margin", h->margin);
    json_int(w, "measured", h->crossed);
    json_array(json_line(w, 8), "positions");
    for (int i = 0; i < h->n_rows; ++i) {
        json_object(json_line(w, 10), NULL);
        json_int(w, "position", h->rows[i].position);
        json_int(w, "readouts", h->rows[i].n);
        json_number(w, "spread", h->rows[i].spread);
        json_number(w, "separation", h->rows[i].separation);
        json_end(w);
    }
    json_end(json_line(w, 8));
    json_end(w);
}

static void json_spectrum(struct json_writer * w, const struct eigenvalues * e) {
    const struct eigenvalues_layer total = eigenvalues_total(e);
    json_object(json_line(w, 6), "spectrum");
    json_layer(json_line(w, 8), "all", &total);
    json_array(json_line(w, 8), "layers");
    for (int l = 0; l < e->n_layers; ++l) {
        json_layer(json_line(w, 10), NULL, &e->layers[l]);
    }
    json_end(json_line(w, 8));
    json_end(json_line(w, 6));
}

void output_json(FILE * out, const struct probed * probed, int n, bool by_length) {
    struct json_writer w = { .out = out };
    json_object(&w, NULL);
    json_string(json_line(&w, 2), "schema", "lrnn-probe/1");
    json_array(json_line(&w, 2), "models");
    for (int i = 0; i < n; ++i) {
        const struct probed * p = &probed[i];
        json_object(json_line(&w, 4), NULL);
        json_string(&w, "name", p->name);
        json_string(&w, "eigenvalues", p->eigenvalues);
        if (p->result.n_rows > 0) {
            json_result(&w, p, by_length);
        }
        if (p->horizon.n_rows > 0) {
            json_horizon(&w, p);
        }
        if (p->sequence.n > 0) {
            json_string(&w, "task", p->task);
            sequence_json(&w, &p->sequence);
        }
        if (p->spectrum.layers != NULL) {
            json_spectrum(&w, &p->spectrum);
        }
        json_end(&w);
    }
    json_end(json_line(&w, 2));
    json_end(json_line(&w, 0));
    putc('\n', out);
}

//
// Charts
//

enum { CHART_MODELS_MAX = 64 };

// A curve per model, by position.
struct chart_curves {
    struct chart_series series[CHART_MODELS_MAX];
    double x[CHART_MODELS_MAX][PROBE_LENGTHS_MAX], y[CHART_MODELS_MAX][PROBE_LENGTHS_MAX];
};

// What the panels of a chart point to.
struct chart_data {
    struct chart_curves curves[2];
    struct chart_series spectra[CHART_MODELS_MAX];
    struct chart_panel  panels[CHART_MODELS_MAX + 2];
    int                 n_panels;
    double              bins[EIGENVALUES_BINS + 1], shares[CHART_MODELS_MAX][EIGENVALUES_BINS];
    char                names[CHART_MODELS_MAX][96];
};

_Static_assert((int) HORIZON_ROWS_MAX <= (int) PROBE_LENGTHS_MAX, "x and y have room for both");

enum curve { CURVE_SCALED, CURVE_SEQUENCES, CURVE_HORIZON };

static double curve_y(const struct probed * p, int r, enum curve what) {
    const struct probe_row * row = &p->result.rows[r];
    switch (what) {
        case CURVE_SCALED: return probe_scaled(row, p->chance);
        case CURVE_SEQUENCES: return without_error(row);
        case CURVE_HORIZON: break;
    }
    return p->horizon.margin > 0.0 ? p->horizon.rows[r].spread / p->horizon.margin : NAN;
}

// The curves of all models in one panel.
static void add_curves(
        struct chart_data * d, const struct probed * probed, int n, enum curve what) {
    static const char * const Y_LABELS[] = { "scaled accuracy", "sequences without error",
        "spread / margin" };
    struct chart_curves *     c = &d->curves[what == CURVE_SEQUENCES];
    const bool                horizon = what == CURVE_HORIZON;
    for (int i = 0; i < n; ++i) {
        const struct probed * p = &probed[i];
        const int             n_rows = horizon ? p->horizon.n_rows : p->result.n_rows;
        for (int r = 0; r < n_rows; ++r) {
            c->x[i][r] =
                    (double) (horizon ? p->horizon.rows[r].position : p->result.rows[r].length);
            c->y[i][r] = curve_y(p, r, what);
        }
        c->series[i] = (struct chart_series) {
            .name = d->names[i],
            .n = n_rows,
            .x = c->x[i],
            .y = c->y[i],
            .color = i,
            .dash = i,
        };
    }
    d->panels[d->n_panels++] = (struct chart_panel) {
        .title = horizon ? "tracking horizon: where the spread reaches the margin" : probed[0].task,
        .x_label = "position",
        .y_label = Y_LABELS[what],
        .zero = what == CURVE_SCALED ? "chance" : NULL,
        .x_scale = CHART_LOG2,
        .y_max = horizon ? 2.0 : 0.0,
        .height = 260,
        .series = c->series,
        .n_series = n,
    };
}

static void add_spectrum(struct chart_data * d, const struct eigenvalues * spectrum, int i) {
    const struct eigenvalues_layer total = eigenvalues_total(spectrum);
    for (int b = 0; b < EIGENVALUES_BINS; ++b) {
        d->shares[i][b] = total.n > 0 ? (double) total.bins[b] / (double) total.n : 0.0;
    }
    d->spectra[i] = (struct chart_series) {
        .name = "all layers",
        .kind = CHART_STEPS,
        .n = EIGENVALUES_BINS,
        .x = d->bins,
        .y = d->shares[i],
        .color = i,
    };
    d->panels[d->n_panels++] = (struct chart_panel) {
        .title = d->names[i],
        .x_label = "real part of the eigenvalues",
        .y_label = "share",
        .x_lo = -1.0,
        .x_hi = 1.0,
        .height = 200,
        .series = &d->spectra[i],
        .n_series = 1,
    };
}

void output_svg(FILE * out, const struct probed * probed, int n) {
    struct chart_stack stacks[CHART_MODELS_MAX + 2] = { 0 };
    struct chart_data  d = { .n_panels = 0 };

    n = n < CHART_MODELS_MAX ? n : CHART_MODELS_MAX;
    for (int i = 0; i < n; ++i) {
        snprintf(d.names[i], sizeof(d.names[i]), "%.60s %s", probed[i].name, probed[i].eigenvalues);
    }
    for (int b = 0; b <= EIGENVALUES_BINS; ++b) {
        d.bins[b] = -1.0 + 2.0 * b / EIGENVALUES_BINS;
    }
    if (probed[0].horizon.n_rows > 0) {
        add_curves(&d, probed, n, CURVE_HORIZON);
    } else if (probed[0].result.n_rows > 1) {
        add_curves(&d, probed, n, CURVE_SCALED);
        add_curves(&d, probed, n, CURVE_SEQUENCES);
    }
    for (int i = 0; i < n; ++i) {
        if (probed[i].spectrum.layers != NULL) {
            add_spectrum(&d, &probed[i].spectrum, i);
        }
    }
    for (int i = 0; i < d.n_panels; ++i) {
        stacks[i] = (struct chart_stack) { .panels = &d.panels[i], .n_panels = 1 };
    }
    const struct chart chart = {
        .stacks = stacks,
        .n_stacks = d.n_panels,
        .n_across = d.n_panels < 4 ? 1 : 2,
        .panel_width = 480,
    };
    chart_write(&chart, true, out);
}
