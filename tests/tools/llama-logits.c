// Prints the logits that llama.cpp computes for a list of token ids, all of them in one call, in
// F32: float32 [tokens][vocabulary], to stdout. beside-llama-logits compares them with ours.
//
//     llama-logits MODEL [--steps] ID...
//
// --steps: one token per call

#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char * text, void * user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static int fail(const char * what) {
    fprintf(stderr, "llama-logits: %s\n", what);
    return 1;
}

int main(int argc, char ** argv) {
    const bool steps = argc > 2 && strcmp(argv[2], "--steps") == 0;
    const int  first = steps ? 3 : 2, n = argc - first;
    if (n < 1) {
        return fail("usage: llama-logits MODEL [--steps] ID...");
    }
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model * model = llama_model_load_from_file(argv[1], mp);
    if (model == NULL) {
        return fail("the model does not load");
    }
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 512;
    cp.n_batch = cp.n_ubatch = 512;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context * context = llama_init_from_model(model, cp);
    if (context == NULL) {
        return fail("no context");
    }
    const int32_t      n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const int          size = steps ? 1 : n; // of a call
    struct llama_batch batch = llama_batch_init(size, 0, 1);
    for (int at = 0; at < n; at += size) {
        batch.n_tokens = size;
        for (int i = 0; i < size; ++i) {
            batch.token[i] = atoi(argv[first + at + i]);
            batch.pos[i] = at + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = true;
        }
        if (llama_decode(context, batch) != 0) {
            return fail("llama_decode failed");
        }
        for (int i = 0; i < size; ++i) {
            fwrite(llama_get_logits_ith(context, i), sizeof(float), (size_t) n_vocab, stdout);
        }
    }
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
