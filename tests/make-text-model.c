// Gives a model of 256 ids or more, which has no tokenizer, that of plain bytes, so that what programs do with text can be tried on it.
//
//     make-text-model IN.gguf OUT.gguf [EOS]      EOS: the id that ends a text

#include "ggml.h"
#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_BYTES = 256, TYPE_BYTE = 6 };

static void set_tokenizer(struct gguf_context * gguf) {
    static char  text[N_BYTES][8];
    const char * tokens[N_BYTES];
    int32_t      types [N_BYTES];

    for (int i = 0; i < N_BYTES; i++) {
        snprintf(text[i], sizeof(text[i]), "<0x%02X>", i);
        tokens[i] = text[i];
        types [i] = TYPE_BYTE;
    }
    gguf_set_val_str (gguf, "tokenizer.ggml.model", "lrnn-bytes");
    gguf_set_arr_str (gguf, "tokenizer.ggml.tokens", tokens, N_BYTES);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, N_BYTES);
}

int main(int argc, char ** argv) {
    struct ggml_context * ctx = NULL;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "make-text-model IN.gguf OUT.gguf [EOS]\n");
        return 2;
    }
    struct gguf_context * in = gguf_init_from_file(argv[1], (struct gguf_init_params) { .no_alloc = false, .ctx = &ctx });
    if (in == NULL) {
        fprintf(stderr, "make-text-model: %s cannot be read\n", argv[1]);
        return 1;
    }
    struct gguf_context * out = gguf_init_empty();
    gguf_set_kv(out, in);
    set_tokenizer(out);
    if (argc > 3) {
        gguf_set_val_u32(out, "tokenizer.ggml.eos_token_id", (uint32_t) strtoul(argv[3], NULL, 10));
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(in); i++) {
        gguf_add_tensor(out, ggml_get_tensor(ctx, gguf_get_tensor_name(in, i)));
    }
    const bool ok = gguf_write_to_file(out, argv[2], false);
    if (!ok) {
        fprintf(stderr, "make-text-model: %s cannot be written\n", argv[2]);
    }
    gguf_free(out);
    gguf_free(in);
    ggml_free(ctx);
    return ok ? 0 : 1;
}
