// Adds a tokenizer whose tokens are bytes to a model without tokenizer, for tests of programs that
// read and write text. A model with fewer than 256 ids gets more: the rows of its embedding and its
// output are repeated, each time with slightly smaller values.
//
//     make-text-model IN.gguf OUT.gguf [EOS]
//     make-text-model IN.gguf OUT.gguf EOS TEMPLATE SPECIAL...
//
// - EOS:      id of the end-of-text token
// - TEMPLATE: a file with a chat template
// - SPECIAL:  names of special tokens, with ids from 256 on

#include "ggml.h"
#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256, MAX_SPECIAL = 16, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

static int n_tokens = N_BYTES;

static void set_tokenizer(struct gguf_context * gguf, char ** special) {
    static char  text[N_BYTES][8];
    const char * tokens[N_BYTES + MAX_SPECIAL];
    int32_t      types[N_BYTES + MAX_SPECIAL];

    for (int i = 0; i < N_BYTES; ++i) {
        snprintf(text[i], sizeof(text[i]), "<0x%02X>", (unsigned) i);
        tokens[i] = text[i];
        types[i] = TYPE_BYTE;
    }
    for (int i = N_BYTES; i < n_tokens; ++i) {
        tokens[i] = special[i - N_BYTES];
        types[i] = TYPE_CONTROL;
    }
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "lrnn-bytes");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", tokens, (size_t) n_tokens);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, (size_t) n_tokens);
}

static bool set_template(struct gguf_context * gguf, const char * path) {
    static char  text[1 << 16];
    FILE *       file = fopen(path, "rb");
    const size_t n = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    gguf_set_val_str(gguf, "tokenizer.chat_template", text);
    return n > 0;
}

// [D, V] → [D, n_tokens]
static struct ggml_tensor * more_rows(struct ggml_context * ctx, const struct ggml_tensor * t) {
    struct ggml_tensor * more = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, t->ne[0], n_tokens);
    const float *        from = t->data;
    float *              to = more->data;
    const int64_t        n_row = t->ne[0];

    ggml_set_name(more, t->name);
    for (int64_t i = 0; i < n_tokens * n_row; ++i) {
        const int64_t times = i / (t->ne[1] * n_row);
        to[i] = from[i % (t->ne[1] * n_row)] * (1.0f - 0.1f * (float) times);
    }
    return more;
}

int main(int argc, char ** argv) {
    struct ggml_context * ctx = NULL;
    struct ggml_context * more = ggml_init((struct ggml_init_params) { .mem_size = 64 << 20 });

    if (argc < 3 || argc > 5 + MAX_SPECIAL) {
        fprintf(stderr, "usage: make-text-model IN.gguf OUT.gguf [EOS [TEMPLATE SPECIAL...]]\n");
        return 2;
    }
    struct gguf_context * in = gguf_init_from_file(
            argv[1], (struct gguf_init_params) { .no_alloc = false, .ctx = &ctx });
    if (in == NULL) {
        fprintf(stderr, "make-text-model: %s: cannot be read\n", argv[1]);
        return 1;
    }
    struct gguf_context * out = gguf_init_empty();
    gguf_set_kv(out, in);
    n_tokens += argc > 5 ? argc - 5 : 0;
    set_tokenizer(out, argv + 5);
    if (argc > 3) {
        gguf_set_val_u32(out, "tokenizer.ggml.eos_token_id", (uint32_t) strtoul(argv[3], NULL, 10));
    }
    bool ok = argc < 5 || set_template(out, argv[4]);
    for (int64_t i = 0; i < gguf_get_n_tensors(in); ++i) {
        struct ggml_tensor * t = ggml_get_tensor(ctx, gguf_get_tensor_name(in, i));
        if ((strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0) &&
                t->ne[1] < n_tokens) {
            ok = ok && t->type == GGML_TYPE_F32;
            t = more_rows(more, t);
            gguf_set_val_u32(out, "lrnn.vocab_size", (uint32_t) n_tokens);
        }
        gguf_add_tensor(out, t);
    }
    ok = ok && gguf_write_to_file(out, argv[2], false);
    if (!ok) {
        fprintf(stderr, "make-text-model: %s: cannot be written, or the embedding is not F32\n",
                argv[2]);
    }
    gguf_free(out);
    gguf_free(in);
    ggml_free(more);
    ggml_free(ctx);
    return ok ? 0 : 1;
}
