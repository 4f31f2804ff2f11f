// The public text functions: bos and eos around a text, special tokens, and the bytes that a token
// adds to the text. The model is a golden one with a tokenizer of symbols that has bos, eos and an
// unused id.

#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "lrnn.h"

#include <unistd.h>

enum { V = 48, BOS = 0, EOS = 1, UNUSED = 2, FIRST = 3 }; // symbols s03 … s47

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_UNUSED = 5 }; // tokenizer.ggml.token_type

static bool make_model(const char * from, const char * path, bool add) {
    static char       names[V][8];
    const char *      tokens[V];
    int32_t           types[V];
    struct model_edit e;
    for (int i = 0; i < V; ++i) {
        snprintf(names[i], sizeof(names[i]),
                i == BOS      ? "<bos>"
                : i == EOS    ? "<eos>"
                : i == UNUSED ? "<none>"
                              : "s%02d",
                i);
        tokens[i] = names[i];
        types[i] = i == BOS || i == EOS ? TYPE_CONTROL : i == UNUSED ? TYPE_UNUSED : TYPE_NORMAL;
    }
    if (!model_edit_open(&e, from)) {
        return false;
    }
    gguf_set_val_str(e.gguf, "tokenizer.ggml.model", "lrnn-symbols");
    gguf_set_arr_str(e.gguf, "tokenizer.ggml.tokens", tokens, V);
    gguf_set_arr_data(e.gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, V);
    gguf_set_val_u32(e.gguf, "tokenizer.ggml.bos_token_id", BOS);
    gguf_set_val_u32(e.gguf, "tokenizer.ggml.eos_token_id", EOS);
    gguf_set_val_bool(e.gguf, "tokenizer.ggml.add_bos_token", add);
    gguf_set_val_bool(e.gguf, "tokenizer.ggml.add_eos_token", add);
    const bool ok = model_edit_write(&e, path);
    model_edit_close(&e);
    return ok;
}

static void expect(struct test * t, const struct lrnn_model * model, const char * text,
        unsigned flags, const int32_t * ids, int64_t n) {
    int32_t *         tokens;
    int64_t           n_tokens;
    struct lrnn_error err;
    if (test_check(t, lrnn_tokenize(model, text, strlen(text), flags, &tokens, &n_tokens, &err),
                "'%s': %s", text, err.text)) {
        test_check(t,
                n_tokens == n && (n == 0 || memcmp(tokens, ids, (size_t) n * sizeof(*ids)) == 0),
                "'%s' with flags %u gives %lld tokens", text, flags, (long long) n_tokens);
        free(tokens);
    }
}

static void test_flags(struct test * t, const struct lrnn_model * model, bool adds) {
    const unsigned bos = LRNN_TOKENIZE_ADD_BOS, eos = LRNN_TOKENIZE_ADD_EOS,
                   parse = LRNN_TOKENIZE_PARSE_SPECIAL;
    const int32_t all[] = { BOS, 5, 7, EOS };
    expect(t, model, "s05 s07", 0, all + 1, 2);
    expect(t, model, "s05 s07", bos, all + (adds ? 0 : 1), adds ? 3 : 2);
    expect(t, model, "s05 s07", eos, all + 1, adds ? 3 : 2);
    expect(t, model, "s05 s07", bos | eos, all + (adds ? 0 : 1), adds ? 4 : 2);
    expect(t, model, "", bos | eos, (const int32_t[]) { BOS, EOS }, adds ? 2 : 0);
    expect(t, model, "<bos> s05 s07 <eos>", parse, all, 4);
}

static void test_tokens(struct test * t, const struct lrnn_model * model) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    test_check(t, info.bos == BOS && info.eos == EOS, "bos is %d, eos is %d", info.bos, info.eos);
    for (int32_t id = -1; id <= V; ++id) {
        const bool special = id < FIRST || id >= V;
        test_check(t, lrnn_token_is_special(model, id) == special, "id %d is%s special", id,
                special ? "" : " not");
        test_check(t, lrnn_token_text_size(model, id) == (special ? 0u : 4u),
                "id %d adds %zu bytes", id, lrnn_token_text_size(model, id));
    }
    // lrnn_token_text_size agrees with the decoder
    struct lrnn_decoder * d = lrnn_decoder_new(model, true, NULL);
    size_t                said = 0, written = 0;
    for (int32_t i = 0; i < 200; ++i) {
        const int32_t id = (i * 7) % V;
        size_t        size;
        lrnn_decoder_push(d, id, &size);
        written += size;
        said += lrnn_token_text_size(model, id);
    }
    test_check(t, said == written && said > 0,
            "200 tokens have %zu bytes; the sum of their sizes is %zu", written, said);
    lrnn_decoder_free(d);
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list golden;
    char               path[64];
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    test_own_path(path, sizeof(path), "test-special-tokens.gguf");
    golden_list_load(&golden);
    for (int adds = 0; adds < 2; ++adds) {
        if (!test_check(&t, make_model(golden.models[0].path, path, adds == 1), "%s cannot be made",
                    path)) {
            continue;
        }
        struct lrnn_model * model = lrnn_model_load(path, NULL, &err);
        if (test_check(&t, model != NULL, "%s", err.text)) {
            const struct lrnn_model_info info = lrnn_model_get_info(model);
            test_check(&t, info.add_bos == (adds == 1) && info.add_eos == (adds == 1),
                    "the model %s bos and eos", adds ? "wants" : "does not want");
            test_flags(&t, model, adds == 1);
            test_tokens(&t, model);
        }
        lrnn_model_free(model);
    }
    // a model without a tokenizer
    struct lrnn_model * ids = lrnn_model_load(golden.models[0].path, NULL, &err);
    int32_t *           tokens;
    int64_t             n_tokens;
    test_check(&t,
            ids != NULL && !lrnn_tokenize(ids, "s05", 3, 0, &tokens, &n_tokens, &err) &&
                    strstr(err.text, "no tokenizer") != NULL,
            "a model without a tokenizer accepts text: %s", err.text);
    test_check(&t,
            ids != NULL && !lrnn_token_is_special(ids, 0) && lrnn_token_text_size(ids, 5) == 0,
            "a model without a tokenizer has special tokens or text");
    lrnn_model_free(ids);
    golden_list_free(&golden);
    remove(path);
    return test_end(&t, "test-special-tokens");
}
