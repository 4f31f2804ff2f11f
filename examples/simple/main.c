// lrnn-simple: continues a prompt. The smallest complete program on lrnn.h.
//
//     lrnn-simple model.gguf "Once upon a time"
//
// To build this file on its own, against an installed lrnn:
//
//     cc main.c -o lrnn-simple $(pkg-config --cflags --libs lrnn)
//
// lrnn-cli does the same with options, state files and error codes.

#include "lrnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct lrnn_error err;

static void check(bool ok) {
    if (!ok) {
        fprintf(stderr, "lrnn-simple: %s\n", err.text);
        exit(1);
    }
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: lrnn-simple MODEL.gguf PROMPT\n");
        return 2;
    }
    struct lrnn_model * model = lrnn_model_load(argv[1], NULL, &err);
    check(model != NULL);
    struct lrnn_session * session = lrnn_session_new(model, NULL, &err);
    check(session != NULL);
    const struct lrnn_generation_params params = {
        .sampler = { .temperature = 0.8f, .top_k = 40, .seed = 1 }, .max_tokens = 128
    };
    struct lrnn_generation * generation = lrnn_generation_new(session, 0, &params, &err);
    check(generation != NULL);

    int32_t * tokens; // of the prompt
    int64_t   n_tokens;
    check(lrnn_tokenize(
            model, argv[2], strlen(argv[2]), LRNN_TOKENIZE_ADD_BOS, &tokens, &n_tokens, &err));
    check(lrnn_generation_prompt(generation, tokens, n_tokens, &err));
    printf("%s", argv[2]);
    while (lrnn_generation_finish(generation) == LRNN_FINISH_NONE) {
        check(lrnn_generation_step(&generation, 1, &err));
        const struct lrnn_generated new = lrnn_generation_get(generation);
        fwrite(new.text, 1, new.size, stdout);
        fflush(stdout);
    }
    printf("\n");

    free(tokens);
    lrnn_generation_free(generation);
    lrnn_session_free(session);
    lrnn_model_free(model);
    return 0;
}
