// lrnn-perplexity logits: the exact logits of given token ids.

#include "commands.h"

#include "base/atomic-file.h"
#include "base/error.h"
#include "base/read-file.h"
#include "device-options.h"
#include "interrupt.h"
#include "npy.h"
#include "output-check.h"
#include "program.h"
#include "terminal.h"
#include "token-ids.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct args {
    const char *          model;
    const char *          tokens;
    const char *          out;
    struct option_ints    cut; // tokens per call, in turn
    struct device_options device;
    bool                  quiet;
};

// Reads token ids from a .npy file or from text.
static bool read_ids(const char * path, int32_t ** ids, int64_t * n_ids, struct lrnn_error * err) {
    struct lrnn_error why;
    char *            data;
    size_t            size;

    *ids = NULL;
    if (!read_file(path, &data, &size, err)) {
        return false;
    }
    const bool ok = npy_is(data, size) ? npy_read_int32(data, size, ids, n_ids, &why)
                                       : token_ids_parse(data, size, ids, n_ids, &why);
    free(data);
    if (!ok) { // the input that is bad is a file
        return error_set(err, why.kind == LRNN_ERROR_BAD_INPUT ? LRNN_ERROR_BAD_FILE : why.kind,
                "%s: %s", path, why.text);
    }
    return *n_ids > 0 || error_bad_file(err, "%s: no token ids", path);
}

// Writes the logits of one call, after checking that all of them are finite.
static bool write_rows(const struct args * args, struct lrnn_session * session, int64_t at,
        int64_t n, int64_t n_vocab, struct atomic_file * out, struct lrnn_error * err) {
    for (int64_t i = 0; i < n; ++i) {
        const float * row = lrnn_logits(session, i);
        for (int64_t v = 0; v < n_vocab; ++v) {
            if (!isfinite(row[v])) {
                return error_set(err, LRNN_ERROR_NOT_FINITE,
                        "the logit of id %" PRId64 " after %" PRId64
                        " tokens is %f; %s was not written",
                        v, at + i + 1, (double) row[v], args->out);
            }
        }
        if (!atomic_file_write(out, row, (size_t) n_vocab * sizeof(*row), err)) {
            return false;
        }
    }
    return true;
}

// Feeds the ids in calls of the requested sizes and writes the logits of each call.
static bool write_logits(const struct args * args, struct lrnn_session * session,
        const int32_t * ids, int64_t n_ids, int64_t n_vocab, struct atomic_file * out,
        struct lrnn_error * err) {
    struct progress progress;
    char            header[128];
    int             n_calls = 0;

    npy_header("'<f4'", (const int64_t[]) { n_ids, n_vocab }, 2, header, sizeof(header));
    bool ok = atomic_file_write(out, header, sizeof(header), err);
    for (int64_t at = 0; at < n_ids; ++n_calls) {
        at += args->cut.v[n_calls % args->cut.n];
    }
    progress_begin(&progress, args->quiet ? 0 : n_calls);
    int64_t at = 0;
    for (int call = 0; call < n_calls && ok; ++call) {
        const int64_t           cut = args->cut.v[call % args->cut.n];
        const int64_t           n = cut < n_ids - at ? cut : n_ids - at;
        const struct lrnn_input input = {
            .seq = 0, .tokens = ids + at, .n_tokens = n, .n_logits = n
        };
        progress_step(&progress, "computing logits");
        ok = interrupt_seen() ? error_set(err, LRNN_ERROR_CANCELLED,
                                        "stopped after %" PRId64 " of %" PRId64
                                        " tokens; %s was not written",
                                        at, n_ids, args->out)
                              : lrnn_eval(session, &input, 1, err) &&
                                        write_rows(args, session, at, n, n_vocab, out, err);
        at += n;
        progress_done(&progress);
    }
    progress_clear(&progress);
    return ok;
}

static bool compute_logits(const struct args * args, struct lrnn_model * model, const int32_t * ids,
        int64_t n_ids, struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    struct lrnn_session_params   params = args->device.session;
    struct atomic_file           out = { 0 };
    struct lrnn_error            why;

    if (!token_ids_check(ids, n_ids, info.n_vocab, &why)) {
        return error_bad_file(err, "%s: %s", args->tokens, why.text);
    }
    if (info.n_layer_attention > 0 && n_ids > INT32_MAX) {
        return error_bad_file(err, "%s has %" PRId64 " tokens; an attention cache holds at most %d",
                args->tokens, n_ids, INT32_MAX);
    }
    params.n_cache = info.n_layer_attention > 0 ? (int32_t) n_ids : 0;
    struct lrnn_session * session = lrnn_session_new(model, &params, err);
    bool                  ok = session != NULL && atomic_file_open(&out, args->out, err);
    if (ok) {
        interrupt_listen();
        ok = write_logits(args, session, ids, n_ids, info.n_vocab, &out, err) &&
             atomic_file_commit(&out, err);
        if (!ok) {
            atomic_file_cancel(&out);
        }
    }
    lrnn_session_free(session);
    return ok;
}

static enum exit_code run(void * arg) {
    struct args *     args = arg;
    int32_t *         ids = NULL;
    int64_t           n_ids;
    struct lrnn_error err;

    if (!device_options_check(&args->device, &err)) {
        return program_fail(EXIT_CODE_USAGE, "%s", err.text);
    }
    const enum exit_code out =
            output_check(args->out, (const char * const[]) { args->model, args->tokens }, 2);
    if (out != EXIT_CODE_OK) {
        return out;
    }
    if (args->cut.n == 0) {
        args->cut = (struct option_ints) { .n = 1, .v = { args->device.session.n_batch } };
    }
    if (!read_ids(args->tokens, &ids, &n_ids, &err)) {
        free(ids);
        return program_error(&err);
    }
    struct lrnn_model * model = device_options_load(&args->device, args->model, args->quiet, &err);
    const bool          ok = model != NULL && compute_logits(args, model, ids, n_ids, &err);
    lrnn_model_free(model);
    free(ids);
    return ok ? EXIT_CODE_OK : program_error(&err);
}

enum exit_code logits_main(int argc, char ** argv) {
    struct args         args = { .device = DEVICE_OPTIONS_EXACT };
    const struct option options[] = {
        opt_group("Files"),
        opt_required(opt_string("-m, --model", "M.gguf", &args.model, "the model")),
        opt_required(opt_string("--tokens", "IDS", &args.tokens,
                "token ids: a .npy file of int32 [T], or decimal ids separated by blanks, commas "
                "or line ends; -: stdin")),
        opt_required(opt_string("--out", "L.npy", &args.out,
                "float32 [T, vocabulary]: row t holds the logits after token t")),
        opt_group("Computation"),
        opt_ints("--cut", "LIST", &args.cut, 1, 1 << 20,
                "tokens per call, in turn: 1 for single tokens, 1,7,64 for uneven calls; affects "
                "only rounding (default: as -b)"),
        DEVICE_BATCH(args.device),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        opt_flag("-q, --quiet", &args.quiet, "no progress"),
    };
    const struct program program = {
        .name = "lrnn-perplexity logits",
        .summary = "computes the exact logits of given token ids, from an empty state",
        .usage = "-m M.gguf --tokens IDS --out L.npy [options]",
        .examples = "lrnn-perplexity logits -m model.gguf --tokens ids.txt --out logits.npy\n"
                    "lrnn-perplexity logits -m model.gguf --tokens ids.npy --out l.npy --cut 1",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
