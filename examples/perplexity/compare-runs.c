// lrnn-perplexity compare A B: compares scored runs window by window.

#include "base/error.h"
#include "commands.h"

#include "base/arena.h"
#include "eval/report/comparison-input.h"
#include "eval/report/compare-tables.h"
#include "program.h"

#include <inttypes.h>
#include <string.h>

enum { COLUMNS = 100 };

struct args {
    struct option_strings paths;
    struct report_params  params;
};

enum outcome { COMPARED, REFUSED, NO_MEMORY };

static enum outcome print_table(const struct table * t) {
    if (t != NULL) {
        table_write_text(t, COLUMNS, false, stdout);
    }
    return t != NULL ? COMPARED : NO_MEMORY;
}

static enum outcome compare_tokens(const struct summary * base, const struct summary * other,
        struct arena * arena, struct lrnn_error * err) {
    struct comparison c;
    if (!comparison_make(base, other, &c, err)) {
        return REFUSED;
    }
    const enum outcome outcome = print_table(comparison_table(&c, arena));
    comparison_free(&c);
    return outcome;
}

static enum outcome compare_bytes(const struct report_run * base, const struct report_run * other,
        struct arena * arena, struct lrnn_error * err) {
    struct byte_comparison c;
    if (!byte_comparison_make(&base->scores, &other->scores,
                base->summary.extrapolation.trained_length,
                other->summary.extrapolation.trained_length, &c, err)) {
        return REFUSED;
    }
    return print_table(
            byte_comparison_table(&c, base->summary.meta.model, other->summary.meta.model, arena));
}

static enum outcome compare_pair(const struct comparison_side * a, int i,
        const struct comparison_side * b, int j, struct arena * arena, struct lrnn_error * err) {
    const struct summary * base  = comparison_side_summary(a, i);
    const struct summary * other = comparison_side_summary(b, j);
    bool                   bytes_only;
    struct lrnn_error      why;

    if (comparison_allowed(&base->meta, &other->meta, &bytes_only, &why)) {
        return compare_tokens(base, other, arena, err);
    }
    if (bytes_only && !a->is_report && !b->is_report) {
        return compare_bytes(&a->scores.runs[i], &b->scores.runs[j], arena, err);
    }
    error_set(err, why.kind, "%s and %s cannot be compared%s: %s%s", base->meta.model,
            other->meta.model, bytes_only ? " token by token" : "", why.text,
            bytes_only ? "; their score files (.nll) can be, in bits per byte" : "");
    return REFUSED;
}

// Runs on different data sets are expected among several; the first refusal is an error only if no
// pair could be compared.
static enum exit_code compare_sides(
        const struct comparison_side * a, const struct comparison_side * b) {
    struct lrnn_error err, first = { LRNN_ERROR_NONE, "" };
    bool              compared = false;
    for (int i = 0; i < comparison_side_count(a); ++i) {
        for (int j = 0; j < comparison_side_count(b); ++j) {
            struct arena *     arena = arena_new();
            const enum outcome outcome =
                    arena == NULL ? NO_MEMORY : compare_pair(a, i, b, j, arena, &err);
            arena_free(arena);
            if (outcome == NO_MEMORY) {
                return program_fail(EXIT_CODE_SYSTEM, "out of memory");
            }
            compared |= outcome == COMPARED;
            if (outcome == REFUSED && first.kind == LRNN_ERROR_NONE) {
                first = err;
            }
        }
    }
    return compared ? EXIT_CODE_OK : program_fail(EXIT_CODE_DATA, "%s", first.text);
}

static enum exit_code run(void * arg) {
    const struct args * args = arg;
    struct lrnn_error   err;
    if (args->paths.n != 2) {
        return program_fail(EXIT_CODE_USAGE, "%d path%s given; expected 2: A and B", args->paths.n,
                args->paths.n == 1 ? "" : "s");
    }
    struct comparison_side sides[2];
    const enum exit_code   code = comparison_sides_read(sides, args->paths.v, &args->params, &err)
                                          ? compare_sides(&sides[0], &sides[1])
                                          : program_fail(EXIT_CODE_DATA, "%s", err.text);
    comparison_sides_free(sides);
    return code;
}

enum exit_code compare_runs_main(int argc, char ** argv) {
    struct args         args      = { .params = { .bucket = -1, .tolerance = 0.02 } };
    const struct option options[] = {
        opt_group("Input"),
        opt_required(opt_args("A B", &args.paths,
                "baseline and other: each a report.json, a score file (.nll) or a folder of "
                "score files")),
        opt_flag("--partial", &args.params.partial, "accept unfinished runs"),
        opt_group("Estimates"),
        opt_int("--bucket", "N", &args.params.bucket, 1, INT32_MAX,
                "positions per bucket (default: as in the report; 2048 or less for score files)"),
        opt_alias("--train-ctx",
                opt_int("--trained-length", "N", &args.params.trained_length, 0, 1e15,
                        "context length in training (default: as the score files say)")),
    };
    const struct program program = {
        .name     = "lrnn-perplexity compare",
        .summary  = "compares two runs over the same text, window by window",
        .usage    = "A B [options]\n"
                    "-m A.gguf -m B.gguf [options]    compare models: compare -m A.gguf --help",
        .examples = "lrnn-perplexity compare f32/report.json q8_0/report.json\n"
                    "lrnn-perplexity compare pos.nll neg.nll",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
