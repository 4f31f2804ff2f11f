#include "eval/model-facts.h"

#include "file/model-file.h"
#include "run/model.h"
#include "base/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool hash_file(
        const char * path, bool (*go_on)(void), char hex[65], char * err, size_t err_size) {
    enum { BLOCK = 1 << 20 };
    FILE *        file  = fopen(path, "rb");
    char *        block = malloc(BLOCK);
    bool          ok    = file != NULL && block != NULL;
    struct sha256 sha;
    sha256_begin(&sha);
    for (size_t n = 1; ok && n > 0;) {
        n = fread(block, 1, BLOCK, file);
        sha256_add(&sha, block, n);
        ok = !ferror(file) && (go_on == NULL || go_on());
    }
    if (ok) {
        sha256_hex(&sha, hex);
    } else {
        snprintf(err, err_size, "%s: its hash was not computed: %s", path,
                errno != 0 ? strerror(errno) : "stopped");
    }
    if (file != NULL) {
        fclose(file);
    }
    free(block);
    return ok;
}

static void add_int(struct sha256 * sha, int64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) {
        bytes[i] = (uint8_t) ((uint64_t) value >> 8 * i);
    }
    sha256_add(sha, bytes, sizeof(bytes));
}

// Key and value, the same whatever integer type the file uses; an absent key is one without
// elements.
static void add_key(struct sha256 * sha, const struct lrnn_model_file * file, const char * name) {
    const struct lrnn_model_key * key = lrnn_model_file_find_key(file, name);
    const size_t                  n   = key != NULL ? key->n : 0;
    sha256_add(sha, name, strlen(name) + 1);
    add_int(sha, (int64_t) n);
    for (size_t i = 0; i < n; ++i) {
        if (key->type == GGUF_TYPE_STRING) {
            const struct lrnn_text text = lrnn_model_key_text(key, i);
            add_int(sha, (int64_t) text.size);
            sha256_add(sha, text.data, text.size);
        } else if (key->type == GGUF_TYPE_FLOAT32 || key->type == GGUF_TYPE_FLOAT64) {
            const float value = (float) lrnn_model_key_float(key, i);
            int32_t     bits;
            memcpy(&bits, &value, sizeof(bits));
            add_int(sha, bits);
        } else {
            add_int(sha, key->type == GGUF_TYPE_BOOL ? lrnn_model_key_bool(key, i)
                                                     : lrnn_model_key_int(key, i));
        }
    }
}

static void hash_tokenizer(const struct lrnn_model * model, char hex[65]) {
    static const char * const keys[] = {
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "lrnn.tokenizer.normalizer",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.unknown_token_id",
        "tokenizer.ggml.add_space_prefix",
    };
    struct sha256 sha;
    sha256_begin(&sha);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
        add_key(&sha, model->file, keys[i]);
    }
    add_int(&sha,
            model->info
                    .bos); // as they are used, whether the file says it or the kind of tokenizer does
    add_int(&sha, model->info.eos);
    add_int(&sha, model->info.add_bos);
    sha256_hex(&sha, hex);
}

// Parameters, and the type that most of them have.
static void count_parameters(const struct lrnn_model * model, struct model_facts * facts) {
    enum { TYPES_MAX = 64 };
    const char *            types[TYPES_MAX];
    int64_t                 counts[TYPES_MAX];
    int                     n_types = 0, most = 0;
    struct lrnn_tensor_info tensor;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &tensor); ++i) {
        const int64_t n = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
        int           t = 0;
        while (t < n_types && strcmp(types[t], tensor.type) != 0) {
            t++;
        }
        if (t == n_types && n_types < TYPES_MAX) {
            types[n_types]    = tensor.type;
            counts[n_types++] = 0;
        }
        if (t < n_types) {
            counts[t] += n;
            most = counts[t] > counts[most] ? t : most;
        }
        facts->parameters += n;
    }
    facts->quantization = n_types > 0 ? types[most] : "";
}

bool model_facts_get(const struct lrnn_model * model, const char * path, bool (*go_on)(void),
        struct model_facts * facts, char * err, size_t err_size) {
    *facts = (struct model_facts) { 0 };
    errno  = 0;
    if (!hash_file(path, go_on, facts->hash, err, err_size)) {
        return false;
    }
    hash_tokenizer(model, facts->tokenizer_hash);
    count_parameters(model, facts);
    return true;
}
