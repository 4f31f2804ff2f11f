#include "commands.h"

#include "program.h"
#include "compute-options.h"
#include "eval/divergence.h"
#include "interrupt.h"
#include "base/json-write.h"
#include "terminal.h"
#include "data-options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "lrnn-perplexity compare";

enum { MODELS_MAX = 16 };

struct args {
    struct text_input     text;
    struct option_strings models;
    const char *          bucket;
    int64_t               bucket_size; // 0: by powers of two
    struct compute        compute;
    int64_t               batch;
    bool                  json;
    bool                  quiet;
};

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

static const char * base_name(const char * path) {
    const char * slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

//
// Whether tokens mean the same
//

static bool is_tokenizer_key(const struct lrnn_key_info * k) {
    return (k->name_size >= 10 && memcmp(k->name, "tokenizer.", 10) == 0) ||
           (k->name_size >= 15 && memcmp(k->name, "lrnn.tokenizer.", 15) == 0);
}

static int64_t find_key(const struct lrnn_model * model, const struct lrnn_key_info * wanted) {
    struct lrnn_key_info k;
    for (int64_t i = 0; lrnn_model_get_key(model, i, 0, &k); ++i) {
        if (k.name_size == wanted->name_size && memcmp(k.name, wanted->name, k.name_size) == 0) {
            return i;
        }
    }
    return -1;
}

static bool same_value(
        const struct lrnn_model * a, int64_t i, const struct lrnn_model * b, int64_t j) {
    struct lrnn_key_info x, y;
    int64_t              n = 1;
    for (int64_t k = 0; k < n; ++k) {
        lrnn_model_get_key(a, i, k, &x);
        lrnn_model_get_key(b, j, k, &y);
        n = x.n;
        if (x.kind != y.kind || x.is_array != y.is_array || x.n != y.n || x.integer != y.integer ||
                x.number != y.number || x.string_size != y.string_size ||
                (x.string_size > 0 && memcmp(x.string, y.string, x.string_size) != 0)) {
            return false;
        }
    }
    return true;
}

// Every tokenizer key of model a is in model b, with the same value.
static bool has_tokenizer_of(const struct lrnn_model * const models[2], const char * const paths[2],
        char * err, size_t err_size) {
    struct lrnn_key_info k;
    for (int64_t i = 0; lrnn_model_get_key(models[0], i, 0, &k); ++i) {
        const int64_t other = is_tokenizer_key(&k) ? find_key(models[1], &k) : 0;
        if (is_tokenizer_key(&k) && (other < 0 || !same_value(models[0], i, models[1], other))) {
            snprintf(err, err_size,
                    "%s and %s have different tokenizers: key %.*s %s; only models that see the "
                    "same tokens can be compared token by token",
                    paths[0], paths[1], (int) k.name_size, k.name,
                    other < 0 ? "is only in the first" : "differs");
            return false;
        }
    }
    return true;
}

static bool same_tokenizer(const char * a, const char * b, char * err, size_t err_size) {
    struct lrnn_model *            ma = lrnn_model_load(a, NULL, err, err_size);
    struct lrnn_model *            mb = ma != NULL ? lrnn_model_load(b, NULL, err, err_size) : NULL;
    const struct lrnn_model *const forth[] = { ma, mb }, *const back[] = { mb, ma };
    const bool ok = mb != NULL &&
                    has_tokenizer_of(forth, (const char * const[]) { a, b }, err, err_size) &&
                    has_tokenizer_of(back, (const char * const[]) { b, a }, err, err_size);
    lrnn_model_free(ma);
    lrnn_model_free(mb);
    return ok;
}

//
// Results
//

struct results {
    const struct args *            args;
    const struct windows_summary * sum;
    struct lrnn_model **           models;
    int                            n_ranges;
    struct divergence_summary *
            summaries; // [n_models − 1][n_ranges + 1], the last over all positions
};

// the type of most bytes
static const char * main_type(const struct lrnn_model * model) {
    struct lrnn_tensor_info t, best = { .type = "", .n_bytes = -1 };
    int64_t                 sums[64]  = { 0 };
    const char *            names[64] = { NULL };
    int                     n         = 0;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        int j = 0;
        while (j < n && strcmp(names[j], t.type) != 0) {
            j++;
        }
        if (j == n && n < 64) {
            names[n++] = t.type;
        }
        sums[j] += t.n_bytes;
        if (sums[j] > best.n_bytes) {
            best = (struct lrnn_tensor_info) { .type = names[j], .n_bytes = sums[j] };
        }
    }
    return best.type;
}

static void print_estimate_json(const char * key, const struct stats_estimate * e) {
    printf(", \"%s\": { \"value\": ", key);
    json_write_number(stdout, e->value);
    printf(", \"se\": ");
    json_write_number(stdout, e->se);
    printf(", \"lo\": ");
    json_write_number(stdout, e->lo);
    printf(", \"hi\": ");
    json_write_number(stdout, e->hi);
    printf(" }");
}

static void print_summary_json(const struct divergence_summary * s) {
    printf("{ \"from\": %" PRId64 ", \"to\": %" PRId64 ", \"positions\": %" PRId64, s->range.first,
            s->range.last, s->n);
    print_estimate_json("kl", &s->kl);
    printf(", \"kl_p99\": ");
    json_write_number(stdout, s->kl_p99);
    printf(", \"kl_max\": ");
    json_write_number(stdout, s->kl_max);
    print_estimate_json("nll_reference", &s->nll_p);
    print_estimate_json("nll", &s->nll_q);
    print_estimate_json("nll_change", &s->change);
    print_estimate_json("same_top1", &s->same_top);
    printf(" }");
}

static void print_model_json(const struct results * r, int i) {
    const struct lrnn_model_info info = lrnn_model_get_info(r->models[i]);
    const char *                 name = base_name(r->args->models.v[i]);
    printf("{ \"file\": ");
    json_write_string(stdout, name);
    printf(", \"family\": \"%s\", \"eigenvalues\": \"%s\", \"type\": \"%s\", \"weight_bytes\": %" PRId64
           ", \"identity\": \"%016" PRIx64 "\"",
            info.family, info.eigenvalues, main_type(r->models[i]), info.weight_bytes,
            info.identity);
}

static void print_json(const struct results * r) {
    printf("{\n  \"schema\": \"lrnn-compare/1\",\n  \"data\": { \"dataset\": ");
    json_write_string(stdout, r->args->text.dataset);
    printf(", \"fingerprint\": \"%s\", \"windows\": %" PRId64 ", \"window\": %" PRId64
           ", \"tokens\": %" PRId64 " },\n  \"reference\": ",
            r->sum->fingerprint, r->sum->n_windows, r->args->text.window, r->sum->n_tokens);
    print_model_json(r, 0);
    printf(" },\n  \"models\": [");
    for (int m = 1; m < r->args->models.n; ++m) {
        const struct divergence_summary * s = r->summaries + (m - 1) * (r->n_ranges + 1);
        printf("%s\n    ", m > 1 ? "," : "");
        print_model_json(r, m);
        printf(",\n      \"all\": ");
        print_summary_json(&s[r->n_ranges]);
        printf(",\n      \"buckets\": [");
        for (int i = 0; i < r->n_ranges; ++i) {
            printf("%s\n        ", i > 0 ? "," : "");
            print_summary_json(&s[i]);
        }
        printf("\n      ] }");
    }
    printf("\n  ]\n}\n");
}

static double percent(double ln_ratio) {
    return 100.0 * expm1(ln_ratio); // of perplexities, from the difference of logarithms
}

static void print_row(const struct divergence_summary * s, bool is_all) {
    const bool known = s->kl.method != STATS_NONE;
    char       position[48];
    char       width[16]    = "-"; // half the interval, in per cent of the mean
    char       interval[48] = "-";

    snprintf(position, sizeof(position), "%" PRId64 "-%" PRId64, s->range.first, s->range.last);
    if (known && s->kl.value > 0.0) {
        snprintf(width, sizeof(width), "%.0f", 50.0 * (s->kl.hi - s->kl.lo) / s->kl.value);
    }
    if (known) {
        snprintf(interval, sizeof(interval), "[%+.3f, %+.3f]", percent(s->change.lo),
                percent(s->change.hi));
    }
    printf("%-15s %9" PRId64 " %9.2e %5s %9.2e %9.4g %+8.3f %-18s %7.2f\n",
            is_all ? "all" : position, s->n, s->kl.value, width, s->kl_p99, exp(s->nll_p.value),
            percent(s->change.value), interval, 100.0 * s->same_top.value);
}

static void print_table(const struct results * r) {
    printf("reference  %s: %s, %s, %" PRId64 " bytes of weights\n", base_name(r->args->models.v[0]),
            lrnn_model_get_info(r->models[0]).family, main_type(r->models[0]),
            lrnn_model_get_info(r->models[0]).weight_bytes);
    printf("text       %s, %" PRId64 " windows of %" PRId64 " tokens, fingerprint %.16s\n",
            r->args->text.dataset, r->sum->n_windows, r->args->text.window, r->sum->fingerprint);
    for (int m = 1; m < r->args->models.n; ++m) {
        const struct divergence_summary * s = r->summaries + (m - 1) * (r->n_ranges + 1);
        printf("\n%s: %s, %" PRId64 " bytes of weights\n", base_name(r->args->models.v[m]),
                main_type(r->models[m]), lrnn_model_get_info(r->models[m]).weight_bytes);
        printf("%-15s %9s %9s %5s %9s %9s %8s %-18s %7s\n", "position", "n", "KL", "+- %",
                "KL 99 %", "ppl", "change %", "95 %", "top-1 %");
        for (int i = 0; i <= r->n_ranges; ++i) {
            print_row(&s[i], i == r->n_ranges);
        }
    }
}

//
// The run
//

static enum exit_code measure(const struct args * args, struct lrnn_session ** sessions,
        int64_t n_vocab, struct windows * ws, struct divergence_windows * found) {
    const int64_t   n_windows = windows_get_summary(ws)->n_windows;
    struct progress progress;
    enum exit_code  code = EXIT_CODE_OK;
    char            err[1024];

    progress_begin(&progress, (int) n_windows);
    for (int64_t i = 0; i < n_windows && code == EXIT_CODE_OK; ++i) {
        struct window window;
        bool          not_finite;
        if (!args->quiet) {
            progress_step(&progress, "windows");
        }
        if (interrupt_seen()) {
            snprintf(err, sizeof(err),
                    "stopped after %" PRId64 " of %" PRId64
                    " windows; fewer can be asked for with --max-windows",
                    i, n_windows);
            code = EXIT_CODE_STOPPED;
        } else if (!windows_read(ws, i, &window, err, sizeof(err))) {
            code = EXIT_CODE_SYSTEM;
        } else {
            if (!divergence_measure(sessions, args->models.n, n_vocab, &window, args->batch, found,
                        &not_finite, err, sizeof(err))) {
                code = not_finite ? EXIT_CODE_NUMBERS : EXIT_CODE_SYSTEM;
            }
            window_free(&window);
        }
        progress_done(&progress);
    }
    if (!args->quiet) {
        progress_clear(&progress);
    }
    return code == EXIT_CODE_OK ? code : fail(code, err);
}

static enum exit_code show(const struct args * args, struct lrnn_model ** models,
        struct windows * ws, const struct divergence_windows * found) {
    static struct divergence_range ranges[DIVERGENCE_RANGES_MAX + 1];
    const int64_t                  last = args->text.window - 1;
    struct results r = { .args = args, .sum = windows_get_summary(ws), .models = models };

    r.n_ranges         = divergence_ranges(last, args->bucket_size, ranges, DIVERGENCE_RANGES_MAX);
    ranges[r.n_ranges] = (struct divergence_range) { 1, last };
    r.summaries = calloc((size_t) ((args->models.n - 1) * (r.n_ranges + 1)), sizeof(*r.summaries));
    bool ok     = r.summaries != NULL;
    for (int m = 1; m < args->models.n && ok; ++m) {
        ok = divergence_summarize(
                &found[m - 1], ranges, r.n_ranges + 1, r.summaries + (m - 1) * (r.n_ranges + 1));
    }
    if (ok && args->json) {
        print_json(&r);
    } else if (ok) {
        print_table(&r);
    }
    if (ok && r.sum->n_windows < STATS_MIN_BOOTSTRAP && !args->quiet) {
        fprintf(stderr, "%s: with %" PRId64 " windows %s\n", NAME, r.sum->n_windows,
                r.sum->n_windows < STATS_MIN_T
                        ? "there are no intervals"
                        : "intervals are Student's t; from 10 on they are drawn");
    }
    free(r.summaries);
    if (!ok) {
        return fail(EXIT_CODE_SYSTEM, "out of memory for the results");
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return fail(EXIT_CODE_SYSTEM, "the results could not be written to stdout");
    }
    return EXIT_CODE_OK;
}

static enum exit_code run(const struct args * args) {
    struct lrnn_model *       models[MODELS_MAX]   = { NULL };
    struct lrnn_session *     sessions[MODELS_MAX] = { NULL };
    struct divergence_windows found[MODELS_MAX]    = { { 0 } };
    struct windows *          ws                   = NULL;
    enum exit_code            code                 = EXIT_CODE_OK;
    char                      err[1024];

    for (int i = 0; i < args->models.n && code == EXIT_CODE_OK; ++i) {
        models[i] = compute_load(&args->compute, args->models.v[i], args->quiet);
        if (models[i] == NULL) {
            code = EXIT_CODE_MODEL;
        } else if (lrnn_model_get_info(models[i]).n_vocab !=
                   lrnn_model_get_info(models[0]).n_vocab) {
            snprintf(err, sizeof(err),
                    "%s has %" PRId64 " tokens, %s has %" PRId64
                    ": only models with one vocabulary can be compared",
                    args->models.v[0], lrnn_model_get_info(models[0]).n_vocab, args->models.v[i],
                    lrnn_model_get_info(models[i]).n_vocab);
            code = fail(EXIT_CODE_MODEL, err);
        } else if (i > 0 &&
                   !same_tokenizer(args->models.v[0], args->models.v[i], err, sizeof(err))) {
            code = fail(EXIT_CODE_MODEL, err);
        }
    }
    interrupt_listen(false);
    if (code == EXIT_CODE_OK) {
        ws = text_input_windows(&args->text, models[0], NAME, args->quiet, &code);
    }
    for (int i = 0; i < args->models.n && code == EXIT_CODE_OK; ++i) {
        sessions[i] = lrnn_session_new(models[i],
                &(struct lrnn_session_params) {
                        .n_threads = (int32_t) args->compute.threads,
                        .n_batch   = (int32_t) args->batch,
                        .n_cache   = lrnn_model_get_info(models[i]).n_layer_attention > 0
                                             ? (int32_t) args->text.window
                                             : 0,
                },
                err, sizeof(err));
        if (sessions[i] == NULL) {
            code = fail(EXIT_CODE_SYSTEM, err);
        }
    }
    if (code == EXIT_CODE_OK) {
        code = measure(args, sessions, lrnn_model_get_info(models[0]).n_vocab, ws, found);
    }
    if (code == EXIT_CODE_OK) {
        code = show(args, models, ws, found);
    }
    for (int i = 0; i < args->models.n; ++i) {
        divergence_windows_free(&found[i]);
        lrnn_session_free(sessions[i]);
        lrnn_model_free(models[i]);
    }
    windows_free(ws);
    return code;
}

enum exit_code compare_models_main(int argc, char ** argv) {
    struct args args = {
        .text = text_input_defaults(), .compute = COMPUTE_DEFAULTS, .batch = 512, .bucket = "log2"
    };
    struct option options[TEXT_INPUT_OPTIONS + COMPUTE_N_OPTIONS + 16];
    int           n = 0;

    options[n++] = opt_group("Models");
    options[n++] = opt_required(opt_strings("-m, --model", "M.gguf", &args.models,
            "twice or more: the first is the reference, the others are compared with it"));
    n += text_input_options(&args.text, options + n);
    options[n++] = opt_group("Output");
    options[n++] = opt_string("--bucket", "N|log2", &args.bucket,
            "positions a row; log2: 1-64, then up to each power of two");
    options[n++] =
            opt_flag("--json", &args.json, "as JSON; nll_change is the change of the mean in nats");
    options[n++] = opt_group("Computation");
    options[n++] = opt_int("-b, --batch", "N", &args.batch, 1, 1 << 20, "tokens computed together");
    options[n++] = COMPUTE_THREADS(args.compute);
    n += compute_options(&args.compute, options + n);
    options[n++] = opt_flag("-q, --quiet", &args.quiet, "no progress");

    const struct program program = {
        .name = NAME,
        .summary =
                "how far models are from the first one, run in step over a text: KL divergence, perplexity and top-1, by position",
        .usage = "-m F32.gguf -m Q.gguf --data PATH [options]    models, run in step\n"
                 "A B [options]                                  runs that were scored before",
        .examples =
                "lrnn-perplexity compare -m model.gguf -m model-q8_0.gguf -m model-q4_k.gguf --data novel.txt --window 8192",
        .options   = options,
        .n_options = n,
    };
    char           err[512];
    enum exit_code code;

    if (!program_begin(&program, argc, argv, &code)) {
        return code;
    }
    if (args.models.n < 2 || args.models.n > MODELS_MAX) {
        snprintf(err, sizeof(err), "%d model%s; expected 2 to %d, the reference first",
                args.models.n, args.models.n == 1 ? "" : "s", MODELS_MAX);
        return fail(EXIT_CODE_USAGE, err);
    }
    if (strcmp(args.bucket, "log2") != 0) {
        char * end;
        args.bucket_size = strtoll(args.bucket, &end, 10);
        if (*end != '\0' || args.bucket_size < 1 ||
                args.text.window / args.bucket_size >= DIVERGENCE_RANGES_MAX) {
            snprintf(err, sizeof(err),
                    "--bucket is '%s'; expected log2, or a number of positions that makes at most %d rows",
                    args.bucket, DIVERGENCE_RANGES_MAX);
            return fail(EXIT_CODE_USAGE, err);
        }
    }
    if (!compute_check(&args.compute, err, sizeof(err))) {
        return fail(EXIT_CODE_USAGE, err);
    }
    return run(&args);
}
