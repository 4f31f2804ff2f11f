// lrnn-perplexity run: scores every token of a data set into score files.

#include "lrnn.h"
#include "commands.h"

#include "interrupt.h"
#include "program.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

#define OF_PROTOCOL " (default: as the protocol says)"

static enum exit_code run(void * arg) {
    const struct run_args * args = arg;
    struct run_plan         plan;
    struct lrnn_error       err;

    if (args->list_datasets) {
        data_options_list();
        return EXIT_CODE_OK;
    }
    if (!run_plan_make(args, &plan, &err) || !device_options_check(&args->device, &err)) {
        return program_error(&err);
    }
    interrupt_listen();
    return run_models(&plan);
}

// Replaces "--probe state-norm", the name of --state-norm until version 0.2.
static int replace_probe(int argc, char ** argv) {
    static char STATE_NORM[] = "--state-norm";
    for (int i = 1; i + 1 < argc; ++i) {
        if (strcmp(argv[i], "--probe") == 0 && strcmp(argv[i + 1], "state-norm") == 0) {
            argv[i] = STATE_NORM;
            argc--;
            for (int k = i + 1; k < argc; ++k) {
                argv[k] = argv[k + 1];
            }
        }
    }
    return argc;
}

enum exit_code run_main(int argc, char ** argv) {
    struct run_args args = {
        .data = DATA_DEFAULTS,
        .reset = -1,
        .out = ".",
        .checkpoint_every = 16384,
        .device = DEVICE_OPTIONS_DEFAULTS,
    };
    args.data.window.length = args.data.window.max_windows = 0;
    args.data.mode = args.data.bos = args.data.eos = -1;

    const struct option options[] = {
        opt_group("Models"),
        opt_strings("-m, --model", "M.gguf", &args.models, "a model; may be repeated"),
        opt_strings("--name", "NAME", &args.names,
                "name of the model in reports, one per -m, in the same order (default: the file "
                "name)"),
        opt_int("--trained-length", "N", &args.trained_length, 1, 1e12,
                "context length in training (default: as the model file says)"),
        DATA_OPTIONS(args.data),
        opt_flag("--list-datasets", &args.list_datasets, "print the known data sets and exit"),
        opt_group("Protocol"),
        opt_choice("--protocol", RUN_PROTOCOLS, &args.protocol,
                "paper: packed windows of 32768 tokens; fla: of 28672; document: one document per "
                "window; llama: like llama-perplexity"),
        opt_choice("--reset", "window|document|never", &args.reset,
                "where to empty the state; never: one endless sequence" OF_PROTOCOL),
        opt_alias("--same-targets",
                opt_ints("--context-lengths", "LIST", &args.context_lengths, 1, WINDOW_MAX_LENGTH,
                        "score only the last 2048 tokens of each window, once after each of these "
                        "numbers of tokens (default: off)")),
        opt_flag("--state-norm", &args.state_norm,
                "also record the norm of the recurrent states along the window"),
        WINDOW_OPTIONS(args.data, OF_PROTOCOL),
        opt_group("Results"),
        opt_string("-o, --out", "DIR", &args.out, "folder for the score files, MODEL.DATASET.nll"),
        opt_flag("--resume", &args.resume, "continue an unfinished run"),
        opt_flag("--force", &args.force, "replace existing score files"),
        opt_flag("--dry-run", &args.dry_run,
                "count documents, tokens and windows, estimate the time, write nothing"),
        opt_group("Computation"),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        opt_alias("--group",
                opt_int("--parallel", "N", &args.parallel, 1, 4096,
                        "windows evaluated together (default: 4; 1 with --reset never)")),
        opt_int("-b, --batch-size", "N", &args.batch, 1, 1 << 20,
                "tokens of each window per call; affects only rounding (default: 512 "
                "divided by --parallel)"),
        opt_string("--shard", "I/N", &args.shard,
                "score only part I of N, for N processes or machines; report joins the parts"),
        opt_string("--time-limit", "TIME", &args.time_limit,
                "stop after TIME (90s, 30m, 2.5h) with a checkpoint and exit code 5 (default: "
                "none)"),
        opt_int("--checkpoint-every", "N", &args.checkpoint_every, 0, 1e12,
                "save the states every N tokens of a window; 0: only when the run is stopped"),
        opt_flag("-q, --quiet", &args.quiet, "no progress, no warnings"),
    };
    const struct program program = {
        .name = "lrnn-perplexity run",
        .summary = "scores every token of a data set, for reports on length extrapolation",
        .usage = "-m M.gguf --data PATH [options]\n"
                 "--list-datasets",
        .examples = "lrnn-perplexity run -m neg.gguf -m pos.gguf --dataset codeparrot --data "
                    "valid.json.gz --window 131072 --max-windows 16 --out results\n"
                    "lrnn-perplexity run -m model.gguf --data book.txt --protocol document "
                    "--time-limit 2h --out results --resume",
        OPTIONS(options),
    };
    return program_main(&program, replace_probe(argc, argv), argv, run, &args);
}
