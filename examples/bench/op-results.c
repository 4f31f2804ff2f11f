#include "op-results.h"

#include "base/json-write.h"
#include "lrnn.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Rows that our builder refused have no numbers, rows that disagree have no times.
static bool has_times(const struct op_result * r) {
    return r->refused == NULL && r->agrees;
}

static double gflops(const struct op_result * r) {
    return 1e-3 * r->flops / r->ours.best;
}

static double gbps(const struct op_result * r) {
    return 1e-3 * r->bytes / r->ours.best;
}

static double ns_per_token_head(const struct op_result * r) {
    return 1e3 * r->ours.best / (double) (r->shape.tokens * r->shape.seqs * r->shape.heads);
}

static bool has_ratio(const struct op_result * r) {
    return has_times(r) && r->no_stock == NULL;
}

static double ratio(const struct op_result * r) {
    return r->stock.best / r->ours.best;
}

//
// Table
//

static void table_begin(const struct output * out) {
    const struct machine * m = out->machine;

    printf("%s, %d CPUs, %s; lrnn %s, ggml %s\n", m->cpu, m->cpus, m->features, lrnn_version(),
            lrnn_ggml_version());
    for (int i = 0; i < m->n_points; ++i) {
        printf("%d thread%s: %.1f GFLOP/s of multiply-adds in %d-bit vectors, %.1f GB/s of memory copied (read + written)\n",
                m->points[i].threads, m->points[i].threads > 1 ? "s" : "", m->points[i].fma_gflops,
                m->vector_bits, m->points[i].copy_gbps);
    }
    printf("\n");
    printf("| %-13s | %5s | %3s | %9s | %8s | %6s | %-7s | %7s | %4s | %5s | %9s |\n", "case", "T",
            "thr", "stock us", "ours us", "ratio", "goal", "GFLOP/s", "peak", "GB/s", "ns/tok/hd");
    printf("| :------------ | ----: | --: | --------: | -------: | -----: | :------ | ------: | ---: | ----: | --------: |\n");
    fflush(stdout);
}

// Three or four digits, as a machine's time deserves.
static void format_us(char * text, size_t size, double us) {
    snprintf(text, size, us < 100.0 ? "%.2f" : us < 1000.0 ? "%.1f" : "%.0f", us);
}

static void table_row(const struct output * out, const struct op_result * r) {
    const struct machine_point * point  = machine_point(out->machine, r->threads);
    const bool                   is_met = has_ratio(r) && ratio(r) >= r->goal;

    char stock[24] = "-", ours[24], times[24] = "-", goal[24] = "";
    if (has_times(r)) {
        format_us(ours, sizeof(ours), r->ours.best);
        snprintf(times, sizeof(times), "%s", op_result_is_noisy(r) ? "-~" : "-");
    } else {
        snprintf(ours, sizeof(ours), "%s", r->refused != NULL ? "refused" : "WRONG");
    }
    if (has_ratio(r)) {
        format_us(stock, sizeof(stock), r->stock.best);
        snprintf(times, sizeof(times), "%.2f%s", ratio(r), op_result_is_noisy(r) ? "~" : "");
    }
    if (r->goal > 0.0) {
        snprintf(goal, sizeof(goal), "%g %s", r->goal, is_met ? "met" : "not");
    }
    const char * color = goal[0] == '\0' || !terminal_has_color(stdout) ? ""
                         : is_met                                       ? TERMINAL_GREEN
                                                                        : TERMINAL_RED;

    printf("| %-13s | %5" PRId64 " | %3d | %9s | %8s | %6s | %s%-7s%s ", r->c->name,
            r->shape.tokens, r->threads, stock, ours, times, color, goal,
            color[0] != '\0' ? TERMINAL_RESET : "");
    if (has_times(r)) {
        printf("| %7.1f | %3.0f%% | %5.1f | %9.1f |\n", gflops(r),
                100.0 * gflops(r) / point->fma_gflops, gbps(r), ns_per_token_head(r));
    } else {
        printf("| %7s | %4s | %5s | %9s |\n", "-", "-", "-", "-");
    }
    fflush(stdout);
}

// A line below the table for each case: shape, what stands against it, and how well the two agree.
static void note_write(struct output * out) {
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
    if (r->refused != NULL) {
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

static void note_add(struct output * out, const struct op_result * r) {
    if (out->noted.c != r->c) {
        note_write(out);
        out->noted = *r;
    } else {
        out->noted.nmse_output = worse(out->noted.nmse_output, r->nmse_output);
        out->noted.nmse_state  = worse(out->noted.nmse_state, r->nmse_state);
    }
}

static void table_end(const struct output * out) {
    printf("\nTimes are those of one call, the best of all repetitions. GFLOP/s count the operations of the equations, peak is their share of\n"
           "the measured multiply-adds; GB/s count every tensor once. The new state is back in its place at the end of both sides.\n"
           "~ marks a row during which the machine had other work.\n\n%s",
            out->notes);
}

//
// CSV: one self-contained line for each row
//

static void csv_begin(void) {
    printf("cpu,cpus,features,lrnn,ggml,case,d_k,d_v,heads,n_h,tokens,seqs,layers,threads,checked,agrees,nmse_output,nmse_state,"
           "stock,stock_us,stock_median_us,ours_us,ours_median_us,ratio,goal,ns_per_token_head,gflops,peak_gflops,gbps,copy_gbps,busy\n");
}

// A field that may be empty.
static void csv_number(bool has, double x) {
    if (has) {
        printf("%.6g", x);
    }
    printf(",");
}

static void csv_row(const struct output * out, const struct op_result * r) {
    const struct machine *       m     = out->machine;
    const struct machine_point * point = machine_point(m, r->threads);
    const struct op_shape *      s     = &r->shape;

    printf("\"%s\",%d,\"%s\",\"%s\",\"%s\",", m->cpu, m->cpus, m->features, lrnn_version(),
            lrnn_ggml_version());
    printf("%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
           ",%d,",
            r->c->name, s->d_k, s->d_v, s->heads, s->n_h, s->tokens, s->seqs, s->layers,
            r->threads);
    if (r->refused != NULL) {
        printf("refused,,,,");
    } else {
        printf("%s,%d,%.3g,%.3g,", r->checked, r->agrees, r->nmse_output, r->nmse_state);
    }
    printf("\"%s\",", has_ratio(r) ? r->c->stock_name : "");
    csv_number(has_ratio(r), r->stock.best);
    csv_number(has_ratio(r), r->stock.median);
    csv_number(has_times(r), r->ours.best);
    csv_number(has_times(r), r->ours.median);
    csv_number(has_ratio(r), ratio(r));
    csv_number(r->goal > 0.0, r->goal);
    csv_number(has_times(r), ns_per_token_head(r));
    csv_number(has_times(r), gflops(r));
    csv_number(true, point->fma_gflops);
    csv_number(has_times(r), gbps(r));
    csv_number(true, point->copy_gbps);
    printf("%.3f\n", has_times(r) ? r->busy : 0.0);
    fflush(stdout);
}

//
// JSON: the machine, then the results
//

static void json_string(const char * key, const char * value, const char * end) {
    printf("\"%s\": ", key);
    json_write_string(stdout, value);
    printf("%s", end);
}

// JSON has no NaN and no infinity.
static void json_number(const char * key, double x, const char * end) {
    if (isfinite(x)) {
        printf("\"%s\": %.6g%s", key, x, end);
    } else {
        printf("\"%s\": null%s", key, end);
    }
}

static void json_begin(const struct output * out) {
    const struct machine * m = out->machine;

    printf("{\n  \"machine\": {\n    ");
    json_string("cpu", m->cpu, ", ");
    printf("\"cpus\": %d, ", m->cpus);
    json_string("features", m->features, ", ");
    printf("\"vector_bits\": %d,\n    ", m->vector_bits);
    json_string("lrnn", lrnn_version(), ", ");
    json_string("ggml", lrnn_ggml_version(), ",\n    \"measured\": [\n");
    for (int i = 0; i < m->n_points; ++i) {
        printf("      { \"threads\": %d, ", m->points[i].threads);
        json_number("fma_gflops", m->points[i].fma_gflops, ", ");
        json_number("copy_gbps", m->points[i].copy_gbps, i + 1 < m->n_points ? " },\n" : " }\n");
    }
    printf("    ]\n  },\n  \"results\": [");
}

static void json_row(const struct output * out, const struct op_result * r) {
    const struct machine_point * point = machine_point(out->machine, r->threads);
    const struct op_shape *      s     = &r->shape;

    printf("%s\n    { ", out->n_rows > 0 ? "," : "");
    json_string("case", r->c->name, ", ");
    json_string("what", r->c->what, ",\n      ");
    printf("\"d_k\": %" PRId64 ", \"d_v\": %" PRId64 ", \"heads\": %" PRId64 ", \"n_h\": %" PRId64
           ", \"tokens\": %" PRId64 ", \"seqs\": %" PRId64 ", \"layers\": %" PRId64
           ", \"threads\": %d,\n      ",
            s->d_k, s->d_v, s->heads, s->n_h, s->tokens, s->seqs, s->layers, r->threads);
    if (r->refused != NULL) {
        json_string("refused", r->refused, ",\n      ");
    } else {
        json_string("checked", r->checked, ", ");
        printf("\"agrees\": %s, ", r->agrees ? "true" : "false");
        json_number("nmse_output", r->nmse_output, ", ");
        json_number("nmse_state", r->nmse_state, ",\n      ");
    }
    if (has_ratio(r)) {
        json_string("stock", r->c->stock_name, ", ");
        json_number("stock_us", r->stock.best, ", ");
        json_number("stock_median_us", r->stock.median, ", ");
        json_number("ratio", ratio(r), ", ");
        json_number("stock_gflops", 1e-3 * r->flops / r->stock.best, ",\n      ");
    } else if (r->no_stock != NULL) {
        json_string("no_stock", r->no_stock, ",\n      ");
    }
    if (r->goal > 0.0) {
        json_number("goal", r->goal, ", ");
        printf("\"goal_met\": %s,\n      ", has_ratio(r) && ratio(r) >= r->goal ? "true" : "false");
    }
    if (has_times(r)) {
        json_number("ours_us", r->ours.best, ", ");
        json_number("ours_median_us", r->ours.median, ", ");
        json_number("ns_per_token_head", ns_per_token_head(r), ",\n      ");
        json_number("gflops", gflops(r), ", ");
        json_number("gbps", gbps(r), ", ");
        json_number("busy", r->busy, ", ");
    }
    json_number("flops", r->flops, ", ");
    json_number("bytes", r->bytes, ", ");
    json_number("peak_gflops", point->fma_gflops, ", ");
    json_number("copy_gbps", point->copy_gbps, " }");
    fflush(stdout);
}

//
// All formats
//

bool output_begin(struct output * out, int format, const struct machine * machine, char * err,
        size_t err_size) {
    *out = (struct output) { .format = format, .machine = machine };

    switch (format) {
        case OUTPUT_MD: {
            out->notes_file = open_memstream(&out->notes, &out->notes_size);
            if (out->notes_file == NULL) {
                snprintf(err, err_size, "no memory for the notes of the table");
                return false;
            }
            table_begin(out);
        } break;
        case OUTPUT_CSV: csv_begin(); break;
        case OUTPUT_JSON: json_begin(out); break;
    }
    return true;
}

void output_row(struct output * out, const struct op_result * r) {
    switch (out->format) {
        case OUTPUT_MD: {
            table_row(out, r);
            note_add(out, r);
        } break;
        case OUTPUT_CSV: csv_row(out, r); break;
        case OUTPUT_JSON: json_row(out, r); break;
    }
    out->n_rows++;
}

void output_end(struct output * out) {
    switch (out->format) {
        case OUTPUT_MD: {
            note_write(out);
            fclose(out->notes_file);
            table_end(out);
            free(out->notes);
        } break;
        case OUTPUT_CSV: break;
        case OUTPUT_JSON: printf("\n  ]\n}\n"); break;
    }
}
