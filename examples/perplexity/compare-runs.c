// lrnn-perplexity compare A B: compares scored runs window by window.

#include "commands.h"

#include "base/arena.h"
#include "base/error.h"
#include "data-options.h"
#include "eval/report/compare-tables.h"
#include "eval/report/report-model.h"
#include "program.h"

enum { COLUMNS = 100 };

struct args {
    struct option_strings paths;
    struct report_params  params;
    const char *          bucket;
};

static bool compare_pair(
        const struct report_run * base, const struct report_run * other, struct lrnn_error * err) {
    struct comparison      c = { 0 };
    struct byte_comparison b;
    bool                   bytes_only;
    struct arena *         arena = program_arena();
    struct table *         t = NULL;
    if (comparison_allowed(&base->summary.meta, &other->summary.meta, &bytes_only, err)) {
        t = comparison_make(&base->summary, &other->summary, &c, err) ? comparison_table(&c, arena)
                                                                      : NULL;
    } else if (byte_comparison_make(&base->scores, &other->scores,
                       base->summary.extrapolation.trained_length,
                       other->summary.extrapolation.trained_length, &b, err)) {
        t = byte_comparison_table(&b, base->summary.meta.model, other->summary.meta.model, arena);
    }
    if (t != NULL) {
        table_write_text(t, COLUMNS, false, stdout);
    }
    comparison_free(&c);
    arena_free(arena);
    return t != NULL;
}

// Runs on different data sets are expected among several; the first refusal is an error only if no
// pair could be compared.
static enum exit_code compare_sides(const struct report sides[2]) {
    struct lrnn_error err, first = { LRNN_ERROR_NONE, "" };
    bool              compared = false;
    for (int i = 0; i < sides[0].n_runs; ++i) {
        for (int j = 0; j < sides[1].n_runs; ++j) {
            if (compare_pair(&sides[0].runs[i], &sides[1].runs[j], &err)) {
                compared = true;
            } else if (first.kind == LRNN_ERROR_NONE) {
                first = err;
            }
        }
    }
    return compared ? EXIT_CODE_OK : program_fail(EXIT_CODE_DATA, "%s", first.text);
}

// Reads both sides with equal buckets. Unless --bucket sets them, they are read twice: for the
// bucket that suits each, and with the smaller one.
static bool read_sides(const struct args * args, struct report sides[2], struct lrnn_error * err) {
    struct report_params params = args->params;
    for (int pass = params.bucket < 0 ? 0 : 1; pass < 2; ++pass) {
        int64_t bucket = INT64_MAX;
        for (int k = 0; k < 2; ++k) {
            params.paths = &args->paths.v[k];
            params.n_paths = 1;
            report_free(&sides[k]);
            if (!report_read(&params, &sides[k], err)) {
                return false;
            }
            for (int p = 0; p < sides[k].n_panels; ++p) {
                const int64_t b = sides[k].panels[p].bucket;
                bucket = b < bucket ? b : bucket;
            }
        }
        params.bucket = bucket;
    }
    return true;
}

static enum exit_code run(void * arg) {
    struct args *     args = arg;
    struct report     sides[2] = { 0 };
    struct lrnn_error err;
    if (args->paths.n != 2) {
        return program_fail(EXIT_CODE_USAGE, "%d path%s given; expected 2: A and B", args->paths.n,
                args->paths.n == 1 ? "" : "s");
    }
    if (args->bucket != NULL && !parse_bucket(args->bucket, &args->params.bucket, &err)) {
        return program_error(&err);
    }
    const enum exit_code code =
            read_sides(args, sides, &err) ? compare_sides(sides) : program_error(&err);
    report_free(&sides[0]);
    report_free(&sides[1]);
    return code;
}

enum exit_code compare_runs_main(int argc, char ** argv) {
    struct args         args = { .params = { .bucket = -1, .tolerance = 0.02 } };
    const struct option options[] = {
        opt_group("Input"),
        opt_required(opt_args("A B", &args.paths,
                "baseline and other: each a score file (.nll) or a folder of score files")),
        opt_flag("--partial", &args.params.partial, "accept unfinished runs"),
        opt_group("Estimates"),
        opt_string("--bucket", "N|log2", &args.bucket,
                "positions per bucket; log2: 1-2, 3-4, 5-8 ... (default: 2048, or less for short "
                "windows and trained lengths)"),
        opt_int("--trained-length", "N", &args.params.trained_length, 0, 1e15,
                "context length in training (default: as the score files say)"),
    };
    const struct program program = {
        .name = "lrnn-perplexity compare",
        .summary = "compares two runs over the same text, window by window",
        .usage = "A B [options]\n"
                 "-m A.gguf -m B.gguf [options]    compare models: compare -m A.gguf --help",
        .examples = "lrnn-perplexity compare f32/ q8_0/\n"
                    "lrnn-perplexity compare pos.nll neg.nll",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
