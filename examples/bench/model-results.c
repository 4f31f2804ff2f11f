#include "model-bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct results_column COLUMNS[] = { { "model", -30 }, { "size", 10 },
    { "family", -19 }, { "eigenvalues", -11 }, { "threads", 7 }, { "test", 13 }, { "t/s", 20 } };

enum { N_COLUMNS = sizeof(COLUMNS) / sizeof(COLUMNS[0]) };

// The name comes from a file of any origin: characters that would break the table or control the
// terminal become '?'.
static void copy_name(char * text, const char * name) {
    snprintf(text, RESULTS_CELL, "%s", name);
    for (char * p = text; *p != '\0'; ++p) {
        if ((unsigned char) *p < 0x20 || *p == 0x7f || *p == '|') {
            *p = '?';
        }
    }
}

static void print_cells(
        const struct lrnn_model_info * info, const char * name, const struct model_result * r) {
    char cells[N_COLUMNS][RESULTS_CELL];

    copy_name(cells[0], name);
    snprintf(cells[1], RESULTS_CELL, "%.2f MiB", (double) info->weight_bytes / (1 << 20));
    snprintf(cells[2], RESULTS_CELL, "%s", info->family);
    snprintf(cells[3], RESULTS_CELL, "%s", info->eigenvalues);
    snprintf(cells[4], RESULTS_CELL, "%d", r->test.threads);
    model_test_name(&r->test, cells[5], RESULTS_CELL);
    snprintf(cells[6], RESULTS_CELL, "%.2f ± %.2f", r->mean_ts, r->stddev_ts);
    results_table_row(COLUMNS, N_COLUMNS, cells);
}

// Every row is complete in itself, machine included.
static void print_fields(struct results * out, const struct machine * m, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r) {
    char         test[32], when[32];
    const time_t now = time(NULL);

    model_test_name(&r->test, test, sizeof(test));
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));

    results_row_begin(out);
    results_text(out, "lrnn_version", lrnn_version());
    results_text(out, "ggml_version", lrnn_ggml_version());
    results_text(out, "cpu_info", m->cpu);
    results_int(out, "cpus", m->cpus);
    results_text(out, "cpu_features", m->features);
    results_text(out, "model_filename", path);
    results_text(out, "model_name", info->name != NULL ? info->name : "");
    results_text(out, "model_architecture", info->architecture);
    results_text(out, "model_family", info->family);
    results_text(out, "model_eigenvalues", info->eigenvalues);
    results_int(out, "model_size", info->weight_bytes);
    results_int(out, "n_layer", info->n_layer);
    results_int(out, "n_layer_attention", info->n_layer_attention);
    results_int(out, "n_embd", info->n_embd);
    results_int(out, "n_vocab", info->n_vocab);
    results_int(out, "n_householder", info->n_householder);
    results_int(out, "state_size", info->state_bytes);
    results_int(out, "n_batch", r->n_batch);
    results_int(out, "n_threads", r->test.threads);
    results_text(out, "test", test);
    results_int(out, "n_prompt", r->test.is_generation ? 0 : r->test.n_tokens);
    results_int(out, "n_gen", r->test.is_generation ? r->test.n_tokens : 0);
    results_int(out, "n_seqs", r->test.n_seqs);
    results_int(out, "n_depth", r->test.depth);
    results_text(out, "test_time", when);
    results_real(out, "avg_ns", true, r->mean_ns, 6);
    results_real(out, "stddev_ns", true, r->stddev_ns, 6);
    results_real(out, "avg_ts", true, r->mean_ts, 6);
    results_real(out, "stddev_ts", true, r->stddev_ts, 6);
    results_real(out, "busy", true, r->busy, 6);
    results_reals(out, "samples_ns", r->samples_ns, r->n_samples, 0);
    results_reals(out, "samples_ts", r->samples_ts, r->n_samples, 6);
    results_row_end(out);
}

void model_results_begin(struct model_results * out, int format, const struct machine * machine) {
    *out = (struct model_results) { .results = { .format = format }, .machine = machine };
    switch (format) {
        case RESULTS_MD: {
            machine_print(machine);
            printf("\n");
            results_table_head(COLUMNS, N_COLUMNS);
        } break;
        case RESULTS_CSV: {
            out->results.is_head = true;
            print_fields(&out->results, machine, NULL, &(struct lrnn_model_info) { 0 },
                    &(struct model_result) { 0 });
            out->results.is_head = false;
        } break;
        case RESULTS_JSON: printf("["); break;
    }
}

void model_results_row(struct model_results * out, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r) {
    const char * slash = strrchr(path, '/');
    const char * file = slash != NULL ? slash + 1 : path;

    if (out->results.format == RESULTS_MD) {
        print_cells(info, info->name != NULL && info->name[0] != '\0' ? info->name : file, r);
    } else {
        print_fields(&out->results, out->machine, path, info, r);
    }
}

void model_results_end(struct model_results * out) {
    if (out->results.format == RESULTS_JSON) {
        printf("\n]\n");
    }
}
