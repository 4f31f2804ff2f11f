// From the tokenizer.ggml keys of a model file to a tokenizer, and the public functions for text.

#include "text/tokenizer-load.h"

#include "file/model-file.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Loading
//

// A sentence that the file's reader has made.
static bool fail_as(struct loader * l, const char * why) {
    if (!l->failed) {
        l->failed = true;
        snprintf(l->err, l->err_size, "%s", why);
    }
    return false;
}

// An array of strings, malloc'ed; absent: NULL and 0.
static struct lrnn_text * load_strings(struct loader * l, const char * key, size_t * n) {
    const struct lrnn_model_key * array = NULL;
    char                          why[512];
    *n = 0;
    const enum lrnn_key_status status =
            lrnn_model_file_texts(l->model->file, key, &array, why, sizeof(why));
    if (status != LRNN_KEY_OK) {
        if (status == LRNN_KEY_BAD) {
            fail_as(l, why);
        }
        return NULL;
    }
    struct lrnn_text * strings = malloc((array->n + 1) * sizeof(*strings));
    if (strings == NULL) {
        loader_fail(l, "out of memory for the %zu strings of %s", array->n, key);
        return NULL;
    }
    for (size_t i = 0; i < array->n; ++i) {
        const struct lrnn_text text = lrnn_model_key_text(array, i);
        strings[i]                  = text;
    }
    *n = array->n;
    return strings;
}

// An array of numbers as floats or as i32, malloc'ed; absent: NULL and 0.
static void * load_numbers(struct loader * l, const char * key, bool floats, size_t * n) {
    const struct lrnn_model_key * array = NULL;
    char                          why[512];
    *n = 0;
    const enum lrnn_key_status status =
            floats ? lrnn_model_file_floats(
                             l->model->file, key, -1e30, 1e30, &array, why, sizeof(why))
                   : lrnn_model_file_ints(l->model->file, key, 0, 255, &array, why, sizeof(why));
    if (status != LRNN_KEY_OK) {
        if (status == LRNN_KEY_BAD) {
            fail_as(l, why);
        }
        return NULL;
    }
    void * numbers = malloc((array->n + 1) * 4);
    if (numbers == NULL) {
        loader_fail(l, "out of memory for the %zu numbers of %s", array->n, key);
        return NULL;
    }
    for (size_t i = 0; i < array->n; ++i) {
        if (floats) {
            ((float *) numbers)[i] = (float) lrnn_model_key_float(array, i);
        } else {
            ((int32_t *) numbers)[i] = (int32_t) lrnn_model_key_int(array, i);
        }
    }
    *n = array->n;
    return numbers;
}

static const char * load_word(struct loader * l, const char * key) {
    struct lrnn_text           text;
    char                       why[512];
    const enum lrnn_key_status status =
            lrnn_model_file_text(l->model->file, key, &text, why, sizeof(why));
    if (status == LRNN_KEY_BAD) {
        fail_as(l, why);
    }
    if (status == LRNN_KEY_OK && memchr(text.data, '\0', text.size) != NULL) {
        loader_fail(l, "key '%s' has a NUL in its text; expected none", key);
        return NULL;
    }
    char * word = status == LRNN_KEY_OK ? loader_alloc(l, text.size + 1) : NULL;
    if (word != NULL) {
        memcpy(word, text.data, text.size);
    }
    return word;
}

static int64_t load_id(struct loader * l, const char * key) {
    int64_t id = -1;
    char    why[512];
    if (lrnn_model_file_int(l->model->file, key, 0, INT32_MAX, &id, why, sizeof(why)) ==
            LRNN_KEY_BAD) {
        fail_as(l, why);
    }
    return id;
}

static int load_flag(struct loader * l, const char * key) {
    bool                       flag;
    char                       why[512];
    const enum lrnn_key_status status =
            lrnn_model_file_bool(l->model->file, key, &flag, why, sizeof(why));
    if (status == LRNN_KEY_BAD) {
        fail_as(l, why);
    }
    return status == LRNN_KEY_OK ? flag : -1;
}

bool vocab_load(struct loader * l) {
    struct lrnn_model * model = l->model;
    model->info.bos = model->info.eos = -1;

    struct lrnn_tokenizer_def def = LRNN_TOKENIZER_DEF_NONE;
    def.model                     = load_word(l, "tokenizer.ggml.model");
    if (l->failed || def.model == NULL || strcmp(def.model, "none") == 0 ||
            strcmp(def.model, "no_vocab") == 0) {
        return !l->failed;
    }
    def.pre        = strcmp(def.model, "gpt2") == 0 ? load_word(l, "tokenizer.ggml.pre") : NULL;
    def.normalizer = load_word(l, "lrnn.tokenizer.normalizer");
    if (def.normalizer == NULL && def.pre != NULL &&
            (strcmp(def.pre, "mpt") == 0 || strcmp(def.pre, "gpt-neox") == 0)) {
        def.normalizer =
                "nfc"; // what the tokenizer of GPT-NeoX does; llama.cpp's files have no key to say so
    }
    def.bos_id           = load_id(l, "tokenizer.ggml.bos_token_id");
    def.eos_id           = load_id(l, "tokenizer.ggml.eos_token_id");
    def.unknown_id       = load_id(l, "tokenizer.ggml.unknown_token_id");
    def.padding_id       = load_id(l, "tokenizer.ggml.padding_token_id");
    def.add_bos          = load_flag(l, "tokenizer.ggml.add_bos_token");
    def.add_eos          = load_flag(l, "tokenizer.ggml.add_eos_token");
    def.add_space_prefix = load_flag(l, "tokenizer.ggml.add_space_prefix");

    struct lrnn_text * tokens = load_strings(l, "tokenizer.ggml.tokens", &def.n_tokens);
    struct lrnn_text * merges = load_strings(l, "tokenizer.ggml.merges", &def.n_merges);
    float *            scores = load_numbers(l, "tokenizer.ggml.scores", true, &def.n_scores);
    int32_t *          types  = load_numbers(l, "tokenizer.ggml.token_type", false, &def.n_types);
    def.tokens                = tokens;
    def.merges                = merges;
    def.scores                = scores;
    def.types                 = types;

    if (!l->failed && def.n_tokens > (size_t) model->info.n_vocab) {
        loader_fail(l,
                "tokenizer.ggml.tokens has %zu tokens; token_embd.weight has %" PRId64 " rows",
                def.n_tokens, model->info.n_vocab);
    }
    char why[512];
    if (!l->failed && !lrnn_tokenizer_new(&def, &model->tokenizer, why, sizeof(why))) {
        loader_fail(l, "tokenizer: %s", why);
    }
    free(tokens);
    free(merges);
    free(scores);
    free(types);
    if (l->failed) {
        return false;
    }
    model->info.has_tokenizer = true;
    model->info.bos           = lrnn_tokenizer_bos_id(model->tokenizer);
    model->info.eos           = lrnn_tokenizer_eos_id(model->tokenizer);
    model->info.add_bos       = lrnn_tokenizer_adds_bos(model->tokenizer);
    model->info.add_eos       = lrnn_tokenizer_adds_eos(model->tokenizer);
    return true;
}

//
// Text
//

bool lrnn_text_to_tokens(const struct lrnn_model * model, const char * text, size_t size,
        unsigned flags, int32_t ** tokens, int64_t * n_tokens, char * err, size_t err_size) {
    *tokens   = NULL;
    *n_tokens = 0;
    if (model->tokenizer == NULL) {
        snprintf(err, err_size, "the model has no tokenizer; it knows token ids only");
        return false;
    }
    const unsigned internal = (flags & LRNN_TEXT_ADD_BOS ? LRNN_TOKENIZE_ADD_BOS : 0u) |
                              (flags & LRNN_TEXT_ADD_EOS ? LRNN_TOKENIZE_ADD_EOS : 0u) |
                              (flags & LRNN_TEXT_PARSE_SPECIAL ? LRNN_TOKENIZE_PARSE_SPECIAL : 0u);
    struct lrnn_ids ids = { 0 };
    if (!lrnn_tokenize(model->tokenizer, text, size, internal, &ids, err, err_size)) {
        lrnn_ids_free(&ids);
        return false;
    }
    *tokens   = ids.data;
    *n_tokens = (int64_t) ids.n;
    return true;
}

const char * lrnn_token_bytes_of(const struct lrnn_model * model, int32_t token, size_t * size) {
    *size = 0;
    if (model->tokenizer == NULL || token < 0 ||
            token >= lrnn_tokenizer_n_tokens(model->tokenizer)) {
        return NULL;
    }
    const struct lrnn_text bytes = lrnn_token_bytes(model->tokenizer, token);
    *size                        = bytes.size;
    return bytes.data;
}

bool lrnn_token_is_special(const struct lrnn_model * model, int32_t token) {
    return model->tokenizer != NULL && lrnn_token_is_hidden(model->tokenizer, token);
}

size_t lrnn_token_text_size(const struct lrnn_model * model, int32_t token) {
    return model->tokenizer != NULL ? lrnn_token_n_bytes(model->tokenizer, token) : 0;
}

// A decoder is the detokenizer under the name that the public header gives it.
struct lrnn_decoder * lrnn_decoder_new(const struct lrnn_model * model, bool continues) {
    return model->tokenizer == NULL ? NULL
                                    : (struct lrnn_decoder *) lrnn_detokenizer_new(model->tokenizer,
                                              continues ? LRNN_DETOKENIZE_CONTINUE : 0);
}

void lrnn_decoder_free(struct lrnn_decoder * decoder) {
    lrnn_detokenizer_free((struct lrnn_detokenizer *) decoder);
}

const char * lrnn_decoder_push(struct lrnn_decoder * decoder, int32_t token, size_t * size) {
    const struct lrnn_text text = lrnn_detokenizer_push((struct lrnn_detokenizer *) decoder, token);
    *size                       = text.size;
    return text.data;
}

const char * lrnn_decoder_end(struct lrnn_decoder * decoder, size_t * size) {
    const struct lrnn_text text = lrnn_detokenizer_end((struct lrnn_detokenizer *) decoder);
    *size                       = text.size;
    return text.data;
}
