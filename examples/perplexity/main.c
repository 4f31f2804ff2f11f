// lrnn-perplexity: how well models predict text. One command per file.

#include "base/error.h"
#include "commands.h"
#include "program.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char * name;
    enum exit_code (*run)(int argc, char ** argv);
};

static enum exit_code compare_main(int argc, char ** argv) {
    bool has_model = false;
    for (int i = 1; i < argc; ++i) {
        has_model |= strcmp(argv[i], "-m") == 0 || strncmp(argv[i], "--model", 7) == 0;
    }
    return has_model ? compare_models_main(argc, argv) : compare_runs_main(argc, argv);
}

static const struct command COMMANDS[] = {
    { "compare", compare_main },
    { "export", export_main },
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
        .name = "lrnn-perplexity",
        .summary = "measures how well models predict text, token by token",
        .usage =
                "run -m M.gguf --data PATH --out DIR          score a data set into score files\n"
                "report PATH... --format table,svg --out DIR  tables and charts of score files\n"
                "compare A B                                  compare two runs by window\n"
                "compare -m A.gguf -m B.gguf --data PATH      compare models by position\n"
                "export RUN --format csv|npy --out F          the loss of every token\n"
                "imatrix -m M.gguf --data PATH --out F        importance matrix for lrnn-quantize\n"
                "logits -m M.gguf --tokens IDS --out L.npy    logits of given token ids\n"
                "COMMAND --help                               options of a command",
        .examples = "lrnn-perplexity logits -m model.gguf --tokens ids.txt --out logits.npy",
        .commands = names,
    };
    char              expected[128] = "";
    struct lrnn_error err;
    for (int i = 0; i < N_COMMANDS; ++i) {
        strcat(expected, i == 0 ? "" : i < N_COMMANDS - 1 ? ", " : " or ");
        strcat(expected, COMMANDS[i].name);
    }
    error_bad_input(&err, "a command is missing; expected %s", expected);

    for (int i = 0; i < N_COMMANDS && argc > 1; ++i) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0) {
            return COMMANDS[i].run(argc - 1, argv + 1);
        }
    }
    if (argc > 1 && argv[1][0] != '-') {
        error_bad_input(&err, "unknown command '%s'; expected %s", argv[1], expected);
    } else if (options_parse(&program, argc, argv, &err) == OPTIONS_DONE) {
        return EXIT_CODE_OK;
    }
    fprintf(program_stderr(), "lrnn-perplexity: %s\n", err.text);
    return EXIT_CODE_USAGE;
}
