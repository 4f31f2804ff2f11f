#include "model-results.h"

#include "base/json-write.h"
#include "op-results.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

//
// Table
//

static void table_begin(const struct machine * m) {
    printf("%s, %d CPUs, %s; lrnn %s, ggml %s\n\n", m->cpu, m->cpus, m->features, lrnn_version(),
            lrnn_ggml_version());
    printf("| %-30s | %10s | %-19s | %-11s | %7s | %8s | %20s |\n", "model", "size", "family",
            "eigenvalues", "threads", "test", "t/s");
    printf("| :----------------------------- | ---------: | :------------------ | :---------- | ------: | -------: | -------------------: |\n");
}

// The name of a model comes from a file of any origin: what would break the table, or command a
// terminal, is not shown.
static void table_name(const char * name, char * text, size_t text_size) {
    snprintf(text, text_size, "%s", name);
    for (char * p = text; *p != '\0'; ++p) {
        if ((unsigned char) *p < 0x20 || *p == 0x7f || *p == '|') {
            *p = '?';
        }
    }
}

static void table_row(
        const struct lrnn_model_info * info, const char * name, const struct model_result * r) {
    char model[128], size[32], test[32], speed[64];

    table_name(name, model, sizeof(model));
    model_test_name(&r->test, test, sizeof(test));
    snprintf(size, sizeof(size), "%.2f MiB", (double) info->weight_bytes / (1 << 20));
    snprintf(speed, sizeof(speed), "%.2f ± %.2f", r->mean_ts, r->stddev_ts);
    printf("| %-30s | %10s | %-19s | %-11s | %7d | %8s | %21s |\n", // ± is two bytes wide
            model, size, info->family, info->eigenvalues, r->test.threads, test, speed);
}

//
// CSV and JSON: the same fields, each row complete in itself
//

enum fields_format {
    FIELDS_CSV_HEADER,
    FIELDS_CSV,
    FIELDS_JSON,
};

struct fields {
    enum fields_format format;
    int                n;
};

// What comes before the value of a field.
static void field_begin(struct fields * f, const char * key) {
    if (f->format == FIELDS_JSON) {
        printf("%s\"%s\": ", f->n > 0 ? ",\n    " : "", key);
    } else {
        printf("%s%s", f->n > 0 ? "," : "", f->format == FIELDS_CSV_HEADER ? key : "");
    }
    f->n++;
}

static void field_text(struct fields * f, const char * key, const char * text) {
    field_begin(f, key);
    if (f->format == FIELDS_JSON) {
        json_write_string(stdout, text);
    } else if (f->format == FIELDS_CSV) {
        printf("\"");
        for (const char * p = text; *p != '\0'; ++p) {
            printf("%s%c", *p == '"' ? "\"" : "", *p); // RFC 4180: a quote is doubled
        }
        printf("\"");
    }
}

static void field_int(struct fields * f, const char * key, int64_t x) {
    field_begin(f, key);
    if (f->format != FIELDS_CSV_HEADER) {
        printf("%" PRId64, x);
    }
}

static void field_real(struct fields * f, const char * key, double x) {
    field_begin(f, key);
    if (f->format != FIELDS_CSV_HEADER) {
        printf("%.6f", x);
    }
}

// In CSV, the numbers are one field with spaces between them.
static void field_reals(
        struct fields * f, const char * key, const double * x, int64_t n, int decimals) {
    field_begin(f, key);
    if (f->format == FIELDS_CSV_HEADER) {
        return;
    }
    printf("%s", f->format == FIELDS_JSON ? "[" : "\"");
    for (int64_t i = 0; i < n; ++i) {
        printf("%s%.*f", i == 0 ? "" : f->format == FIELDS_JSON ? ", " : " ", decimals, x[i]);
    }
    printf("%s", f->format == FIELDS_JSON ? "]" : "\"");
}

static void fields_write(enum fields_format format, const struct machine * m, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r) {
    struct fields f = { .format = format };
    char          test[32], when[32];
    const time_t  now = time(NULL);

    model_test_name(&r->test, test, sizeof(test));
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));

    field_text(&f, "lrnn_version", lrnn_version());
    field_text(&f, "ggml_version", lrnn_ggml_version());
    field_text(&f, "cpu_info", m->cpu);
    field_int(&f, "cpus", m->cpus);
    field_text(&f, "cpu_features", m->features);
    field_text(&f, "model_filename", path);
    field_text(&f, "model_name", info->name != NULL ? info->name : "");
    field_text(&f, "model_architecture", info->architecture);
    field_text(&f, "model_family", info->family);
    field_text(&f, "model_eigenvalues", info->eigenvalues);
    field_int(&f, "model_size", info->weight_bytes);
    field_int(&f, "n_layer", info->n_layer);
    field_int(&f, "n_layer_attention", info->n_layer_attention);
    field_int(&f, "n_embd", info->n_embd);
    field_int(&f, "n_vocab", info->n_vocab);
    field_int(&f, "n_householder", info->n_householder);
    field_int(&f, "state_size", info->state_bytes);
    field_int(&f, "n_batch", r->n_batch);
    field_int(&f, "n_threads", r->test.threads);
    field_text(&f, "test", test);
    field_int(&f, "n_prompt", r->test.is_generation ? 0 : r->test.n_tokens);
    field_int(&f, "n_gen", r->test.is_generation ? r->test.n_tokens : 0);
    field_text(&f, "test_time", when);
    field_real(&f, "avg_ns", r->mean_ns);
    field_real(&f, "stddev_ns", r->stddev_ns);
    field_real(&f, "avg_ts", r->mean_ts);
    field_real(&f, "stddev_ts", r->stddev_ts);
    field_real(&f, "busy", r->busy);
    field_reals(&f, "samples_ns", r->samples_ns, r->n_samples, 0);
    field_reals(&f, "samples_ts", r->samples_ts, r->n_samples, 6);
}

//
// All formats
//

void model_output_begin(struct model_output * out, int format, const struct machine * machine) {
    *out = (struct model_output) { .format = format, .machine = machine };

    switch (format) {
        case OUTPUT_MD: table_begin(machine); break;
        case OUTPUT_CSV: {
            const struct lrnn_model_info no_info   = { 0 };
            const struct model_result    no_result = { 0 };
            fields_write(FIELDS_CSV_HEADER, machine, NULL, &no_info, &no_result);
            printf("\n");
        } break;
        case OUTPUT_JSON: printf("["); break;
    }
    fflush(stdout);
}

void model_output_row(struct model_output * out, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r) {
    const char * slash = strrchr(path, '/');
    const char * file  = slash != NULL ? slash + 1 : path;

    switch (out->format) {
        case OUTPUT_MD:
            table_row(info, info->name != NULL && info->name[0] != '\0' ? info->name : file, r);
            break;
        case OUTPUT_CSV: {
            fields_write(FIELDS_CSV, out->machine, path, info, r);
            printf("\n");
        } break;
        case OUTPUT_JSON: {
            printf("%s\n  { ", out->n_rows > 0 ? "," : "");
            fields_write(FIELDS_JSON, out->machine, path, info, r);
            printf(" }");
        } break;
    }
    fflush(stdout);
    out->n_rows++;
}

void model_output_end(struct model_output * out) {
    if (out->format == OUTPUT_JSON) {
        printf("\n]\n");
    }
}
