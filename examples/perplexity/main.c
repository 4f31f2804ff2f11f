// lrnn-perplexity: what a model expects of a text. One command a file.

#include "exit-code.h"
#include "logits.h"
#include "options.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char * name;
    enum exit_code (*run)(int argc, char ** argv); // argv[0] is the name of the command
};

static const struct command COMMANDS[] = {
    { "logits", logits_main },
};

enum { N_COMMANDS = sizeof(COMMANDS)/sizeof(COMMANDS[0]) };

int main(int argc, char ** argv) {
    const struct program program = {
        .name      = "lrnn-perplexity",
        .summary   = "what a model expects of a text, token by token",
        .modes     = (const char * const []) {
            "logits -m M.gguf --tokens IDS --out L.npy    the logits for given token ids",
            "COMMAND --help                               the options of a command", NULL },
        .examples  = (const char * const []) { "lrnn-perplexity logits -m model.gguf --tokens ids.txt --out logits.npy", NULL },
        .options   = NULL,
        .n_options = 0,
    };
    char err[512] = "a command is missing; see lrnn-perplexity --help";

    for (int i = 0; i < N_COMMANDS && argc > 1; i++) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0) {
            return COMMANDS[i].run(argc - 1, argv + 1);
        }
    }
    if (argc > 1 && argv[1][0] != '-') {
        snprintf(err, sizeof(err), "there is no command '%s'; see lrnn-perplexity --help", argv[1]);
    } else if (options_parse(&program, argc < 2 ? argc : 2, argv, err, sizeof(err)) == OPTIONS_DONE) {
        return EXIT_CODE_OK;
    }
    fprintf(stderr, "lrnn-perplexity: %s\n", err);
    return EXIT_CODE_USAGE;
}
