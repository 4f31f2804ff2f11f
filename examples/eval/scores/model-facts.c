#include "eval/scores/model-facts.h"

#include "base/error.h"
#include "base/sha256.h"
#include "memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char * model_type(const struct lrnn_model * model, int64_t * n_parameters) {
    enum { TYPES_MAX = 64 };
    const char *            types[TYPES_MAX] = { "" };
    int64_t                 counts[TYPES_MAX];
    int                     n_types = 0, most = 0;
    int64_t                 n_all = 0;
    struct lrnn_tensor_info tensor;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &tensor); ++i) {
        const int64_t n = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
        int           t = 0;
        while (t < n_types && strcmp(types[t], tensor.type) != 0) {
            t++;
        }
        if (t == n_types && n_types < TYPES_MAX) {
            types[n_types] = tensor.type;
            counts[n_types++] = 0;
        }
        if (t < n_types) {
            counts[t] += n;
            most = counts[t] > counts[most] ? t : most;
        }
        n_all += n;
    }
    if (n_parameters != NULL) {
        *n_parameters = n_all;
    }
    return types[most];
}

static bool hash_file(
        const char * path, bool (*stop)(void), char hex[65], struct lrnn_error * err) {
    enum { SIZE = 1 << 20 };
    FILE *        file = fopen(path, "rb");
    char *        data = program_alloc(SIZE, 1);
    bool          ok = file != NULL;
    bool          stopped = false;
    struct sha256 sha;
    sha256_begin(&sha);
    for (size_t n = 1; ok && n > 0 && !stopped;) {
        n = fread(data, 1, SIZE, file);
        sha256_add(&sha, data, n);
        ok = !ferror(file);
        stopped = stop != NULL && stop();
    }
    if (stopped) {
        error_set(err, LRNN_ERROR_CANCELLED, "%s: stopped while its hash was computed", path);
    } else if (!ok) {
        error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot compute its hash: %s", path, strerror(errno));
    } else {
        sha256_hex(&sha, hex);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(data);
    return ok && !stopped;
}

bool model_facts_get(const struct lrnn_model * model, const char * path, bool (*stop)(void),
        struct model_facts * facts, struct lrnn_error * err) {
    *facts = (struct model_facts) { 0 };
    if (!hash_file(path, stop, facts->hash, err)) {
        return false;
    }
    lrnn_model_get_tokenizer_hash(model, facts->tokenizer_hash);
    facts->quantization = model_type(model, &facts->parameters);
    return true;
}

//
// Tokenizers
//

static bool is_tokenizer_key(const struct lrnn_key_info * k) {
    return (k->name_size >= 10 && memcmp(k->name, "tokenizer.", 10) == 0) ||
           (k->name_size >= 15 && memcmp(k->name, "lrnn.tokenizer.", 15) == 0);
}

static int64_t find_key(const struct lrnn_model * model, const struct lrnn_key_info * wanted) {
    struct lrnn_key_info k;
    for (int64_t i = 0; lrnn_model_get_key(model, i, 0, &k); ++i) {
        if (k.name_size == wanted->name_size && memcmp(k.name, wanted->name, k.name_size) == 0) {
            return i;
        }
    }
    return -1;
}

static bool same_value(
        const struct lrnn_model * a, int64_t i, const struct lrnn_model * b, int64_t j) {
    struct lrnn_key_info x, y;
    int64_t              n = 1;
    for (int64_t k = 0; k < n; ++k) {
        lrnn_model_get_key(a, i, k, &x);
        lrnn_model_get_key(b, j, k, &y);
        n = x.n;
        if (x.kind != y.kind || x.is_array != y.is_array || x.n != y.n || x.integer != y.integer ||
                x.number != y.number || x.string_size != y.string_size ||
                (x.string_size > 0 && memcmp(x.string, y.string, x.string_size) != 0)) {
            return false;
        }
    }
    return true;
}

// Finds a tokenizer key of model a that b lacks or has with another value.
static bool find_difference(
        const struct lrnn_model * a, const struct lrnn_model * b, struct lrnn_key_info * k) {
    for (int64_t i = 0; lrnn_model_get_key(a, i, 0, k); ++i) {
        const int64_t j = is_tokenizer_key(k) ? find_key(b, k) : 0;
        if (is_tokenizer_key(k) && (j < 0 || !same_value(a, i, b, j))) {
            return true;
        }
    }
    return false;
}

bool model_tokenizers_differ(
        const struct lrnn_model * a, const struct lrnn_model * b, struct lrnn_key_info * key) {
    return find_difference(a, b, key) || find_difference(b, a, key);
}
