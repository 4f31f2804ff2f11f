// lrnn-probe: does a model keep track of a state, how far, and which eigenvalues does it use?

#include "compute-options.h"
#include "interrupt.h"
#include "program.h"
#include "output-check.h"
#include "output.h"
#include "base/read-file.h"
#include "token-ids.h"

#include "base/atomic-file.h"

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
    int64_t               trials;
    int64_t               seed;
    const char *          text_file;
    const char *          ids_file;
    bool                  eigenvalues;
    bool                  json;
    const char *          svg;
    struct compute        compute;
    int64_t               batch;
};

// A text has none.
static bool has_answers(const struct args * args) {
    return args->text_file == NULL && args->ids_file == NULL;
}

// The task of a model: what the command line says, or what the file does.
static struct task * find_task(const struct args * args, const struct lrnn_model * model,
        char name[64], char * err, size_t err_size) {
    size_t       size, automaton_size = 0;
    const char * said      = lrnn_model_get_string(model, "lrnn.task", &size);
    const char * automaton = lrnn_model_get_string(model, "lrnn.task.automaton", &automaton_size);
    char *       file      = NULL;

    if (args->task == NULL && args->automaton == NULL && said == NULL) {
        snprintf(err, err_size, "the file does not say which task the model is for: give --task");
        return NULL;
    }
    snprintf(name, 64, "%.*s",
            args->automaton != NULL ? 9
            : args->task != NULL    ? 63
            : size < 63             ? (int) size
                                    : 63,
            args->automaton != NULL ? "automaton"
            : args->task != NULL    ? args->task
                                    : said);
    if (args->automaton != NULL) {
        if (!read_file(args->automaton, &file, &automaton_size, err, err_size)) {
            return NULL;
        }
        automaton = file;
    }
    struct task * task = task_new(name, automaton, automaton_size, err, err_size);
    free(file);
    return task;
}

// Eigenvalues on a text, or on a sequence of the task.
static bool watch(const struct args * args, struct lrnn_model * model, const struct task * task,
        struct eigenvalues * e, char * err, size_t err_size) {
    const struct lrnn_model_info info   = lrnn_model_get_info(model);
    int32_t *                    tokens = NULL;
    int64_t                      n      = 0;
    const int64_t                most   = 4096; // tokens that are looked at

    if (args->text_file != NULL || args->ids_file != NULL) {
        char *     text = NULL;
        size_t     size = 0;
        const bool ids  = args->ids_file != NULL;
        const bool read =
                read_file(ids ? args->ids_file : args->text_file, &text, &size, err, err_size) &&
                (ids ? token_ids_parse(text, size, &tokens, &n, err, err_size) &&
                                        token_ids_check(tokens, n, info.n_vocab, err, err_size)
                     : lrnn_tokenize(model, text, size, LRNN_TOKENIZE_ADD_BOS, &tokens, &n, err,
                               err_size));
        free(text);
        if (!read) {
            free(tokens);
            return false;
        }
    } else if (!probe_tokens(model, task, (uint64_t) args->seed, args->lengths.v[0], &tokens, &n,
                       err, err_size)) {
        return false;
    }
    n                             = n < most ? n : most;
    struct lrnn_session * session = NULL;
    bool                  done    = false;
    if (!eigenvalues_init(e, (int) info.n_layer, n > 512 ? n / 512 : 1)) {
        snprintf(err, err_size, "out of memory for %" PRId64 " layers", info.n_layer);
    } else if ((session = lrnn_session_new(model,
                        &(struct lrnn_session_params) {
                                .n_threads   = (int32_t) args->compute.threads,
                                .n_batch     = 512,
                                .trace_kinds = LRNN_TRACE_SCANS,
                                .trace       = eigenvalues_watch,
                                .trace_user  = e,
                        },
                        err, err_size)) != NULL) {
        done = lrnn_eval(session, &(struct lrnn_input) { .tokens = tokens, .n_tokens = n }, 1, err,
                err_size);
        if (!done && e->error != NULL) {
            snprintf(err, err_size, "the eigenvalues cannot be told: %s", e->error);
        }
    }
    lrnn_session_free(session);
    free(tokens);
    return done;
}

static enum exit_code probe_model(const struct args * args, const char * path, struct probed * p,
        char * task_name, char * model_name, char * range) {
    char                err[512];
    enum exit_code      code  = EXIT_CODE_OK;
    struct task *       task  = NULL;
    struct lrnn_model * model = compute_load(&args->compute, path, args->json);
    if (model == NULL) {
        return EXIT_CODE_MODEL;
    }
    const char * slash = strrchr(path, '/');
    const char * base  = slash != NULL ? slash + 1 : path;
    const size_t stem  = strlen(base) > 5 && strcmp(base + strlen(base) - 5, ".gguf") == 0
                                 ? strlen(base) - 5
                                 : strlen(base);
    snprintf(model_name, 128, "%.*s", (int) (stem < 127 ? stem : 127), base);
    snprintf(range, 16, "%s", lrnn_model_get_info(model).eigenvalues);

    const bool ask = has_answers(args);
    if (ask && (task = find_task(args, model, task_name, err, sizeof(err))) == NULL) {
        code = EXIT_CODE_USAGE;
    }
    *p = (struct probed) { .name = model_name,
        .task                    = task_name,
        .eigenvalues             = range,
        .chance                  = task != NULL ? task_chance(task) : 0.0 };
    if (task != NULL) {
        struct probe_params params = {
            .n_sequences = args->trials,
            .seed        = (uint64_t) args->seed,
            .n_threads   = (int32_t) args->compute.threads,
            .n_batch     = (int32_t) args->batch,
        };
        const struct option_ints * lengths = args->sample.n > 0 ? &args->sample : &args->lengths;
        params.n_lengths                   = lengths->n;
        memcpy(params.lengths, lengths->v, sizeof(lengths->v));
        switch ((args->sample.n > 0 ? probe_at_end : probe_by_length)(
                model, task, &params, &p->result, err, sizeof(err))) {
            case PROBE_OK: break;
            case PROBE_MISFIT: code = EXIT_CODE_USAGE; break;
            case PROBE_FAILED: code = EXIT_CODE_SYSTEM; break;
            case PROBE_NUMBERS: code = EXIT_CODE_NUMBERS; break;
        }
    }
    if (code == EXIT_CODE_OK && args->eigenvalues && !p->result.stopped &&
            !watch(args, model, task, &p->spectrum, err, sizeof(err))) {
        code = EXIT_CODE_DATA;
    }
    if (code != EXIT_CODE_OK) {
        program_say("%s: %s", path, err);
    }
    task_free(task);
    lrnn_model_free(model);
    return code;
}

static bool write_svg(
        const char * path, const struct probed * probed, int n, char * err, size_t err_size) {
    struct atomic_file file;
    if (!atomic_file_open(&file, path, err, err_size)) {
        return false;
    }
    output_svg(file.file, probed, n);
    return atomic_file_commit(&file, err, err_size);
}

static enum exit_code check_args(const struct args * args) {
    char err[512];

    for (int i = 1; i < args->lengths.n; ++i) {
        if (args->lengths.v[i] <= args->lengths.v[i - 1]) {
            program_say("--length %" PRId64 " comes after %" PRId64 "; expected ascending lengths",
                    args->lengths.v[i], args->lengths.v[i - 1]);
            return EXIT_CODE_USAGE;
        }
    }
    if (args->sample.n != 0 && (args->sample.n != 2 || args->sample.v[0] > args->sample.v[1])) {
        return program_fail(EXIT_CODE_USAGE,
                "--sample has %d numbers; expected two, the shortest and the longest length",
                args->sample.n);
    }
    if (!has_answers(args) &&
            (!args->eigenvalues || (args->text_file != NULL && args->ids_file != NULL))) {
        return program_fail(EXIT_CODE_USAGE,
                "-f or --tokens is for --eigenvalues, and one of them: a text has no answers to check");
    }
    if (!compute_check(&args->compute, err, sizeof(err))) {
        return program_fail(EXIT_CODE_USAGE, "%s", err);
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
    const struct args *  args = user;
    static struct probed probed[OPTION_LIST_MAX];
    static char          tasks[OPTION_LIST_MAX][64], names[OPTION_LIST_MAX][128],
            ranges[OPTION_LIST_MAX][16];
    char           err[512];
    int            n    = 0;
    enum exit_code code = check_args(args);

    if (code != EXIT_CODE_OK) {
        return code;
    }
    interrupt_listen(false);
    while (n < args->models.n && code == EXIT_CODE_OK && !(n > 0 && probed[n - 1].result.stopped)) {
        code = probe_model(args, args->models.v[n], &probed[n], tasks[n], names[n], ranges[n]);
        n += code == EXIT_CODE_OK;
    }
    for (int i = 1; i < n && args->sample.n == 0 && code == EXIT_CODE_OK && has_answers(args);
            ++i) {
        if (strcmp(tasks[i], tasks[0]) != 0) {
            program_say(
                    "%s is for the task %s, %s for %s: one table holds one task (--sample takes several)",
                    names[0], tasks[0], names[i], tasks[i]);
            code = EXIT_CODE_USAGE;
        }
    }
    if (code == EXIT_CODE_OK && args->json) {
        output_json(stdout, probed, n, args->sample.n == 0);
    } else if (code == EXIT_CODE_OK) {
        if (args->sample.n > 0) {
            output_scores(stdout, probed, n, args->sample.v[0], args->sample.v[1]);
        } else if (has_answers(args)) {
            enum { ACROSS = 3 }; // columns of a table that fits a terminal
            for (int i = 0; i < n; i += ACROSS) {
                output_lengths(stdout, probed + i, n - i < ACROSS ? n - i : ACROSS, args->trials);
                printf("%s", i + ACROSS < n ? "\n" : "");
            }
        }
        for (int i = 0; i < n && args->eigenvalues; ++i) {
            printf("%s", i > 0 || has_answers(args) ? "\n" : "");
            output_eigenvalues(stdout, &probed[i]);
        }
    }
    if (code == EXIT_CODE_OK && args->svg != NULL &&
            !write_svg(args->svg, probed, n, err, sizeof(err))) {
        program_say("%s", err);
        code = EXIT_CODE_SYSTEM;
    }
    if (code == EXIT_CODE_OK && n > 0 && probed[n - 1].result.stopped) {
        code = EXIT_CODE_STOPPED;
    }
    for (int i = 0; i < n; ++i) {
        eigenvalues_free(&probed[i].spectrum);
    }
    return code;
}

int main(int argc, char ** argv) {
    struct args args = { .lengths = { .n = 4, .v = { 40, 256, 1024, 4096 } },
        .trials                   = 16,
        .compute                  = COMPUTE_DEFAULTS,
        .batch                    = 2048 };

    const struct option options[] = {
        opt_group("What"),
        opt_required(opt_strings(
                "-m, --model", "M.gguf", &args.models, "a model; several are shown side by side")),
        opt_string("--task", "TASK", &args.task,
                "parity, mod:M, S3 to S7, A3 to A7, S5:2 (letters of at most two swaps), mod-arith, mod-brackets, automaton (default: what the file says)"),
        opt_string("--automaton", "FILE", &args.automaton,
                "an automaton, as lrnn-convert automaton takes it, in place of --task"),
        opt_ints("--length", "LIST", &args.lengths, 1, 1e12,
                "lengths up to which accuracy is given: 100-1000000*10 is 100, 1000, …"),
        opt_int("--trials", "N", &args.trials, 1, 1e9, "sequences"),
        opt_ints("--sample", "LO,HI", &args.sample, 3, 1e9,
                "instead of --length: sequences of a random length, and only the last answer, as Grazzi et al. score (default: off)"),
        opt_int("-s, --seed", "N", &args.seed, 0, 9e15, "of the sequences"),
        opt_group("Why"),
        opt_flag("--eigenvalues", &args.eigenvalues,
                "range and histogram of the transitions' eigenvalues on the first 4,096 tokens"),
        opt_string(
                "-f, --file", "FILE", &args.text_file, "eigenvalues on a text instead of a task"),
        opt_string("--tokens", "IDS", &args.ids_file,
                "the same on token ids, decimal numbers in a file, for models without a tokenizer"),
        opt_group("Output"),
        opt_flag("--json", &args.json, "as JSON"),
        opt_string("--svg", "FILE", &args.svg, "a picture as well"),
        opt_group("Computing"),
        COMPUTE_THREADS(args.compute),
        COMPUTE_OPTIONS(args.compute),
        opt_int("-b, --batch", "N", &args.batch, 1, 1 << 20, "tokens a call"),
    };
    const struct program program = {
        .name     = "lrnn-probe",
        .summary  = "does a model keep track of a state, how far, and with which eigenvalues",
        .usage    = "-m M.gguf --length 256,65536           accuracy by position\n"
                    "-m M.gguf --sample 40,256              the score of the paper\n"
                    "-m M.gguf --eigenvalues [-f TEXT]      what the transitions are",
        .examples = "lrnn-probe -m s5.gguf -m s5-01.gguf --length 100-1000000*10 --trials 1\n"
                    "lrnn-probe -m delta-net.gguf --eigenvalues -f book.txt --svg spectrum.svg",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
