#include "commands.h"

#include "program.h"
#include "compute-options.h"
#include "interrupt.h"
#include "terminal.h"
#include "data-options.h"

#include <inttypes.h>

static const char NAME[] = "lrnn-perplexity imatrix";

struct args {
    struct text_input text;
    const char *      model;
    const char *      out;
    struct compute    compute;
    int64_t           batch;
    bool              quiet;
};

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

// Feeds the windows, each from an empty state. Every product is watched, the output's too: it is
// computed for every token.
static enum exit_code collect(
        const struct args * args, struct lrnn_session * session, struct windows * ws) {
    const struct windows_summary * sum = windows_get_summary(ws);
    struct progress                progress;
    char                           err[1024];
    enum exit_code                 code = EXIT_CODE_OK;

    progress_begin(&progress, (int) sum->n_windows);
    for (int64_t i = 0; i < sum->n_windows && code == EXIT_CODE_OK; ++i) {
        struct window window;
        if (!args->quiet) {
            progress_step(&progress, "windows");
        }
        if (!windows_read(ws, i, &window, err, sizeof(err))) {
            code = EXIT_CODE_SYSTEM;
            break;
        }
        if (!lrnn_seq_reset(session, 0, err, sizeof(err))) {
            code = EXIT_CODE_SYSTEM;
        }
        for (int64_t at = 0; at < window.n_tokens && code == EXIT_CODE_OK; at += args->batch) {
            const int64_t n =
                    args->batch < window.n_tokens - at ? args->batch : window.n_tokens - at;
            if (interrupt_seen()) {
                snprintf(err, sizeof(err),
                        "stopped in window %" PRId64 " of %" PRId64 "; %s was not written", i + 1,
                        sum->n_windows, args->out);
                code = EXIT_CODE_STOPPED;
            } else if (!lrnn_eval(session,
                               &(struct lrnn_input) { .seq = 0,
                                       .tokens             = window.tokens + at,
                                       .n_tokens           = n,
                                       .n_logits           = n },
                               1, err, sizeof(err))) {
                code = EXIT_CODE_SYSTEM;
            }
        }
        window_free(&window);
        progress_done(&progress);
    }
    if (!args->quiet) {
        progress_clear(&progress);
    }
    return code == EXIT_CODE_OK ? code : fail(code, err);
}

static enum exit_code run(const struct args * args) {
    struct lrnn_model *   model   = compute_load(&args->compute, args->model, args->quiet);
    struct lrnn_session * session = NULL;
    struct lrnn_imatrix * im      = NULL;
    enum exit_code        code    = EXIT_CODE_OK;
    char                  err[1024];

    if (model == NULL) {
        return EXIT_CODE_MODEL;
    }
    interrupt_listen(false);
    struct windows * ws = text_input_windows(&args->text, model, NAME, args->quiet, &code);
    if (ws != NULL) {
        im = lrnn_imatrix_new(model);
        if (im == NULL) {
            code = fail(EXIT_CODE_SYSTEM, "out of memory");
        }
    }
    if (im != NULL) {
        session = lrnn_session_new(model,
                &(struct lrnn_session_params) {
                        .n_threads   = (int32_t) args->compute.threads,
                        .n_batch     = (int32_t) args->batch,
                        .n_cache     = lrnn_model_get_info(model).n_layer_attention > 0
                                               ? (int32_t) args->text.window
                                               : 0,
                        .trace_kinds = LRNN_TRACE_MATRICES,
                        .trace       = lrnn_imatrix_collect,
                        .trace_user  = im,
                },
                err, sizeof(err));
        code    = session != NULL ? collect(args, session, ws) : fail(EXIT_CODE_SYSTEM, err);
    }
    if (code == EXIT_CODE_OK) {
        const struct windows_summary * sum = windows_get_summary(ws);
        char                           dataset[256];
        snprintf(dataset, sizeof(dataset), "%s %s", args->text.dataset, sum->fingerprint);
        if (!lrnn_imatrix_save(
                    im, args->out, dataset, sum->n_windows, args->text.window, err, sizeof(err))) {
            code = fail(EXIT_CODE_SYSTEM, err);
        } else if (!args->quiet) {
            fprintf(stderr, "%s: %" PRId64 " windows of %s, %" PRId64 " tokens: %s\n", NAME,
                    sum->n_windows, args->text.dataset, sum->n_tokens, args->out);
        }
    }
    lrnn_imatrix_free(im);
    lrnn_session_free(session);
    windows_free(ws);
    lrnn_model_free(model);
    return code;
}

enum exit_code imatrix_main(int argc, char ** argv) {
    struct args args = { .text = text_input_defaults(), .compute = COMPUTE_DEFAULTS, .batch = 512 };
    struct option options[TEXT_INPUT_OPTIONS + COMPUTE_N_OPTIONS + 16];
    int           n = 0;

    options[n++] = opt_group("Files");
    options[n++] = opt_required(
            opt_string("-m, --model", "M.gguf", &args.model, "the model, better not quantised"));
    options[n++] = opt_required(opt_string("--out", "F", &args.out,
            "a GGUF for lrnn-quantize --imatrix, and for llama.cpp's tools; written under another name until it is whole"));
    n += text_input_options(&args.text, options + n);
    options[n++] = opt_group("Computation");
    options[n++] = opt_int("-b, --batch", "N", &args.batch, 1, 1 << 20, "tokens computed together");
    options[n++] = COMPUTE_THREADS(args.compute);
    n += compute_options(&args.compute, options + n);
    options[n++] = opt_flag("-q, --quiet", &args.quiet, "no progress");

    const struct program program = {
        .name = NAME,
        .summary =
                "the importance matrix of a model: mean squares of what every weight is multiplied with, over a text",
        .usage = "-m M.gguf --data PATH --out F [options]",
        .examples =
                "lrnn-perplexity imatrix -m model.gguf --data train.txt --out model.imatrix.gguf\n"
                "lrnn-quantize model.gguf model-q4_k.gguf Q4_K --imatrix model.imatrix.gguf",
        .options   = options,
        .n_options = n,
    };
    char           err[512];
    enum exit_code code;

    if (!program_begin(&program, argc, argv, &code)) {
        return code;
    }
    if (!compute_check(&args.compute, err, sizeof(err))) {
        return fail(EXIT_CODE_USAGE, err);
    }
    return run(&args);
}
