#include "commands.h"

#include "program.h"
#include "base/atomic-file.h"
#include "compute-options.h"
#include "interrupt.h"
#include "npy.h"
#include "options.h"
#include "base/read-file.h"
#include "terminal.h"
#include "token-ids.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const char NAME[] = "lrnn-perplexity logits";

struct args {
    const char *       model;
    const char *       tokens;
    const char *       out;
    struct option_ints cut; // tokens of the calls, in turn
    struct compute     compute;
    int64_t            batch;
    bool               quiet;
};

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

// The ids of a .npy file, or of a text.
static bool read_ids(
        const char * path, int32_t ** ids, int64_t * n_ids, char * err, size_t err_size) {
    char   why[384];
    char * data;
    size_t size;

    *ids = NULL;
    if (!read_file(path, &data, &size, err, err_size)) {
        return false;
    }
    const bool ok = npy_is(data, size) ? npy_read_int32(data, size, ids, n_ids, why, sizeof(why))
                                       : token_ids_parse(data, size, ids, n_ids, why, sizeof(why));
    free(data);
    if (!ok) {
        snprintf(err, err_size, "%s: %s", path, why);
    } else if (*n_ids == 0) {
        snprintf(err, err_size, "%s: there are no token ids in it", path);
        free(*ids);
        *ids = NULL;
    }
    return *ids != NULL;
}

// Feeds the ids in the calls that were asked for and writes each call's logits behind the others.
static enum exit_code write_logits(const struct args * args, struct lrnn_session * session,
        const int32_t * ids, int64_t n_ids, int64_t n_vocab, struct atomic_file * out) {
    struct progress progress;
    char            err[1024];
    char            header[NPY_HEADER_SIZE];
    enum exit_code  code = EXIT_CODE_OK;

    npy_header_float32(n_ids, n_vocab, header);
    if (!atomic_file_write(out, header, sizeof(header), err, sizeof(err))) {
        return fail(EXIT_CODE_SYSTEM, err);
    }
    int n_calls = 0;
    for (int64_t at = 0; at < n_ids; ++n_calls) {
        at += args->cut.v[n_calls % args->cut.n];
    }
    progress_begin(&progress, n_calls);
    int64_t at = 0;
    for (int call = 0; call < n_calls && code == EXIT_CODE_OK; ++call) {
        const int64_t           cut   = args->cut.v[call % args->cut.n];
        const int64_t           n     = cut < n_ids - at ? cut : n_ids - at;
        const struct lrnn_input input = {
            .seq = 0, .tokens = ids + at, .n_tokens = n, .n_logits = n
        };

        if (!args->quiet) {
            progress_step(&progress, "computing logits");
        }
        if (interrupt_seen()) {
            snprintf(err, sizeof(err),
                    "stopped after %" PRId64 " of %" PRId64 " tokens; %s was not written", at,
                    n_ids, args->out);
            code = EXIT_CODE_STOPPED;
        } else if (!lrnn_eval(session, &input, 1, err, sizeof(err))) {
            code = EXIT_CODE_SYSTEM;
        }
        for (int64_t i = 0; i < n && code == EXIT_CODE_OK; ++i) {
            const float * row = lrnn_logits(session, i);
            for (int64_t v = 0; v < n_vocab; ++v) {
                if (!isfinite(row[v])) {
                    snprintf(err, sizeof(err),
                            "the logit of id %" PRId64 " after %" PRId64
                            " tokens is %f; %s was not written",
                            v, at + i + 1, (double) row[v], args->out);
                    code = EXIT_CODE_NUMBERS;
                    break;
                }
            }
            if (code == EXIT_CODE_OK &&
                    !atomic_file_write(
                            out, row, (size_t) n_vocab * sizeof(*row), err, sizeof(err))) {
                code = EXIT_CODE_SYSTEM;
            }
        }
        at += n;
        progress_done(&progress);
    }
    if (!args->quiet) {
        progress_clear(&progress);
    }
    return code == EXIT_CODE_OK ? code : fail(code, err);
}

static enum exit_code run(const struct args * args) {
    struct lrnn_model *   model   = NULL;
    struct lrnn_session * session = NULL;
    int32_t *             ids     = NULL;
    struct atomic_file    out     = { 0 };
    int64_t               n_ids;
    char                  err[1024];
    enum exit_code        code = EXIT_CODE_OK;

    if (!read_ids(args->tokens, &ids, &n_ids, err, sizeof(err))) {
        return fail(EXIT_CODE_DATA, err);
    }
    model = compute_load(&args->compute, args->model, args->quiet);
    if (model == NULL) {
        free(ids);
        return EXIT_CODE_MODEL;
    }
    const struct lrnn_model_info info = lrnn_model_get_info(model);

    if (!token_ids_check(ids, n_ids, info.n_vocab, err, sizeof(err))) {
        fprintf(stderr, "%s: %s: %s\n", NAME, args->tokens, err);
        code = EXIT_CODE_DATA;
    } else if (info.n_layer_attention > 0 && n_ids > INT32_MAX) {
        snprintf(err, sizeof(err), "%s has %" PRId64 " tokens; attention layers can remember %d",
                args->tokens, n_ids, INT32_MAX);
        code = fail(EXIT_CODE_DATA, err);
    } else {
        session = lrnn_session_new(model,
                &(struct lrnn_session_params) {
                        .n_threads = (int32_t) args->compute.threads,
                        .n_batch   = (int32_t) args->batch,
                        .n_cache   = info.n_layer_attention > 0 ? (int32_t) n_ids : 0,
                },
                err, sizeof(err));
        if (session == NULL || !atomic_file_open(&out, args->out, err, sizeof(err))) {
            code = fail(EXIT_CODE_SYSTEM, err);
        } else {
            interrupt_listen(false);
            code = write_logits(args, session, ids, n_ids, info.n_vocab, &out);
            if (code != EXIT_CODE_OK) {
                atomic_file_cancel(&out);
            } else if (!atomic_file_commit(&out, err, sizeof(err))) {
                code = fail(EXIT_CODE_SYSTEM, err);
            }
        }
    }
    lrnn_session_free(session);
    lrnn_model_free(model);
    free(ids);
    return code;
}

enum exit_code logits_main(int argc, char ** argv) {
    struct args args = { .compute = COMPUTE_DEFAULTS, .batch = 512 };

    const struct option options[] = {
        opt_group("Files"),
        opt_required(opt_string("-m, --model", "M.gguf", &args.model, "the model")),
        opt_required(opt_string("--tokens", "IDS", &args.tokens,
                "token ids: a .npy file of int32 [T], or a text of decimal ids between blanks, commas or line ends (- for stdin)")),
        opt_required(opt_string("--out", "L.npy", &args.out,
                "float32 [T, vocabulary]: row t holds the logits after token t; written under another name until it is whole")),
        opt_group("Computation"),
        opt_ints("--cut", "LIST", &args.cut, 1, 1 << 20,
                "tokens of each call, in turn: 1 for token by token, 1,7,64 for uneven pieces; results differ by rounding at most (default: as -b)"),
        opt_int("-b, --batch", "N", &args.batch, 1, 1 << 20, "tokens computed together at most"),
        COMPUTE_THREADS(args.compute),
        COMPUTE_OPTIONS(args.compute),
        opt_flag("-q, --quiet", &args.quiet, "no progress"),
    };
    const struct program program = {
        .name    = NAME,
        .summary = "the exact logits for given token ids, from an empty state",
        .usage   = "-m M.gguf --tokens IDS --out L.npy [options]",
        .examples =
                "lrnn-perplexity logits -m model.gguf --tokens ids.txt --out logits.npy\n"
                "lrnn-perplexity logits -m model.gguf --tokens ids.npy --out by-token.npy --cut 1",
        OPTIONS(options),
    };
    char           err[512];
    enum exit_code code;

    if (!program_begin(&program, argc, argv, &code)) {
        return code;
    }
    if (!compute_check(&args.compute, err, sizeof(err))) {
        return fail(EXIT_CODE_USAGE, err);
    }
    if (args.cut.n == 0) {
        args.cut = (struct option_ints) { .n = 1, .v = { args.batch } };
    }
    return run(&args);
}
