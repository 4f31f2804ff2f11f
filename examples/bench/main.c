// lrnn-bench: measures the speed of models, and of the ops next to ggml's stock ops and to the peak
// performance of the machine.

#include "lrnn.h"
#include "device-options.h"
#include "machine.h"
#include "model-bench.h"
#include "op-bench.h"
#include "program.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

struct args {
    struct option_strings     models; // none: the op benchmark
    struct model_bench_params model;
    struct device_options     device; // its threads are ignored; ops only look at --device
    struct op_bench_params    op;
    int                       format; // enum results_format
    bool                      list;

    // both benchmarks
    struct option_ints threads;
    struct option_ints seqs; // sequences per call
    int64_t            repetitions;
};

//
// The op benchmark
//

struct op_run {
    struct op_results results;
    struct progress   progress;
    int               n_rejected;
    int               n_wrong;
    int               n_noisy;
};

static void on_progress(const char * what, void * user) {
    struct op_run * run = user;
    progress_step(&run->progress, what);
}

static void on_result(const struct op_result * r, void * user) {
    struct op_run * run = user;

    progress_clear(&run->progress);
    op_results_row(&run->results, r);
    progress_done(&run->progress);
    if (r->rejected != NULL) {
        program_say("%s: %s", r->c->name, r->rejected);
        run->n_rejected++;
    } else if (!r->agrees) {
        program_say("%s: wrong results, not timed: NMSE %.1e of outputs, %.1e of states against %s",
                r->c->name, r->nmse_output, r->nmse_state, r->checked);
        run->n_wrong++;
    } else if (op_result_is_noisy(r)) {
        run->n_noisy++;
    }
}

static enum exit_code bench_ops(const struct args * args) {
    struct lrnn_error err;
    struct machine    machine;
    struct op_run     run = { 0 };

    if (op_bench_count(&args->op) == 0) {
        return program_fail(EXIT_CODE_USAGE,
                "no case matches --op, --mode and --tokens; see lrnn-bench --list");
    }

    machine_describe(&machine);
    for (int i = 0; i < args->op.threads.n; ++i) {
        if (!machine_measure(&machine, (int) args->op.threads.v[i], &err)) {
            return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
        }
    }
    op_results_begin(&run.results, args->format, &machine);
    progress_begin(&run.progress, op_bench_count(&args->op));

    const bool ok = op_bench_run(&args->op, on_progress, on_result, &run, &err);

    progress_clear(&run.progress);
    op_results_end(&run.results);
    if (!ok) {
        return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
    }
    if (run.n_noisy > 0) {
        program_say(
                "%d of %d rows are noisy (marked ~ in the table): the machine did other work, or "
                "changed its speed",
                run.n_noisy, run.results.n_rows);
    }
    return run.n_wrong > 0      ? EXIT_CODE_NOT_FINITE
           : run.n_rejected > 0 ? EXIT_CODE_USAGE
                                : EXIT_CODE_OK;
}

//
// The model benchmark
//

struct model_run {
    struct model_results   results;
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
    model_results_row(&run->results, run->path, &run->info, r);
    progress_done(&run->progress);
}

// The first failure ends the run.
static enum exit_code bench_models(const struct args * args) {
    struct lrnn_error err;
    struct machine    machine;
    struct model_run  run = { 0 };
    enum exit_code    status = EXIT_CODE_OK;
    bool              is_begun = false;

    for (int i = 0; status == EXIT_CODE_OK && i < args->models.n; ++i) {
        struct lrnn_model * model =
                device_options_load(&args->device, args->models.v[i], false, &err);
        if (model == NULL) {
            status = program_error(&err);
            continue;
        }
        if (!is_begun) { // no table for a model that cannot be loaded
            machine_describe(&machine);
            model_results_begin(&run.results, args->format, &machine);
            progress_begin(&run.progress, args->models.n * model_bench_count(&args->model));
            is_begun = true;
        }
        run.path = args->models.v[i];
        run.info = lrnn_model_get_info(model);
        if (!model_bench_run(model, &args->model, on_model_progress, on_model_result, &run, &err)) {
            progress_clear(&run.progress);
            program_say("%s: %s", run.path, err.text);
            status = EXIT_CODE_SYSTEM;
        }
        lrnn_model_free(model);
    }
    if (is_begun) {
        progress_clear(&run.progress);
        model_results_end(&run.results);
    }
    return status;
}

//
// Command line
//

// Each benchmark rejects the options of the other: they would have no effect.
static bool has_op_options(const struct op_bench_params * op) {
    return op->family != OP_FAMILY_ALL || op->modes.n > 0 || op->tokens.n > 0 || op->d > 0 ||
           op->d_k > 0 || op->d_v > 0 || op->heads > 0 || op->n_h > 0 || op->layers > 0 ||
           op->path != GGML_SCAN_PATH_AUTO;
}

static bool has_model_options(const struct model_bench_params * model) {
    return model->n_prompt.n > 0 || model->n_gen.n > 0 || model->depths.n > 0 || model->n_batch > 0;
}

// The defaults are set here because those of -r differ, and because it matters whether -p, -n,
// --depth and -b were given.
static void set_defaults(struct args * args) {
    const struct option_ints one = { .n = 1, .v = { 1 } };

    args->op.threads = args->model.threads = args->threads;
    args->op.device = args->device.model.devices;
    if (args->op.device != NULL) { // one row per shape
        args->op.threads = one;
    }
    args->op.repetitions = args->repetitions > 0 ? args->repetitions : 7;
    args->model.repetitions = args->repetitions > 0 ? args->repetitions : 5;
    args->model.n_batch = args->model.n_batch > 0 ? args->model.n_batch : 512;
    args->model.seqs = args->seqs.n > 0 ? args->seqs : one;
    args->op.seqs = args->seqs.n > 0 ? args->seqs.v[0] : 0;
    args->model.session = args->device.session;
    if (args->model.n_prompt.n == 0) {
        args->model.n_prompt = (struct option_ints) { .n = 1, .v = { 512 } };
    }
    if (args->model.n_gen.n == 0) {
        args->model.n_gen = (struct option_ints) { .n = 1, .v = { 128 } };
    }
    if (args->model.depths.n == 0) {
        args->model.depths = (struct option_ints) { .n = 1, .v = { 0 } };
    }
}

static enum exit_code run(void * user) {
    struct args *     args = user;
    struct lrnn_error err;

    if (!device_options_check(&args->device, &err)) {
        return program_fail(EXIT_CODE_USAGE, "%s", err.text);
    }
    if (args->models.n > 0 && (args->list || has_op_options(&args->op))) {
        return program_fail(
                EXIT_CODE_USAGE, "-m times a model; --list and the options of an op do not apply");
    }
    if (args->models.n == 0 && has_model_options(&args->model)) {
        return program_fail(EXIT_CODE_USAGE, "-p, -n, --depth and -b need a model; give -m");
    }
    if (args->models.n == 0 && args->seqs.n > 1) {
        return program_fail(
                EXIT_CODE_USAGE, "--seqs has %d numbers; expected one for an op", args->seqs.n);
    }
    if (args->models.n == 0 && args->device.model.devices != NULL &&
            strchr(args->device.model.devices, ',') != NULL) {
        return program_fail(EXIT_CODE_USAGE, "--device is %s; expected one device for an op",
                args->device.model.devices);
    }
    set_defaults(args);
    if (args->models.n > 0 && model_bench_count(&args->model) == 0) {
        return program_fail(EXIT_CODE_USAGE, "-p and -n are both 0; there is no test");
    }
    if (args->list) {
        op_bench_list(&args->op, stdout);
        return EXIT_CODE_OK;
    }
    return args->models.n > 0 ? bench_models(args) : bench_ops(args);
}

int main(int argc, char ** argv) {
    struct args args = {
        .op = { .family = OP_FAMILY_ALL, .path = GGML_SCAN_PATH_AUTO, .min_time = 0.02 },
        .device = DEVICE_OPTIONS_DEFAULTS,
        .threads = { .n = 2, .v = { 1, 2 } },
        .format = RESULTS_MD,
    };

    const double        size_max = 65536;
    const struct option options[] = {
        opt_group("Models"),
        opt_strings("-m, --model", "M.gguf", &args.models,
                "time this model instead of the ops; may be repeated"),
        opt_ints("-p, --n-prompt", "LIST", &args.model.n_prompt, 0, 1 << 24,
                "tokens of the prompt; 0: no prompt (default: 512)"),
        opt_ints("-n, --n-gen", "LIST", &args.model.n_gen, 0, 1 << 24,
                "tokens to generate, one at a time; 0: none (default: 128)"),
        opt_ints("--depth", "LIST", &args.model.depths, 0, 1 << 24,
                "tokens in every sequence before a test, not timed (default: 0)"),
        opt_int("-b, --batch-size", "N", &args.model.n_batch, 1, 65536,
                "maximum number of tokens computed together (default: 512)"),
        DEVICE_OPTIONS(args.device),

        opt_group("Models and ops"),
        opt_ints("--seqs", "LIST", &args.seqs, 1, 4096,
                "sequences per call: of generation, as in 1,4,16,64; of an op, one number "
                "(default: 1)"),

        opt_group("Cases of an op"),
        opt_choice(
                "--op", "householder|signed|conv|attention|mul-mat|all", &args.op.family, "the op"),
        opt_strings("--mode", "GLOB", &args.op.modes,
                "only cases whose name matches, such as 'delta*'; may be repeated (default: all)"),
        opt_flag("--list", &args.list, "list the cases and stop"),

        opt_group("Shape (goals are shown only for the shape of the case)"),
        opt_ints("-T, --tokens", "LIST", &args.op.tokens, 1, 1 << 24,
                "tokens per sequence, such as 64,512 or 64-32768*8; decode cases keep their single "
                "token and are skipped if the list has no 1 (default: as in the case)"),
        opt_int("-d", "N", &args.op.d, 1, size_max,
                "d_k and d_v, of cases in which they are equal (default: as in the case)"),
        opt_int("--dk", "N", &args.op.d_k, 2, size_max,
                "rows of a state; taps of a convolution; length of the rows of a product "
                "(default: as in the case)"),
        opt_int("--dv", "N", &args.op.d_v, 1, size_max,
                "columns of a state; channels of a convolution; rows of a product "
                "(default: as in the case)"),
        opt_int("--heads", "N", &args.op.heads, 1, size_max,
                "heads, of cases with more than one (default: as in the case)"),
        opt_int("--n-h", "N", &args.op.n_h, 1, 64,
                "Householder factors per token, of the delta rule (default: as in the case)"),
        opt_int("--layers", "N", &args.op.layers, 1, 1024,
                "states to compute in turn, as in a model with that many layers; a single state "
                "stays in the cache (default: as in the case)"),

        opt_group("Measurement"),
        opt_ints("-t, --threads", "LIST", &args.threads, 1, 512, "thread counts"),
        opt_int("-r, --repetitions", "N", &args.repetitions, 1, 10000,
                "repetitions; models report the mean, ops the best; ours and stock take turns "
                "(default: 5 for models, 7 for ops)"),
        opt_float("--min-time", "S", &args.op.min_time, 0, 3600,
                "minimum seconds per repetition of an op"),
        opt_choice("--path", "auto|step|chunk|reference", &args.op.path, "the path of our op"),

        opt_group("Output"),
        opt_choice("-o, --output", "md|csv|json", &args.format, "format of the results on stdout"),
    };
    const struct program program = {
        .name = "lrnn-bench",
        .summary = "measures the speed of models, or of our ops next to the stock ops of ggml that "
                   "compute the same",
        .usage = "-m M.gguf [options]      prompt and generation of a model\n"
                 "[--op NAME] [options]    the cases of an op, or of all ops\n"
                 "--list                   the names of the cases",
        .examples = "lrnn-bench -m model.gguf -p 512,4096 -n 128 -t 1,2\n"
                    "lrnn-bench --op householder\n"
                    "lrnn-bench --op signed --mode 'mamba*' -T 64,512,4096,32768 -t 1 -o json > "
                    "mamba.json",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
