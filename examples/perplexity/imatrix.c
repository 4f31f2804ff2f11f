// lrnn-perplexity imatrix: how much each column of each weight matters, from text.

#include "base/error.h"
#include "commands.h"

#include "device-options.h"
#include "data-options.h"
#include "interrupt.h"
#include "output-check.h"
#include "program.h"

#include <inttypes.h>

struct args {
    struct data_options   data;
    const char *          model;
    const char *          out;
    struct device_options device;
    bool                  quiet;

    struct lrnn_session * session;
};

// Feeds one window from an empty state. Logits are requested for every token, so that the input of
// the output matrix is collected too.
static bool feed(const struct window * window, void * user, struct lrnn_error * err) {
    const struct args * args = user;
    bool                ok = lrnn_seq_reset(args->session, 0, err);
    for (int64_t at = 0; at < window->n_tokens && ok; at += args->device.session.n_batch) {
        if (interrupt_seen()) {
            return error_set(
                    err, LRNN_ERROR_CANCELLED, "stopped in window %" PRId64, window->index + 1);
        }
        const int64_t left = window->n_tokens - at;
        const int64_t n = args->device.session.n_batch < left ? args->device.session.n_batch : left;
        const struct lrnn_input input = {
            .seq = 0, .tokens = window->tokens + at, .n_tokens = n, .n_logits = n
        };
        ok = lrnn_eval(args->session, &input, 1, err);
    }
    return ok;
}

static enum exit_code save(
        const struct args * args, struct lrnn_imatrix * im, const struct windows * ws) {
    const struct windows_summary * sum = windows_get_summary(ws);
    char                           dataset[256];
    struct lrnn_error              err;
    snprintf(dataset, sizeof(dataset), "%s %s", args->data.data.preset, sum->fingerprint);
    if (!lrnn_imatrix_save(
                im, args->out, dataset, sum->n_windows, args->data.window.length, &err)) {
        return program_error(&err);
    }
    if (!args->quiet) {
        program_say("%" PRId64 " windows of %s, %" PRId64 " tokens: %s", sum->n_windows,
                args->data.data.preset, sum->n_tokens, args->out);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run(void * arg) {
    struct args *         args = arg;
    struct lrnn_imatrix * im = NULL;
    struct windows *      ws = NULL;
    enum exit_code        code = EXIT_CODE_OK;
    struct lrnn_error     err;

    if (!data_options_check(&args->data, &err) || !device_options_check(&args->device, &err)) {
        return program_error(&err);
    }
    code = data_check_output(&args->data, args->out);
    if (code == EXIT_CODE_OK) {
        code = output_check(args->out, (const char * const[]) { args->model }, 1);
    }
    if (code != EXIT_CODE_OK) {
        return code;
    }
    struct lrnn_model * model = device_options_load(&args->device, args->model, args->quiet, &err);
    if (model == NULL) {
        return program_error(&err);
    }
    interrupt_listen();
    ws = data_windows(&args->data, model, NULL, NULL, NULL, args->quiet, &code);
    if (ws != NULL) {
        im = lrnn_imatrix_new(model, NULL);
        struct lrnn_session_params params = args->device.session;
        params.n_cache = (int32_t) args->data.window.length;
        params.trace_kinds = LRNN_TRACE_MATRICES;
        params.trace = lrnn_imatrix_collect;
        params.trace_user = im;
        error_no_memory(&err, "the importance matrix");
        args->session = im != NULL ? lrnn_session_new(model, &params, &err) : NULL;
        code = args->session != NULL ? data_for_each(ws, args->quiet, feed, args)
                                     : program_error(&err);
    }
    if (code == EXIT_CODE_OK) {
        code = save(args, im, ws);
    }
    lrnn_session_free(args->session);
    lrnn_imatrix_free(im);
    windows_free(ws);
    lrnn_model_free(model);
    return code;
}

enum exit_code imatrix_main(int argc, char ** argv) {
    struct args         args = { .data = DATA_DEFAULTS, .device = DEVICE_OPTIONS_DEFAULTS };
    const struct option options[] = {
        opt_group("Files"),
        opt_required(opt_string(
                "-m, --model", "M.gguf", &args.model, "the model, preferably not quantized")),
        opt_required(opt_string("--out", "F", &args.out,
                "GGUF file for lrnn-quantize --imatrix and llama.cpp's tools")),
        DATA_OPTIONS(args.data),
        WINDOW_OPTIONS(args.data, ""),
        opt_group("Computation"),
        DEVICE_BATCH(args.device),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        opt_flag("-q, --quiet", &args.quiet, "no progress"),
    };
    const struct program program = {
        .name = "lrnn-perplexity imatrix",
        .summary = "computes the importance matrix of a model: the mean squares of the inputs of "
                   "every weight matrix, over a text",
        .usage = "-m M.gguf --data PATH --out F [options]",
        .examples =
                "lrnn-perplexity imatrix -m model.gguf --data train.txt --out model.imatrix.gguf\n"
                "lrnn-quantize model.gguf model-q4_k.gguf Q4_K --imatrix model.imatrix.gguf",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
