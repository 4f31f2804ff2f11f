// lrnn-bench: how fast models are; how fast the ops are, beside the stock ops of ggml and beside
// what the machine can do.

#include "compute.h"
#include "exit-code.h"
#include "machine.h"
#include "model-bench.h"
#include "model-output.h"
#include "op-bench.h"
#include "options.h"
#include "output.h"
#include "terminal.h"

#include <stdio.h>

struct args {
    struct option_strings     models; // none: the op benchmark
    struct model_bench_params model;
    struct compute            compute; // of models; its threads are not used
    struct op_bench_params    op;
    int                       format; // enum output_format
    bool                      list;

    // of both
    struct option_ints threads;
    int64_t            repetitions;
};

//
// The op benchmark
//

struct op_run {
    struct output   output;
    struct progress progress;
    int             n_refused;
    int             n_wrong;
    int             n_noisy;
};

static void on_progress(const char * what, void * user) {
    struct op_run * run = user;
    progress_step(&run->progress, what);
}

static void on_result(const struct op_result * r, void * user) {
    struct op_run * run = user;

    progress_clear(&run->progress);
    output_row(&run->output, r);
    progress_done(&run->progress);
    if (r->refused != NULL) {
        fprintf(stderr, "lrnn-bench: %s: %s\n", r->c->name, r->refused);
        run->n_refused++;
    } else if (!r->agrees) {
        fprintf(stderr,
                "lrnn-bench: %s: not timed, since the result is wrong: NMSE %.1e of outputs, %.1e of states against %s\n",
                r->c->name, r->nmse_output, r->nmse_state, r->checked);
        run->n_wrong++;
    } else if (op_result_is_noisy(r)) {
        run->n_noisy++;
    }
}

static enum exit_code bench_ops(const struct args * args) {
    char           err[512];
    struct machine machine;
    struct op_run  run = { 0 };

    if (op_bench_count(&args->op) == 0) {
        fprintf(stderr,
                "lrnn-bench: no case fits --op, --mode and --tokens; see lrnn-bench --list\n");
        return EXIT_CODE_USAGE;
    }

    machine_describe(&machine);
    for (int i = 0; i < args->op.threads.n; ++i) {
        if (!machine_measure(&machine, (int) args->op.threads.v[i], err, sizeof(err))) {
            fprintf(stderr, "lrnn-bench: %s\n", err);
            return EXIT_CODE_SYSTEM;
        }
    }
    if (!output_begin(&run.output, args->format, &machine, err, sizeof(err))) {
        fprintf(stderr, "lrnn-bench: %s\n", err);
        return EXIT_CODE_SYSTEM;
    }
    progress_begin(&run.progress, op_bench_count(&args->op));

    const bool ok = op_bench_run(&args->op, on_progress, on_result, &run, err, sizeof(err));

    progress_clear(&run.progress);
    output_end(&run.output);
    if (!ok) {
        fprintf(stderr, "lrnn-bench: %s\n", err);
        return EXIT_CODE_SYSTEM;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "lrnn-bench: the results could not be written to stdout\n");
        return EXIT_CODE_SYSTEM;
    }
    if (run.n_noisy > 0) {
        fprintf(stderr,
                "lrnn-bench: %d of %d rows are noisy (marked ~ in the table): the machine had other work, or its speed changed\n",
                run.n_noisy, run.output.n_rows);
    }
    return run.n_wrong > 0 ? EXIT_CODE_NUMBERS : run.n_refused > 0 ? EXIT_CODE_USAGE : EXIT_CODE_OK;
}

//
// The model benchmark
//

struct model_run {
    struct model_output    output;
    struct progress        progress;
    const char *           path;
    struct lrnn_model_info info;
};

static void on_model_progress(const struct model_test * test, void * user) {
    struct model_run * run = user;
    char               name[32], what[512];

    model_test_name(test, name, sizeof(name));
    snprintf(what, sizeof(what), "%s %s, %d thread%s", run->path, name, test->threads,
            test->threads > 1 ? "s" : "");
    progress_step(&run->progress, what);
}

static void on_model_result(const struct model_result * r, void * user) {
    struct model_run * run = user;

    progress_clear(&run->progress);
    model_output_row(&run->output, run->path, &run->info, r);
    progress_done(&run->progress);
}

// One model after the other; the first failure ends the run, behind the rows that there are.
static enum exit_code bench_models(const struct args * args) {
    char             err[512];
    struct machine   machine;
    struct model_run run    = { 0 };
    enum exit_code   status = EXIT_CODE_OK;

    machine_describe(&machine);
    model_output_begin(&run.output, args->format, &machine);
    progress_begin(&run.progress, args->models.n * model_bench_count(&args->model));

    for (int i = 0; status == EXIT_CODE_OK && i < args->models.n; ++i) {
        struct lrnn_model * model =
                compute_load(&args->compute, "lrnn-bench", args->models.v[i], false);
        if (model == NULL) {
            status = EXIT_CODE_MODEL;
            continue;
        }
        run.path = args->models.v[i];
        run.info = lrnn_model_get_info(model);
        if (!model_bench_run(model, &args->model, on_model_progress, on_model_result, &run, err,
                    sizeof(err))) {
            progress_clear(&run.progress);
            fprintf(stderr, "lrnn-bench: %s: %s\n", run.path, err);
            status = EXIT_CODE_SYSTEM;
        }
        lrnn_model_free(model);
    }
    progress_clear(&run.progress);
    model_output_end(&run.output);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "lrnn-bench: the results could not be written to stdout\n");
        return EXIT_CODE_SYSTEM;
    }
    return status;
}

//
// Command line
//

// An option of one benchmark is refused by the other: it would do nothing.
static bool has_op_options(const struct op_bench_params * op) {
    return op->family != OP_FAMILY_ALL || op->modes.n > 0 || op->tokens.n > 0 || op->d > 0 ||
           op->d_k > 0 || op->d_v > 0 || op->heads > 0 || op->n_h > 0 || op->seqs > 0 ||
           op->layers > 0 || op->path != GGML_SCAN_PATH_AUTO;
}

static bool has_model_options(const struct model_bench_params * model) {
    return model->n_prompt.n > 0 || model->n_gen.n > 0 || model->n_batch > 0;
}

// What was not given: -r is not the same for the two, and -p, -n and -b must be seen to be given.
static void set_defaults(struct args * args) {
    args->op.threads = args->model.threads = args->threads;
    args->op.repetitions                   = args->repetitions > 0 ? args->repetitions : 7;
    args->model.repetitions                = args->repetitions > 0 ? args->repetitions : 5;
    args->model.n_batch                    = args->model.n_batch > 0 ? args->model.n_batch : 512;
    if (args->model.n_prompt.n == 0) {
        args->model.n_prompt = (struct option_ints) { .n = 1, .v = { 512 } };
    }
    if (args->model.n_gen.n == 0) {
        args->model.n_gen = (struct option_ints) { .n = 1, .v = { 128 } };
    }
}

int main(int argc, char ** argv) {
    struct args args = {
        .op = {
            .family   = OP_FAMILY_ALL,
            .path     = GGML_SCAN_PATH_AUTO,
            .min_time = 0.02,
        },
        .compute = COMPUTE_DEFAULTS,
        .threads = { .n = 2, .v = { 1, 2 } },
        .format  = OUTPUT_MD,
    };

    const char *        of_case   = "of the case";
    const double        size_max  = 65536;
    const struct option options[] = {
        { .group       = "Models",
                .names = "-m, --model",
                .value = "M.gguf",
                .type  = OPTION_STRINGS,
                .dest  = &args.models,
                .help  = "time this model instead of the ops; may be given several times" },
        { .names       = "-p, --n-prompt",
                .value = "LIST",
                .type  = OPTION_INTS,
                .dest  = &args.model.n_prompt,
                .min   = 0,
                .max   = 1 << 24,
                .help  = "tokens of a prompt; 0: no prompt",
                .unset = "512" },
        { .names       = "-n, --n-gen",
                .value = "LIST",
                .type  = OPTION_INTS,
                .dest  = &args.model.n_gen,
                .min   = 0,
                .max   = 1 << 24,
                .help  = "tokens generated, one at a time; 0: none",
                .unset = "128" },
        { .names       = "-b, --batch-size",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.model.n_batch,
                .min   = 1,
                .max   = 65536,
                .help  = "tokens of a prompt computed together at most",
                .unset = "512" },
        COMPUTE_OPTIONS(args.compute),

        { .group       = "Cases of an op",
                .names = "--op",
                .value = "householder|signed|conv|all",
                .type  = OPTION_CHOICE,
                .dest  = &args.op.family,
                .help  = "which op" },
        { .names       = "--mode",
                .value = "GLOB",
                .type  = OPTION_STRINGS,
                .dest  = &args.op.modes,
                .help  = "only cases whose name fits, as in 'delta*'; may be given several times",
                .unset = "all" },
        { .names      = "--list",
                .type = OPTION_FLAG,
                .dest = &args.list,
                .help = "list the cases and stop" },

        { .group       = "Shape (goals are shown only for the shapes that they were set for)",
                .names = "-T, --tokens",
                .value = "LIST",
                .type  = OPTION_INTS,
                .dest  = &args.op.tokens,
                .min   = 1,
                .max   = 1 << 24,
                .help = "tokens of a sequence, as 64,512 or 64-32768*8; decode cases keep their one token, and are left out where the list lacks 1",
                .unset = of_case },
        { .names       = "--seqs",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.seqs,
                .min   = 1,
                .max   = 4096,
                .help  = "sequences in a call",
                .unset = "1" },
        { .names       = "-d",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.d,
                .min   = 1,
                .max   = size_max,
                .help  = "d_k and d_v of the cases in which they are equal",
                .unset = of_case },
        { .names       = "--dk",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.d_k,
                .min   = 2,
                .max   = size_max,
                .help  = "rows of a head's state; taps of a convolution",
                .unset = of_case },
        { .names       = "--dv",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.d_v,
                .min   = 1,
                .max   = size_max,
                .help  = "columns of a head's state; channels of a convolution",
                .unset = of_case },
        { .names       = "--heads",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.heads,
                .min   = 1,
                .max   = size_max,
                .help  = "heads, of the cases with more than one",
                .unset = of_case },
        { .names       = "--n-h",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.n_h,
                .min   = 1,
                .max   = 64,
                .help  = "Householder factors a token, of the delta rule",
                .unset = of_case },
        { .names       = "--layers",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.op.layers,
                .min   = 1,
                .max   = 1024,
                .help = "states that the op is computed for in turn, as in a model with that many layers: with one, the state stays in the cache",
                .unset = "1, decode cases 24" },

        { .group       = "Measurement",
                .names = "-t, --threads",
                .value = "LIST",
                .type  = OPTION_INTS,
                .dest  = &args.threads,
                .min   = 1,
                .max   = 512,
                .help  = "threads" },
        { .names       = "-r, --repetitions",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.repetitions,
                .min   = 1,
                .max   = 10000,
                .help = "repetitions; of models the mean counts, of ops, where ours and stock take turns, the best of each",
                .unset = "5 of a model, 7 of an op" },
        { .names       = "--min-time",
                .value = "S",
                .type  = OPTION_FLOAT,
                .dest  = &args.op.min_time,
                .min   = 0,
                .max   = 3600,
                .help  = "seconds that a repetition of an op lasts at least" },
        { .names       = "--path",
                .value = "auto|step|chunk|reference",
                .type  = OPTION_CHOICE,
                .dest  = &args.op.path,
                .help  = "which kernel of an op of ours" },

        { .group       = "Output",
                .names = "-o, --output",
                .value = "md|csv|json",
                .type  = OPTION_CHOICE,
                .dest  = &args.format,
                .help  = "format of the results on stdout" },
    };
    const struct program program = {
        .name = "lrnn-bench",
        .summary =
                "times models, or our ops against the stock ops of ggml that compute the same, in one run",
        .modes =
                (const char * const[]) {
                        "-m M.gguf [options]      prompt processing and generation of a model",
                        "[--op NAME] [options]    the table of an op, or of all",
                        "--list                   names of the cases of an op", NULL },
        .examples  = (const char * const[]) { "lrnn-bench -m model.gguf -p 512,4096 -n 128 -t 1,2",
                 "lrnn-bench --op householder",
                 "lrnn-bench --op signed --mode 'mamba*' -T 64,512,4096,32768 -t 1 -o json > mamba.json",
                 NULL },
        .options   = options,
        .n_options = sizeof(options) / sizeof(options[0]),
    };

    char           err[512];
    enum exit_code code;
    if (!options_read(&program, argc, argv, &code)) {
        return code;
    }
    if (!compute_check(&args.compute, "lrnn-bench", err, sizeof(err))) {
        fprintf(stderr, "lrnn-bench: %s\n", err);
        return EXIT_CODE_USAGE;
    }
    if (args.models.n > 0 && (args.list || has_op_options(&args.op))) {
        fprintf(stderr, "lrnn-bench: -m times a model, and takes no options of an op\n");
        return EXIT_CODE_USAGE;
    }
    if (args.models.n == 0 && has_model_options(&args.model)) {
        fprintf(stderr, "lrnn-bench: -p, -n and -b are options of a model, and -m names none\n");
        return EXIT_CODE_USAGE;
    }
    set_defaults(&args);
    if (args.models.n > 0 && model_bench_count(&args.model) == 0) {
        fprintf(stderr, "lrnn-bench: -p and -n leave no test\n");
        return EXIT_CODE_USAGE;
    }
    if (args.list) {
        op_bench_list(&args.op, stdout);
        return EXIT_CODE_OK;
    }
    return args.models.n > 0 ? bench_models(&args) : bench_ops(&args);
}
