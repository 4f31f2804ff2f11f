// Adds a tokenizer whose tokens are bytes to a model without tokenizer, for tests of programs that
// read and write text. A model with fewer than 256 ids gets more: the rows of its embedding and its
// output are repeated, each time with slightly smaller values.
//
//     make-text-model IN.gguf OUT.gguf [EOS]      EOS: id of the end-of-text token

#include "ggml.h"
#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256, TYPE_BYTE = 6 };

static void set_tokenizer(struct gguf_context * gguf) {
    static char  text[N_BYTES][8];
    const char * tokens[N_BYTES];
    int32_t      types[N_BYTES];

    for (int i = 0; i < N_BYTES; ++i) {
        snprintf(text[i], sizeof(text[i]), "<0x%02X>", (unsigned) i);
        tokens[i] = text[i];
        types[i]  = TYPE_BYTE;
    }
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "lrnn-bytes");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", tokens, N_BYTES);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, N_BYTES);
}

// [D, V] → [D, 256]
static struct ggml_tensor * more_rows(struct ggml_context * ctx, const struct ggml_tensor * t) {
    struct ggml_tensor * more  = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, t->ne[0], N_BYTES);
    const float *        from  = t->data;
    float *              to    = more->data;
    const int64_t        n_row = t->ne[0];

    ggml_set_name(more, t->name);
    for (int64_t i = 0; i < N_BYTES * n_row; ++i) {
        const int64_t times = i / (t->ne[1] * n_row);
        to[i]               = from[i % (t->ne[1] * n_row)] * (1.0f - 0.1f * (float) times);
    }
    return more;
}

int main(int argc, char ** argv) {
    struct ggml_context * ctx  = NULL;
    struct ggml_context * more = ggml_init((struct ggml_init_params) { .mem_size = 64 << 20 });

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: make-text-model IN.gguf OUT.gguf [EOS]\n");
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
    set_tokenizer(out);
    if (argc > 3) {
        gguf_set_val_u32(out, "tokenizer.ggml.eos_token_id", (uint32_t) strtoul(argv[3], NULL, 10));
    }
    bool ok = true;
    for (int64_t i = 0; i < gguf_get_n_tensors(in); ++i) {
        struct ggml_tensor * t = ggml_get_tensor(ctx, gguf_get_tensor_name(in, i));
        if ((strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0) &&
                t->ne[1] < N_BYTES) {
            ok = ok && t->type == GGML_TYPE_F32;
            t  = more_rows(more, t);
            gguf_set_val_u32(out, "lrnn.vocab_size", N_BYTES);
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
