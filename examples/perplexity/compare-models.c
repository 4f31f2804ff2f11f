// lrnn-perplexity compare -m A.gguf -m B.gguf: feeds the same tokens to all models side by side and
// compares their predictions with those of the first one, by position.

#include "commands.h"

#include "base/error.h"
#include "device-options.h"
#include "data-options.h"
#include "eval/report/compare-tables.h"
#include "eval/scores/model-facts.h"
#include "interrupt.h"
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS_MAX = 16 };

struct args {
    struct data_options   data;
    struct option_strings models;
    const char *          bucket;
    int64_t               bucket_size; // 0: powers of two
    struct device_options device;
    bool                  json;
    bool                  quiet;
};

// The models, with one session each.
struct comparison_models {
    int                   n;
    struct lrnn_model *   models[MODELS_MAX];
    struct lrnn_session * sessions[MODELS_MAX];
    struct kl_windows     found[MODELS_MAX]; // [n − 1]
    int64_t               n_batch;
};

static bool check_vocabularies(const struct args * args, const struct lrnn_model * a,
        const struct lrnn_model * b, int i, struct lrnn_error * err) {
    const int64_t        n_a = lrnn_model_get_info(a).n_vocab;
    const int64_t        n_b = lrnn_model_get_info(b).n_vocab;
    struct lrnn_key_info key;
    if (n_a != n_b) {
        return error_bad_model(err,
                "%s has %" PRId64 " tokens, %s has %" PRId64 "; expected equal vocabularies",
                args->models.v[0], n_a, args->models.v[i], n_b);
    }
    return !model_tokenizers_differ(a, b, &key) ||
           error_bad_model(err, "%s and %s have different tokenizers: key %.*s differs",
                   args->models.v[0], args->models.v[i], (int) key.name_size, key.name);
}

static enum exit_code load(const struct args * args, struct comparison_models * m) {
    struct lrnn_error err;
    for (m->n = 0; m->n < args->models.n; ++m->n) {
        const int i = m->n;
        m->models[i] = device_options_load(&args->device, args->models.v[i], args->quiet, &err);
        if (m->models[i] == NULL) {
            return program_error(&err);
        }
        if (!check_vocabularies(args, m->models[0], m->models[i], i, &err)) {
            m->n++;
            return program_error(&err);
        }
    }
    return EXIT_CODE_OK;
}

static enum exit_code open_sessions(const struct args * args, struct comparison_models * m) {
    struct lrnn_session_params params = args->device.session;
    params.n_cache = (int32_t) args->data.window.length;
    struct lrnn_error err;
    for (int i = 0; i < m->n; ++i) {
        m->sessions[i] = lrnn_session_new(m->models[i], &params, &err);
        if (m->sessions[i] == NULL) {
            return program_error(&err);
        }
    }
    return EXIT_CODE_OK;
}

static bool measure(const struct window * window, void * user, struct lrnn_error * err) {
    struct comparison_models * m = user;
    return kl_measure(m->sessions, m->n, lrnn_model_get_info(m->models[0]).n_vocab, window,
            m->n_batch, m->found, err);
}

static enum exit_code print(
        const struct args * args, const struct comparison_models * m, struct windows * ws) {
    const int64_t     n_windows = windows_get_summary(ws)->n_windows;
    struct lrnn_error err;
    char              title[DATASET_TITLE_SIZE];
    dataset_title(args->data.data.preset, windows_get_summary(ws)->files, title);
    struct kl_report report = {
        .dataset = title,
        .window = args->data.window.length,
        .data = windows_get_summary(ws),
        .n_models = m->n,
        .paths = args->models.v,
        .models = m->models,
    };
    if (!kl_report_make(&report, m->found, args->bucket_size, &err)) {
        return program_error(&err);
    }
    (args->json ? kl_report_write_json : kl_report_write_text)(&report, stdout);
    kl_report_free(&report);
    if (n_windows < STATS_MIN_BOOTSTRAP && !args->quiet) {
        program_say("%" PRId64 " windows: %s", n_windows,
                n_windows < STATS_MIN_T ? "too few for intervals"
                                        : "too few for the bootstrap; intervals are Student's t");
    }
    return EXIT_CODE_OK;
}

static bool check_args(struct args * args, struct lrnn_error * err) {
    if (args->models.n < 2 || args->models.n > MODELS_MAX) {
        return error_bad_input(err, "%d model%s; expected 2 to %d", args->models.n,
                args->models.n == 1 ? "" : "s", MODELS_MAX);
    }
    if (!parse_bucket(args->bucket, &args->bucket_size, err)) {
        return false;
    }
    if (args->bucket_size > 0 &&
            args->data.window.length / args->bucket_size >= RANGES_MAX_BUCKETS) {
        return error_bad_input(err, "--bucket is %s, which gives more than %d rows", args->bucket,
                RANGES_MAX_BUCKETS);
    }
    return data_options_check(&args->data, err) && device_options_check(&args->device, err);
}

static enum exit_code run(void * arg) {
    struct args *            args = arg;
    struct comparison_models m = { .n_batch = args->device.session.n_batch };
    struct windows *         ws = NULL;
    struct lrnn_error        err;

    if (!check_args(args, &err)) {
        return program_error(&err);
    }
    enum exit_code code = load(args, &m);
    interrupt_listen();
    if (code == EXIT_CODE_OK) {
        ws = data_windows(&args->data, m.models[0], NULL, NULL, NULL, args->quiet, &code);
    }
    code = code == EXIT_CODE_OK ? open_sessions(args, &m) : code;
    code = code == EXIT_CODE_OK ? data_for_each(ws, args->quiet, measure, &m) : code;
    code = code == EXIT_CODE_OK ? print(args, &m, ws) : code;
    for (int i = 0; i < m.n; ++i) {
        kl_windows_free(&m.found[i]);
        lrnn_session_free(m.sessions[i]);
        lrnn_model_free(m.models[i]);
    }
    windows_free(ws);
    return code;
}

enum exit_code compare_models_main(int argc, char ** argv) {
    struct args args = {
        .data = DATA_DEFAULTS, .device = DEVICE_OPTIONS_DEFAULTS, .bucket = "log2"
    };
    const struct option options[] = {
        opt_group("Models"),
        opt_required(opt_strings("-m, --model", "M.gguf", &args.models,
                "two or more models; the others are compared with the first")),
        DATA_OPTIONS(args.data),
        WINDOW_OPTIONS(args.data, ""),
        opt_group("Output"),
        opt_string(
                "--bucket", "N|log2", &args.bucket, "positions per row; log2: 1-2, 3-4, 5-8 ..."),
        opt_flag("--json", &args.json, "print JSON; nll_change is the change in nats"),
        opt_group("Computation"),
        DEVICE_BATCH(args.device),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        opt_flag("-q, --quiet", &args.quiet, "no progress"),
    };
    const struct program program = {
        .name = "lrnn-perplexity compare",
        .summary = "compares models with the first one over a text: KL divergence, perplexity and "
                   "top-1 agreement by position",
        .usage = "-m F32.gguf -m Q.gguf --data PATH [options]    compare models\n"
                 "A B [options]                                  compare scored runs",
        .examples = "lrnn-perplexity compare -m model.gguf -m model-q8_0.gguf "
                    "-m model-q4_k.gguf --data novel.txt --window 8192",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
