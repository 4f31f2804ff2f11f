#include "eval/model-facts.h"

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
    lrnn_model_get_tokenizer_hash(model, facts->tokenizer_hash);
    count_parameters(model, facts);
    return true;
}
