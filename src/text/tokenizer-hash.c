// The identity of a tokenizer: a hash of all keys that determine its tokens.

#include "base/sha256.h"
#include "file/model-file.h"
#include "text/tokenizer.h"

#include <string.h>

static void add_int(struct sha256 * sha, int64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) {
        bytes[i] = (uint8_t) ((uint64_t) value >> 8 * i);
    }
    sha256_add(sha, bytes, sizeof(bytes));
}

// Adds a key and its value, independent of the integer type in the file. A missing key counts as
// one without elements.
static void add_key(struct sha256 * sha, const struct model_file * file, const char * name) {
    const struct model_key * key = model_file_find_key(file, name);
    const size_t             n = key != NULL ? key->n : 0;
    sha256_add(sha, name, strlen(name) + 1);
    add_int(sha, (int64_t) n);
    for (size_t i = 0; i < n; ++i) {
        if (key->type == GGUF_TYPE_STRING) {
            const struct slice text = model_key_text(key, i);
            add_int(sha, (int64_t) text.size);
            sha256_add(sha, text.data, text.size);
        } else if (key->type == GGUF_TYPE_FLOAT32 || key->type == GGUF_TYPE_FLOAT64) {
            const float value = (float) model_key_float(key, i);
            int32_t     bits;
            memcpy(&bits, &value, sizeof(bits));
            add_int(sha, bits);
        } else {
            add_int(sha,
                    key->type == GGUF_TYPE_BOOL ? model_key_bool(key, i) : model_key_int(key, i));
        }
    }
}

void tokenizer_hash(const struct tokenizer * tok, const struct model_file * file, char hex[65]) {
    static const char * const keys[] = { "tokenizer.ggml.model", "tokenizer.ggml.pre",
        "lrnn.tokenizer.normalizer", "tokenizer.ggml.tokens", "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.unknown_token_id",
        "tokenizer.ggml.add_space_prefix" };
    struct sha256             sha;
    sha256_begin(&sha);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
        add_key(&sha, file, keys[i]);
    }
    // as used, whether the file states them or the kind of tokenizer implies them
    add_int(&sha, tok != NULL ? tokenizer_bos_id(tok) : -1);
    add_int(&sha, tok != NULL ? tokenizer_eos_id(tok) : -1);
    add_int(&sha, tok != NULL && tokenizer_adds_bos(tok));
    sha256_hex(&sha, hex);
}
