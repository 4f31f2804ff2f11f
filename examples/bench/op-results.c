#include "op-bench.h"

#include "json-write.h"
#include "lrnn.h"
#include "program.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct results_column COLUMNS[] = { { "case", -14 }, { "T", 5 }, { "thr", 3 },
    { "stock us", 9 }, { "ours us", 8 }, { "ratio", 6 }, { "goal", -7 }, { "GFLOP/s", 7 },
    { "peak", 4 }, { "GB/s", 5 }, { "ns/tok/hd", 9 } };

enum { N_COLUMNS = sizeof(COLUMNS) / sizeof(COLUMNS[0]) };

// False if our builder rejected the shape, or if the results are wrong.
static bool has_times(const struct op_result * r) {
    return r->rejected == NULL && r->agrees;
}

static bool has_ratio(const struct op_result * r) {
    return has_times(r) && r->no_stock == NULL;
}

static double ratio(const struct op_result * r) {
    return r->stock.best / r->ours.best;
}

static double gflops(const struct op_result * r) {
    return 1e-3 * r->flops / r->ours.best;
}

// A product that rounds its columns to 8 bits differs from the reference in F32 by an NMSE of about
// 1e-5, one that rounds them to BF16 by 1e-6. Without rounding it is 1e-12.
static const double NMSE_ROUNDED = 1e-8;

struct peak {
    const char * arithmetic;
    double       gflops;
};

// The peak of the arithmetic that a case uses, which shows in its results.
static struct peak peak_of(const struct op_result * r, const struct machine_point * p) {
    const bool is_rounded = r->nmse_output > NMSE_ROUNDED;
    if (is_rounded && ggml_is_quantized(r->c->type)) {
        return (struct peak) { "int8", p->int8_gops };
    }
    if (is_rounded && r->c->type == GGML_TYPE_BF16 && p->bf16_gflops > 0.0) {
        return (struct peak) { "bf16", p->bf16_gflops };
    }
    return (struct peak) { "f32", p->fma_gflops };
}

static double gbps(const struct op_result * r) {
    return 1e-3 * r->bytes / r->ours.best;
}

static double ns_per_token_head(const struct op_result * r) {
    return 1e3 * r->ours.best / (double) (r->shape.tokens * r->shape.seqs * r->shape.heads);
}

//
// Markdown
//

// Three or four digits.
static void format_us(char * text, double us) {
    snprintf(text, RESULTS_CELL, us < 100.0 ? "%.2f" : us < 1000.0 ? "%.1f" : "%.0f", us);
}

static void print_cells(const struct op_results * out, const struct op_result * r) {
    const char * noise = op_result_is_noisy(r) ? "~" : "";
    char         cells[N_COLUMNS][RESULTS_CELL];

    for (int i = 0; i < N_COLUMNS; ++i) {
        snprintf(cells[i], RESULTS_CELL, "-");
    }
    snprintf(cells[0], RESULTS_CELL, "%s", r->c->name);
    snprintf(cells[1], RESULTS_CELL, "%" PRId64, r->shape.tokens);
    snprintf(cells[2], RESULTS_CELL, "%d", r->threads);
    snprintf(cells[4], RESULTS_CELL, "%s", r->rejected != NULL ? "refused" : "WRONG");
    if (has_times(r)) {
        format_us(cells[4], r->ours.best);
        snprintf(cells[5], RESULTS_CELL, "-%s", noise);
        snprintf(cells[7], RESULTS_CELL, "%.1f", gflops(r));
        if (!r->on_device) {
            snprintf(cells[8], RESULTS_CELL, "%.0f%%",
                    100.0 * gflops(r) / peak_of(r, machine_point(out->machine, r->threads)).gflops);
        }
        snprintf(cells[9], RESULTS_CELL, "%.1f", gbps(r));
        snprintf(cells[10], RESULTS_CELL, "%.1f", ns_per_token_head(r));
    }
    if (has_ratio(r)) {
        format_us(cells[3], r->stock.best);
        snprintf(cells[5], RESULTS_CELL, "%.2f%s", ratio(r), noise);
    }
    cells[6][0] = '\0';
    if (r->goal > 0.0) {
        const bool is_met = has_ratio(r) && ratio(r) >= r->goal;
        const bool color = terminal_has_color(stdout);
        char       goal[24];
        snprintf(goal, sizeof(goal), "%g %s", r->goal, is_met ? "met" : "not");
        snprintf(cells[6], RESULTS_CELL, "%s%-7s%s",
                color ? (is_met ? TERMINAL_GREEN : TERMINAL_RED) : "", goal,
                color ? TERMINAL_RESET : "");
    }
    results_table_row(COLUMNS, N_COLUMNS, cells);
}

// One line per case below the table: its shape, the stock ops, and how well both sides agree.
static void write_note(struct op_results * out) {
    const struct op_result * r = &out->noted;
    const struct op_shape *  s = &r->shape;
    FILE *                   f = out->notes_file;

    if (r->c == NULL) {
        return;
    }
    fprintf(f, "%s: %s; %" PRId64 "x%" PRId64, r->c->name, r->c->what, s->d_k, s->d_v);
    if (s->heads > 1) {
        fprintf(f, ", %" PRId64 " heads", s->heads);
    }
    if (s->n_h > 1) {
        fprintf(f, ", n_h %" PRId64, s->n_h);
    }
    if (s->seqs > 1) {
        fprintf(f, ", %" PRId64 " sequences", s->seqs);
    }
    if (s->layers > 1) {
        fprintf(f, ", states of %" PRId64 " layers in turn", s->layers);
    }
    if (r->rejected != NULL) {
        fprintf(f, "; refused\n");
    } else {
        fprintf(f, "; stock: %s; NMSE against %s: outputs %.0e, states %.0e\n",
                r->no_stock == NULL ? r->c->stock_name : r->no_stock, r->checked, r->nmse_output,
                r->nmse_state);
    }
}

static double worse(double a, double b) {
    return a > b || isnan(a) ? a : b;
}

static void add_note(struct op_results * out, const struct op_result * r) {
    if (out->noted.c != r->c) {
        write_note(out);
        out->noted = *r;
    } else {
        out->noted.nmse_output = worse(out->noted.nmse_output, r->nmse_output);
        out->noted.nmse_state = worse(out->noted.nmse_state, r->nmse_state);
    }
}

static void print_notes(struct op_results * out) {
    write_note(out);
    fclose(out->notes_file);
    printf("\nTimes are per call, the best of all repetitions. GFLOP/s counts the operations of\n"
           "the equations. Peak is their share of the peak measured for the arithmetic of our\n"
           "side: int8 if a product rounds its columns to 8 bits, BF16, or F32. GB/s counts every\n"
           "tensor once. Both sides store the new state. ~ marks rows during which the machine\n"
           "was also doing other work.\n\n%s",
            out->notes);
    free(out->notes);
}

//
// CSV and JSON
//

static void print_fields(struct op_results * out, const struct op_result * r) {
    const struct machine_point * point =
            r->on_device ? NULL : machine_point(out->machine, r->threads);
    const struct op_shape * s = &r->shape;
    struct results *        f = &out->results;
    const bool              is_json = f->format == RESULTS_JSON;
    const bool              checked = r->rejected == NULL;
    const struct peak       peak = point != NULL ? peak_of(r, point) : (struct peak) { 0 };

    results_row_begin(f);
    if (!is_json) { // every row is complete in itself; in JSON the machine comes first
        results_text(f, "cpu", out->machine->cpu);
        results_int(f, "cpus", out->machine->cpus);
        results_text(f, "features", out->machine->features);
        results_text(f, "lrnn", lrnn_version());
        results_text(f, "ggml", lrnn_ggml_version());
    }
    results_text(f, "case", r->c != NULL ? r->c->name : NULL);
    if (is_json) {
        results_text(f, "what", r->c->what);
        results_text(f, "refused", r->rejected);
    }
    results_int(f, "d_k", s->d_k);
    results_int(f, "d_v", s->d_v);
    results_int(f, "heads", s->heads);
    results_int(f, "n_h", s->n_h);
    results_int(f, "tokens", s->tokens);
    results_int(f, "seqs", s->seqs);
    results_int(f, "layers", s->layers);
    results_int(f, "threads", r->threads);
    results_text(f, "checked", checked ? r->checked : is_json ? NULL : "refused");
    if (checked) {
        results_bool(f, "agrees", r->agrees);
    } else {
        results_text(f, "agrees", NULL);
    }
    results_real(f, "nmse_output", checked, r->nmse_output, -1);
    results_real(f, "nmse_state", checked, r->nmse_state, -1);
    if (is_json && checked) {
        results_text(f, "no_stock", r->no_stock);
    }
    results_text(f, "stock", has_ratio(r) && r->c != NULL ? r->c->stock_name : NULL);
    results_real(f, "stock_us", has_ratio(r), r->stock.best, -1);
    results_real(f, "stock_median_us", has_ratio(r), r->stock.median, -1);
    results_real(f, "ours_us", has_times(r), r->ours.best, -1);
    results_real(f, "ours_median_us", has_times(r), r->ours.median, -1);
    results_real(f, "ratio", has_ratio(r), ratio(r), -1);
    results_real(f, "goal", r->goal > 0.0, r->goal, -1);
    results_real(f, "ns_per_token_head", has_times(r), ns_per_token_head(r), -1);
    results_real(f, "gflops", has_times(r), gflops(r), -1);
    results_text(f, "arithmetic", has_times(r) && point != NULL ? peak.arithmetic : NULL);
    results_real(f, "peak_gflops", point != NULL, peak.gflops, -1);
    results_real(f, "gbps", has_times(r), gbps(r), -1);
    results_real(f, "copy_gbps", point != NULL, point != NULL ? point->copy_gbps : 0.0, -1);
    results_real(f, "busy", has_times(r), r->busy, 3);
    if (is_json) {
        results_real(f, "stock_gflops", has_ratio(r), 1e-3 * r->flops / r->stock.best, -1);
        if (r->goal > 0.0) {
            results_bool(f, "goal_met", has_ratio(r) && ratio(r) >= r->goal);
        }
        results_real(f, "flops", true, r->flops, -1);
        results_real(f, "bytes", true, r->bytes, -1);
    }
    results_row_end(f);
}

static void print_machine_json(const struct machine * m) {
    printf("{\n  \"machine\": {\n    \"cpu\": ");
    json_write_string(stdout, m->cpu);
    printf(", \"cpus\": %d, \"features\": ", m->cpus);
    json_write_string(stdout, m->features);
    printf(", \"vector_bits\": %d,\n    \"lrnn\": \"%s\", \"ggml\": \"%s\",\n    \"measured\": [",
            m->vector_bits, lrnn_version(), lrnn_ggml_version());
    for (int i = 0; i < m->n_points; ++i) {
        printf("%s\n      { \"threads\": %d, \"fma_gflops\": %.6g, \"int8_gops\": %.6g, "
               "\"bf16_gflops\": %.6g, \"copy_gbps\": %.6g, \"read_gbps\": %.6g }",
                i > 0 ? "," : "", m->points[i].threads, m->points[i].fma_gflops,
                m->points[i].int8_gops, m->points[i].bf16_gflops, m->points[i].copy_gbps,
                m->points[i].read_gbps);
    }
    printf("\n    ]\n  },\n  \"results\": [");
}

//
// All formats
//

void op_results_begin(struct op_results * out, int format, const struct machine * machine) {
    *out = (struct op_results) { .results = { .format = format }, .machine = machine };
    switch (format) {
        case RESULTS_MD: {
            out->notes_file = open_memstream(&out->notes, &out->notes_size);
            if (out->notes_file == NULL) {
                exit(program_fail(EXIT_CODE_SYSTEM, "out of memory for the notes of the table"));
            }
            machine_print(machine);
            for (int i = 0; i < machine->n_points; ++i) {
                const struct machine_point * p = &machine->points[i];
                printf("%d thread%s: %.1f GFLOP/s in F32 (%d-bit vectors), %.1f in int8",
                        p->threads, p->threads > 1 ? "s" : "", p->fma_gflops, machine->vector_bits,
                        p->int8_gops);
                if (p->bf16_gflops > 0.0) {
                    printf(", %.1f in BF16", p->bf16_gflops);
                }
                printf("; copies %.1f GB/s (read + written), reads %.1f GB/s\n", p->copy_gbps,
                        p->read_gbps);
            }
            printf("\n");
            results_table_head(COLUMNS, N_COLUMNS);
        } break;
        case RESULTS_CSV: {
            out->results.is_head = true;
            print_fields(out, &(struct op_result) { 0 });
            out->results.is_head = false;
        } break;
        case RESULTS_JSON: print_machine_json(machine); break;
    }
}

void op_results_row(struct op_results * out, const struct op_result * r) {
    if (out->results.format == RESULTS_MD) {
        print_cells(out, r);
        add_note(out, r);
    } else {
        print_fields(out, r);
    }
    out->n_rows++;
}

void op_results_end(struct op_results * out) {
    if (out->results.format == RESULTS_MD) {
        print_notes(out);
    } else if (out->results.format == RESULTS_JSON) {
        printf("\n  ]\n}\n");
    }
}
