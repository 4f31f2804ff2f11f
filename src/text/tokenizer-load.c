// Makes a tokenizer from the keys of a model file.

#include "lrnn.h"
#include "file/loader.h"
#include "text/tokenizer-impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool tokenizer_load(struct loader * l, int64_t n_vocab, struct tokenizer ** tok) {
    *tok = NULL;

    struct tokenizer_def def = TOKENIZER_DEF_NONE;
    def.model = loader_string_or(l, "tokenizer.ggml.model", NULL);
    if (l->failed || def.model == NULL || strcmp(def.model, "none") == 0 ||
            strcmp(def.model, "no_vocab") == 0) {
        return !l->failed;
    }
    def.pre =
            strcmp(def.model, "gpt2") == 0 ? loader_string_or(l, "tokenizer.ggml.pre", NULL) : NULL;
    def.normalizer = loader_string_or(l, "lrnn.tokenizer.normalizer", NULL);
    const struct named_pre_tokenizer * pre = def.pre != NULL ? pre_tokenizer_find(def.pre) : NULL;
    if (def.normalizer == NULL && pre != NULL && pre->nfc) {
        def.normalizer = "nfc";
    }
    def.bos_id = loader_int_or(l, "tokenizer.ggml.bos_token_id", 0, INT32_MAX, -1);
    def.eos_id = loader_int_or(l, "tokenizer.ggml.eos_token_id", 0, INT32_MAX, -1);
    def.unknown_id = loader_int_or(l, "tokenizer.ggml.unknown_token_id", 0, INT32_MAX, -1);
    def.padding_id = loader_int_or(l, "tokenizer.ggml.padding_token_id", 0, INT32_MAX, -1);
    def.add_bos = loader_flag(l, "tokenizer.ggml.add_bos_token");
    def.add_eos = loader_flag(l, "tokenizer.ggml.add_eos_token");
    def.add_space_prefix = loader_flag(l, "tokenizer.ggml.add_space_prefix");

    struct slice * tokens = loader_strings(l, "tokenizer.ggml.tokens", &def.n_tokens);
    struct slice * merges = loader_strings(l, "tokenizer.ggml.merges", &def.n_merges);
    float *        scores = loader_floats(l, "tokenizer.ggml.scores", -1e30f, 1e30f, &def.n_scores);
    int32_t *      types = loader_ints(l, "tokenizer.ggml.token_type", 0, 255, &def.n_types);
    def.tokens = tokens;
    def.merges = merges;
    def.scores = scores;
    def.types = types;

    if (!l->failed && def.n_tokens > (size_t) n_vocab) {
        loader_fail(l,
                "tokenizer.ggml.tokens has %zu tokens; token_embd.weight has %" PRId64 " rows",
                def.n_tokens, n_vocab);
    }
    struct lrnn_error why;
    if (!l->failed && !tokenizer_new(&def, tok, &why)) {
        loader_fail_with(l, &why, "tokenizer");
    }
    free(tokens);
    free(merges);
    free(scores);
    free(types);
    return !l->failed;
}
