// lrnn-perplexity: what a model expects of a text. One command a file.

#include "compare-runs.h"
#include "compare-models.h"
#include "exit-code.h"
#include "imatrix.h"
#include "logits.h"
#include "options.h"
#include "report.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char * name;
    enum exit_code (*run)(int argc, char ** argv); // argv[0] is the name of the command
};

// Models are compared in step, runs that were scored before window by window.
static enum exit_code compare_main(int argc, char ** argv) {
    bool has_model = false;
    for (int i = 1; i < argc; ++i) {
        has_model |= strcmp(argv[i], "-m") == 0 || strncmp(argv[i], "--model", 7) == 0;
    }
    return has_model ? compare_step_main(argc, argv) : compare_files_main(argc, argv);
}

static const struct command COMMANDS[] = {
    { "compare", compare_main },
    { "imatrix", imatrix_main },
    { "logits", logits_main },
    { "report", report_main },
    { "run", run_main },
};

enum { N_COMMANDS = sizeof(COMMANDS) / sizeof(COMMANDS[0]) };

int main(int argc, char ** argv) {
    const char * names[N_COMMANDS + 1] = { NULL };
    for (int i = 0; i < N_COMMANDS; ++i) {
        names[i] = COMMANDS[i].name;
    }
    const struct program program = {
        .name    = "lrnn-perplexity",
        .summary = "what a model expects of a text, token by token",
        .usage =
                "compare A B                                  two runs that were scored before, window by window\n"
                "compare -m A.gguf -m B.gguf --data PATH      how far models are from the first one, by position\n"
                "imatrix -m M.gguf --data PATH --out F        what matters in each weight, for lrnn-quantize\n"
                "report PATH... --format table,svg --out DIR  tables and pictures out of score files\n"
                "run -m M.gguf --data PATH --out DIR          every token of a data set, into score files\n"
                "logits -m M.gguf --tokens IDS --out L.npy    the logits for given token ids\n"
                "COMMAND --help                               the options of a command",
        .examples  = "lrnn-perplexity logits -m model.gguf --tokens ids.txt --out logits.npy",
        .options   = NULL,
        .n_options = 0,
        .commands  = names,
    };
    char err[512] = "a command is missing; see lrnn-perplexity --help";

    for (int i = 0; i < N_COMMANDS && argc > 1; ++i) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0) {
            return COMMANDS[i].run(argc - 1, argv + 1);
        }
    }
    if (argc > 1 && argv[1][0] != '-') {
        snprintf(err, sizeof(err), "there is no command '%s'; see lrnn-perplexity --help", argv[1]);
    } else if (options_parse(&program, argc, argv, err, sizeof(err)) == OPTIONS_DONE) {
        return EXIT_CODE_OK;
    }
    fprintf(stderr, "lrnn-perplexity: %s\n", err);
    return EXIT_CODE_USAGE;
}
