// lrnn-simple: continues a prompt. The smallest complete program on lrnn.h.
//
//     lrnn-simple model.gguf "Once upon a time"
//
// To build this file on its own, against an installed lrnn:
//
//     cc main.c -o lrnn-simple $(pkg-config --cflags --libs lrnn)
//
// It feeds the tokens of the prompt to a session, then samples one token at a time, prints it and
// feeds it back. lrnn-cli does the same with options, state files and error codes.

#include "lrnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PREDICT = 128 };

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
    const char *        prompt = argv[2];
    struct lrnn_model * model  = lrnn_model_load(argv[1], NULL, &err);
    check(model != NULL);

    int32_t * tokens; // of the prompt
    int64_t   n_tokens;
    check(lrnn_tokenize(
            model, prompt, strlen(prompt), LRNN_TOKENIZE_ADD_BOS, &tokens, &n_tokens, &err));

    struct lrnn_session *            session = lrnn_session_new(model, NULL, &err);
    const struct lrnn_sampler_params params  = { .temperature = 0.8f, .top_k = 40, .seed = 1 };
    struct lrnn_sampler *            sampler = lrnn_sampler_new(&params, &err);
    struct lrnn_decoder *            decoder = lrnn_decoder_new(model, true, &err);
    check(session != NULL && sampler != NULL && decoder != NULL);

    const struct lrnn_model_info info  = lrnn_model_get_info(model);
    struct lrnn_input            input = { .tokens = tokens, .n_tokens = n_tokens, .n_logits = 1 };
    printf("%s", prompt);
    for (int i = 0; i < N_PREDICT; ++i) {
        check(lrnn_eval(session, &input, 1, &err));
        const int32_t token =
                lrnn_sampler_sample(sampler, lrnn_logits(session, 0), info.n_vocab, NULL, &err);
        check(token >= 0);
        if (token == info.eos) {
            break;
        }
        size_t       size;
        const char * text = lrnn_decoder_push(decoder, token, &size);
        fwrite(text, 1, size, stdout);
        fflush(stdout);
        tokens[0]      = token; // the session has the prompt; its buffer is free
        input.n_tokens = 1;
    }
    printf("\n");

    free(tokens);
    lrnn_decoder_free(decoder);
    lrnn_sampler_free(sampler);
    lrnn_session_free(session);
    lrnn_model_free(model);
    return 0;
}
