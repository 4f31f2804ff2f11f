// lrnn-perplexity export RUN: the loss of every token as a table.

#include "lrnn.h"
#include "commands.h"

#include "base/arena.h"
#include "base/atomic-file.h"
#include "eval/report/find-scores.h"
#include "eval/scores/score-export.h"
#include "output-check.h"
#include "program.h"

#include <unistd.h>

struct args {
    struct option_strings paths;
    const char *          out;
    int                   format; // index of the choice
    bool                  partial;
};

static enum exit_code write_run(const struct args * args, const struct report * r) {
    const struct scores *          scores = &r->runs[0].scores;
    const enum score_export_format format = args->format == 0 ? SCORE_EXPORT_CSV : SCORE_EXPORT_NPY;
    struct atomic_file             file;
    struct lrnn_error              err;

    if (args->out == NULL) {
        score_export(scores, format, stdout);
        return EXIT_CODE_OK;
    }
    const enum exit_code code = output_check(args->out, r->files, r->n_files);
    if (code != EXIT_CODE_OK) {
        return code;
    }
    if (!atomic_file_open(&file, args->out, &err)) {
        return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
    }
    score_export(scores, format, file.file);
    if (!atomic_file_commit(&file, &err)) {
        return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run(void * arg) {
    const struct args * args   = arg;
    struct report       report = { .arena = arena_new() };
    enum exit_code      code   = EXIT_CODE_OK;
    struct lrnn_error   err;

    if (args->out == NULL && args->format == 1 && isatty(STDOUT_FILENO)) {
        arena_free(report.arena);
        return program_fail(EXIT_CODE_USAGE, "--out is missing: stdout is a terminal");
    }
    if (report.arena == NULL) {
        return program_fail(EXIT_CODE_SYSTEM, "out of memory");
    }
    if (!report_find_runs(&report, args->paths.v, args->paths.n, args->partial, &err)) {
        code = program_fail(EXIT_CODE_DATA, "%s", err.text);
    } else if (report.n_runs != 1) {
        code = program_fail(EXIT_CODE_DATA, "%s: %d runs; expected 1, or the shards of one",
                args->paths.v[0], report.n_runs);
    } else {
        code = write_run(args, &report);
    }
    report_free(&report);
    return code;
}

enum exit_code export_main(int argc, char ** argv) {
    struct args         args      = { 0 };
    const struct option options[] = {
        opt_group("Input"),
        opt_required(opt_args("RUN", &args.paths,
                "a score file of lrnn-perplexity run, all shards of a run, or a folder of them")),
        opt_flag("--partial", &args.partial, "accept an unfinished run"),
        opt_group("Output"),
        opt_choice("--format", "csv|npy", &args.format,
                "text with a header row, or a structured NumPy array"),
        opt_string("--out", "F", &args.out, "the file (default: stdout)"),
    };
    const struct program program = {
        .name     = "lrnn-perplexity export",
        .summary  = "writes the loss of every scored token: token, position, document, byte, loss",
        .usage    = "RUN... [--format csv|npy] [--out F]",
        .examples = "lrnn-perplexity export results/model.nll --format npy --out losses.npy\n"
                    "lrnn-perplexity export results/model.nll | head",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
