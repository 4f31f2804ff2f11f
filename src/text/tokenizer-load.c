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
static struct slice * load_strings(struct loader * l, const char * key, size_t * n) {
    const struct model_key * array = NULL;
    char                     why[512];
    *n                           = 0;
    const enum key_status status = model_file_texts(l->model->file, key, &array, why, sizeof(why));
    if (status != KEY_OK) {
        if (status == KEY_BAD) {
            fail_as(l, why);
        }
        return NULL;
    }
    struct slice * strings = malloc((array->n + 1) * sizeof(*strings));
    if (strings == NULL) {
        loader_fail(l, "out of memory for the %zu strings of %s", array->n, key);
        return NULL;
    }
    for (size_t i = 0; i < array->n; ++i) {
        const struct slice text = model_key_text(array, i);
        strings[i]              = text;
    }
    *n = array->n;
    return strings;
}

// An array of numbers as floats or as i32, malloc'ed; absent: NULL and 0.
static void * load_numbers(struct loader * l, const char * key, bool floats, size_t * n) {
    const struct model_key * array = NULL;
    char                     why[512];
    *n = 0;
    const enum key_status status =
            floats ? model_file_floats(l->model->file, key, -1e30, 1e30, &array, why, sizeof(why))
                   : model_file_ints(l->model->file, key, 0, 255, &array, why, sizeof(why));
    if (status != KEY_OK) {
        if (status == KEY_BAD) {
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
            ((float *) numbers)[i] = (float) model_key_float(array, i);
        } else {
            ((int32_t *) numbers)[i] = (int32_t) model_key_int(array, i);
        }
    }
    *n = array->n;
    return numbers;
}

static const char * load_word(struct loader * l, const char * key) {
    struct slice          text;
    char                  why[512];
    const enum key_status status = model_file_text(l->model->file, key, &text, why, sizeof(why));
    if (status == KEY_BAD) {
        fail_as(l, why);
    }
    if (status == KEY_OK && memchr(text.data, '\0', text.size) != NULL) {
        loader_fail(l, "key '%s' has a NUL in its text; expected none", key);
        return NULL;
    }
    char * word = status == KEY_OK ? loader_alloc(l, text.size + 1) : NULL;
    if (word != NULL) {
        memcpy(word, text.data, text.size);
    }
    return word;
}

static int64_t load_id(struct loader * l, const char * key) {
    int64_t id = -1;
    char    why[512];
    if (model_file_int(l->model->file, key, 0, INT32_MAX, &id, why, sizeof(why)) == KEY_BAD) {
        fail_as(l, why);
    }
    return id;
}

static int load_flag(struct loader * l, const char * key) {
    bool                  flag;
    char                  why[512];
    const enum key_status status = model_file_bool(l->model->file, key, &flag, why, sizeof(why));
    if (status == KEY_BAD) {
        fail_as(l, why);
    }
    return status == KEY_OK ? flag : -1;
}

bool vocab_load(struct loader * l) {
    struct lrnn_model * model = l->model;
    model->info.bos = model->info.eos = -1;

    struct tokenizer_def def = TOKENIZER_DEF_NONE;
    def.model                = load_word(l, "tokenizer.ggml.model");
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

    struct slice * tokens = load_strings(l, "tokenizer.ggml.tokens", &def.n_tokens);
    struct slice * merges = load_strings(l, "tokenizer.ggml.merges", &def.n_merges);
    float *        scores = load_numbers(l, "tokenizer.ggml.scores", true, &def.n_scores);
    int32_t *      types  = load_numbers(l, "tokenizer.ggml.token_type", false, &def.n_types);
    def.tokens            = tokens;
    def.merges            = merges;
    def.scores            = scores;
    def.types             = types;

    if (!l->failed && def.n_tokens > (size_t) model->info.n_vocab) {
        loader_fail(l,
                "tokenizer.ggml.tokens has %zu tokens; token_embd.weight has %" PRId64 " rows",
                def.n_tokens, model->info.n_vocab);
    }
    char why[512];
    if (!l->failed && !tokenizer_new(&def, &model->tokenizer, why, sizeof(why))) {
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
    model->info.bos           = tokenizer_bos_id(model->tokenizer);
    model->info.eos           = tokenizer_eos_id(model->tokenizer);
    model->info.add_bos       = tokenizer_adds_bos(model->tokenizer);
    model->info.add_eos       = tokenizer_adds_eos(model->tokenizer);
    return true;
}
