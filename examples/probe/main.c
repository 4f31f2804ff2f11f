// lrnn-probe: measures whether a model tracks a state, how far, and with which eigenvalues.

#include "base/atomic-file.h"
#include "base/error.h"
#include "base/read-file.h"
#include "device-options.h"
#include "eigenvalues.h"
#include "horizon.h"
#include "interrupt.h"
#include "output-check.h"
#include "output.h"
#include "program.h"
#include "terminal.h"
#include "token-ids.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct args {
    struct option_strings models;
    const char *          task;
    const char *          automaton;
    struct option_ints    lengths;
    struct option_ints    sample;
    const char *          sequence;
    int64_t               trials;
    int64_t               seed;
    const char *          text_file;
    const char *          ids_file;
    bool                  eigenvalues;
    bool                  horizon;
    bool                  json;
    const char *          svg;
    struct device_options device;
};

// Tokens on which eigenvalues are counted.
enum { EIGENVALUES_TOKENS = 4096 };

// True if the input is a task. A text has no answers to check.
static bool has_task(const struct args * args) {
    return args->text_file == NULL && args->ids_file == NULL;
}

//
// One model
//

// The task from the command line, or from the model file.
static struct task * find_task(const struct args * args, const struct lrnn_model * model,
        char * name, size_t name_size, struct lrnn_error * err) {
    size_t       stated_size = 0, automaton_size = 0;
    const char * stated = lrnn_model_get_string(model, "lrnn.task", &stated_size);
    const char * automaton = lrnn_model_get_string(model, "lrnn.task.automaton", &automaton_size);
    char *       file = NULL;

    if (args->automaton != NULL) {
        snprintf(name, name_size, "automaton");
        if (!read_file(args->automaton, &file, &automaton_size, err)) {
            return NULL;
        }
        automaton = file;
    } else if (args->task != NULL) {
        snprintf(name, name_size, "%s", args->task);
    } else if (stated != NULL) {
        snprintf(name, name_size, "%.*s", stated_size < 64 ? (int) stated_size : 64, stated);
    } else {
        error_bad_input(err, "the file has no key lrnn.task; give --task%s",
                args->eigenvalues ? ", or a text with -f or --tokens" : "");
        return NULL;
    }
    struct task * task = task_new(name, automaton, automaton_size, err);
    if (task == NULL && automaton == NULL && strcmp(name, "automaton") == 0) {
        error_bad_input(err, "the model has no automaton for the task; give --automaton FILE");
    }
    free(file);
    return task;
}

// The tokens on which eigenvalues are counted: of a text, of a list of ids, or of the task.
static bool find_tokens(const struct args * args, struct lrnn_model * model,
        const struct task * task, int32_t ** tokens, int64_t * n, struct lrnn_error * err) {
    const bool has_ids = args->ids_file != NULL;
    char *     text = NULL;
    size_t     size = 0;

    *tokens = NULL;
    if (task != NULL) {
        return probe_tokens(model, task, (uint64_t) args->seed, args->lengths.v[0], tokens, n, err);
    }
    bool ok = read_file(has_ids ? args->ids_file : args->text_file, &text, &size, err);
    if (ok && has_ids) {
        ok = token_ids_parse(text, size, tokens, n, err) &&
             token_ids_check(*tokens, *n, lrnn_model_get_info(model).n_vocab, err);
    } else if (ok) {
        ok = lrnn_tokenize(model, text, size, LRNN_TOKENIZE_ADD_BOS, tokens, n, err);
    }
    free(text);
    return ok;
}

static bool count_eigenvalues(const struct args * args, struct lrnn_model * model,
        const struct task * task, struct eigenvalues * e, struct lrnn_error * err) {
    const int64_t n_layer = lrnn_model_get_info(model).n_layer;
    int32_t *     tokens = NULL;
    int64_t       n = 0;

    bool ok = find_tokens(args, model, task, &tokens, &n, err);
    n = n < EIGENVALUES_TOKENS ? n : EIGENVALUES_TOKENS;
    if (ok) {
        eigenvalues_init(e, (int) n_layer, n > 512 ? n / 512 : 1);
    }
    struct lrnn_session_params params = args->device.session;
    params.n_batch = 512;
    params.trace_kinds = LRNN_TRACE_SCANS;
    params.trace = eigenvalues_trace;
    params.trace_user = e;
    const struct lrnn_input input = { .tokens = tokens, .n_tokens = n };
    struct lrnn_session *   session = ok ? lrnn_session_new(model, &params, err) : NULL;
    ok = session != NULL && lrnn_eval(session, &input, 1, err);
    if (session != NULL && !ok && e->error != NULL) {
        error_bad_model(err, "cannot compute the eigenvalues of this model: %s", e->error);
    }
    lrnn_session_free(session);
    free(tokens);
    return ok;
}

static bool on_progress(int64_t done, int64_t total, void * user) {
    struct progress * p = user;
    if (done == 0) {
        progress_begin(p, (int) total);
    }
    p->n_done = (int) done;
    progress_step(p, "probing");
    return !interrupt_seen();
}

static bool probe(const struct args * args, struct lrnn_model * model, const struct task * task,
        struct probed * probed, struct lrnn_error * err) {
    const struct option_ints * lengths = args->sample.n > 0 ? &args->sample : &args->lengths;
    struct progress            progress = { 0 };
    struct probe_params        params = {
               .n_lengths = lengths->n,
               .n_sequences = args->trials,
               .seed = (uint64_t) args->seed,
               .session = args->device.session,
               .n_batch = args->device.session.n_batch,
               .progress = on_progress,
               .user = &progress,
    };
    memcpy(params.lengths, lengths->v, sizeof(lengths->v));
    const bool ok = args->horizon ? horizon_measure(model, task, &params, &probed->horizon, err)
                                  : (args->sample.n > 0 ? probe_at_end : probe_by_length)(
                                            model, task, &params, &probed->result, err);
    progress_clear(&progress);
    return ok;
}

static bool is_stopped(const struct probed * p) {
    return p->result.stopped || p->horizon.stopped;
}

// A table of accuracies is for one task.
static bool check_task(const struct args * args, const struct probed * first,
        const struct probed * p, struct lrnn_error * err) {
    return first == NULL || args->sample.n > 0 || args->horizon ||
           strcmp(first->task, p->task) == 0 ||
           error_bad_input(err,
                   "the task is %s, that of %s is %s; expected the same task, or --sample", p->task,
                   first->name, first->task);
}

// - first: the first model; NULL: this is the first one
static enum exit_code probe_model(const struct args * args, const char * path,
        const struct probed * first, struct probed * p) {
    struct lrnn_error   err;
    bool                ok = true;
    struct task *       task = NULL;
    struct lrnn_model * model = device_options_load(&args->device, path, args->json, &err);
    if (model == NULL) {
        return program_error(&err);
    }
    const char * slash = strrchr(path, '/');
    const char * file = slash != NULL ? slash + 1 : path;
    const size_t n = strlen(file);
    const bool   gguf = n > 5 && strcmp(file + n - 5, ".gguf") == 0;

    *p = (struct probed) { 0 };
    snprintf(p->name, sizeof(p->name), "%.*s", (int) (gguf ? n - 5 : n), file);
    snprintf(p->eigenvalues, sizeof(p->eigenvalues), "%s", lrnn_model_get_info(model).eigenvalues);
    if (has_task(args)) {
        task = find_task(args, model, p->task, sizeof(p->task), &err);
        p->chance = task != NULL ? task_chance(task) : 0.0;
        ok = task != NULL && check_task(args, first, p, &err) &&
             (args->sequence != NULL ? sequence_ask(model, task, &args->device.session,
                                               args->sequence, &p->sequence, &err)
                                     : probe(args, model, task, p, &err));
    }
    ok = ok && (!args->eigenvalues || is_stopped(p) ||
                       count_eigenvalues(args, model, task, &p->spectrum, &err));
    if (!ok) {
        error_prefix(&err, "%s", path);
    }
    task_free(task);
    lrnn_model_free(model);
    return ok ? EXIT_CODE_OK : program_error(&err);
}

//
// All models
//

static void print_results(const struct args * args, const struct probed * probed, int n) {
    enum { ACROSS = 2 }; // models of a table that fit on a terminal

    if (args->json) {
        output_json(stdout, probed, n, args->sample.n == 0);
        return;
    }
    if (args->horizon) {
        output_horizons(stdout, probed, n);
    } else if (args->sequence != NULL) {
        for (int i = 0; i < n; ++i) {
            printf("%s", i > 0 ? "\n" : "");
            sequence_print(stdout, probed[i].name, &probed[i].sequence);
        }
    } else if (args->sample.n > 0) {
        output_scores(stdout, probed, n, args->sample.v[0], args->sample.v[1]);
    } else if (has_task(args)) {
        for (int i = 0; i < n; i += ACROSS) {
            output_lengths(stdout, probed + i, n - i < ACROSS ? n - i : ACROSS, args->trials);
            printf("%s", i + ACROSS < n ? "\n" : "");
        }
    }
    for (int i = 0; i < n && args->eigenvalues; ++i) {
        printf("%s", i > 0 || has_task(args) ? "\n" : "");
        output_eigenvalues(stdout, &probed[i]);
    }
}

static enum exit_code write_svg(const char * path, const struct probed * probed, int n) {
    struct atomic_file file;
    struct lrnn_error  err;
    bool               ok = atomic_file_open(&file, path, &err);
    if (ok) {
        output_svg(file.file, probed, n);
        ok = atomic_file_commit(&file, &err);
    }
    return ok ? EXIT_CODE_OK : program_error(&err);
}

static enum exit_code check_args(const struct args * args) {
    struct lrnn_error err;

    for (int i = 1; i < args->lengths.n; ++i) {
        if (args->lengths.v[i] <= args->lengths.v[i - 1]) {
            return program_fail(EXIT_CODE_USAGE,
                    "--length has %" PRId64 " after %" PRId64 "; expected ascending lengths",
                    args->lengths.v[i], args->lengths.v[i - 1]);
        }
    }
    if (args->sample.n != 0 && (args->sample.n != 2 || args->sample.v[0] > args->sample.v[1])) {
        return program_fail(EXIT_CODE_USAGE,
                "--sample has %d numbers; expected two, the shortest and the longest length",
                args->sample.n);
    }
    if (args->horizon && (args->sample.n != 0 || !has_task(args))) {
        return program_fail(EXIT_CODE_USAGE,
                "--horizon needs a task and every position; expected none of --sample, -f and "
                "--tokens");
    }
    if (args->sequence != NULL &&
            (args->sample.n != 0 || args->horizon || !has_task(args) || args->svg != NULL)) {
        return program_fail(EXIT_CODE_USAGE,
                "--sequence gives the letters of a task; expected none of --sample, --horizon, "
                "--svg, -f and --tokens");
    }
    if (!has_task(args) && !args->eigenvalues) {
        return program_fail(EXIT_CODE_USAGE,
                "-f and --tokens need --eigenvalues: a text has no answers to check");
    }
    if (args->text_file != NULL && args->ids_file != NULL) {
        return program_fail(
                EXIT_CODE_USAGE, "-f and --tokens both set the input; give only one of them");
    }
    if (!device_options_check(&args->device, &err)) {
        return program_error(&err);
    }
    if (args->svg != NULL) {
        const char * inputs[OPTION_LIST_MAX + 3] = { args->automaton, args->text_file,
            args->ids_file };
        memcpy(inputs + 3, args->models.v, (size_t) args->models.n * sizeof(*inputs));
        return output_check(args->svg, inputs, args->models.n + 3);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run(void * user) {
    static struct probed probed[OPTION_LIST_MAX];
    const struct args *  args = user;
    enum exit_code       code = check_args(args);
    int                  n = 0;
    bool                 stopped = false;

    interrupt_listen();
    while (code == EXIT_CODE_OK && n < args->models.n && !stopped) {
        code = probe_model(args, args->models.v[n], n > 0 ? probed : NULL, &probed[n]);
        stopped = is_stopped(&probed[n]);
        n += code == EXIT_CODE_OK;
    }
    if (code == EXIT_CODE_OK) {
        print_results(args, probed, n);
        code = args->svg != NULL ? write_svg(args->svg, probed, n) : EXIT_CODE_OK;
    }
    for (int i = 0; i < n; ++i) {
        eigenvalues_free(&probed[i].spectrum);
        sequence_free(&probed[i].sequence);
    }
    return code == EXIT_CODE_OK && stopped ? EXIT_CODE_STOPPED : code;
}

int main(int argc, char ** argv) {
    struct args args = {
        .lengths = { .n = 4, .v = { 40, 256, 1024, 4096 } },
        .trials = 16,
        .device = DEVICE_OPTIONS_DEFAULTS,
    };
    args.device.session.n_batch = 2048;
    const struct option options[] = {
        opt_group("What"),
        opt_required(opt_strings("-m, --model", "M.gguf", &args.models,
                "a model; may be repeated, the results are shown side by side")),
        opt_string("--task", "TASK", &args.task,
                "parity, mod:M, S3 to S7, A3 to A7, S5:swaps, S5:2 (letters of at most two swaps), "
                "S5:3-cycles, S5:4-tokens, mod-arith:M, mod-brackets:M or automaton (default: the "
                "task in the model file)"),
        opt_string("--automaton", "FILE", &args.automaton,
                "an automaton in the format of lrnn-convert automaton, instead of --task"),
        opt_ints("--length", "LIST", &args.lengths, 1, 1e12,
                "report the accuracy up to these lengths: 100-1000000*10 is 100, 1000, …"),
        opt_int("--trials", "N", &args.trials, 1, 1e9, "number of sequences"),
        opt_ints("--sample", "LO,HI", &args.sample, 3, 1e9,
                "instead of --length: sequences of random lengths, and only the last answer, as in "
                "Grazzi et al. (default: off)"),
        opt_string("--sequence", "LETTERS", &args.sequence,
                "instead of random letters: show the answer of the model after each of these, such "
                "as '( 3 * ( 2 - 4 ) ) ='"),
        opt_int("-s, --seed", "N", &args.seed, 0, 9e15, "random seed of the sequences"),

        opt_group("Why"),
        opt_flag("--eigenvalues", &args.eigenvalues,
                "range and histogram of the eigenvalues of the transitions, on the first 4,096 "
                "tokens"),
        opt_flag("--horizon", &args.horizon,
                "spread and separation of the readouts of each true state by position, and where "
                "the spread exceeds the margin: up to there, no answer can be wrong"),
        opt_string("-f, --file", "FILE", &args.text_file,
                "count the eigenvalues on this text instead of a task"),
        opt_string("--tokens", "IDS", &args.ids_file,
                "the same on a file of decimal token ids, for models without a tokenizer"),

        opt_group("Output"),
        opt_flag("--json", &args.json, "print JSON"),
        opt_string("--svg", "FILE", &args.svg, "also write a chart"),

        opt_group("Computation"),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        DEVICE_STATE_TYPE(args.device),
        DEVICE_BATCH(args.device),
    };
    const struct program program = {
        .name = "lrnn-probe",
        .summary = "measures whether a model tracks a state, how far, and with which eigenvalues",
        .usage = "-m M.gguf --length 256,65536       accuracy by position\n"
                 "-m M.gguf --sample 40,256          the score of the paper\n"
                 "-m M.gguf --sequence '1 0 1'       answers to given letters\n"
                 "-m M.gguf --horizon                up to where tracking is certain\n"
                 "-m M.gguf --eigenvalues [-f TEXT]  eigenvalues of the transitions",
        .examples = "lrnn-probe -m s5.gguf -m s5-01.gguf --length 100-1000000*10 --trials 1\n"
                    "lrnn-probe -m delta-net.gguf --eigenvalues -f book.txt --svg spectrum.svg",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
