#include "kit/widen.h"

#include "kit/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Multiples of the length of a head; the embedding is separate.
static const struct {
    const char * key;
    uint32_t     lengths;
} keys[] = {
    { "feed_forward_length", 2 },
    { "key_length", 1 },
    { "value_length", 1 },
    { "state_length", 1 },
    { "attention.key_length", 1 },
    { "attention.value_length", 1 },
    { "ssm.state_size", 1 },
    { "ssm.inner_size", 4 },
    { "wkv.head_size", 1 },
    { "kda.head_dim", 1 },
    { "attention.q_lora_rank", 1 },
    { "attention.kv_lora_rank", 2 },
    { "attention.key_length_mla", 3 },
    { "attention.value_length_mla", 1 },
    { "rope.dimension_count", 1 },
};

bool widen_is_matrix(const struct ggml_tensor * x) {
    static const char * const others[] = { "conv1d", "shortconv.conv", "norm", "ssm_a", "ssm_d",
        "time_mix_first", "gate_inp", "time_mix_lerp_fused", "mlstm_", "slstm_" };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
        const char * at = strstr(x->name, others[i]);
        if (at != NULL && at[strlen(others[i])] != 't') { // ssm_d, not ssm_dt
            return false;
        }
    }
    return ggml_n_dims(x) > 1;
}

// Changes a shape. A matrix gets random values, other tensors repeat their values.
static void reshape(struct model_edit * e, const char * name, int n_dims, const int64_t * ne,
        struct test_rng * rng) {
    const struct ggml_tensor * from = model_edit_find(e, name);
    struct ggml_tensor *       to = model_edit_put(e, name, GGML_TYPE_F32, n_dims, ne);
    const double               size = 1.0 / sqrt((double) ne[0]);
    for (int64_t i = 0; i < ggml_nelements(to); ++i) {
        ((float *) to->data)[i] = widen_is_matrix(to)
                                          ? (float) (size * test_normal(rng))
                                          : ((const float *) from->data)[i % ggml_nelements(from)];
    }
}

// Parses an error message of the loader: "… tensor NAME has shape [a, b]; expected [c, any]", where
// any becomes `rank`.
static bool parse(const char * message, char name[GGML_MAX_NAME], int * n_dims, int64_t ne[4],
        uint32_t rank) {
    const char * p = strstr(message, "tensor ");
    const char * q = strstr(message, "expected [");
    if (p == NULL || q == NULL || sscanf(p, "tensor %63s", name) != 1) {
        return false;
    }
    q += strlen("expected [");
    for (*n_dims = 0; *n_dims < 4 && *q != '\0' && *q != ']'; ++*n_dims) {
        ne[*n_dims] = strncmp(q, "any", 3) == 0 ? rank : strtoll(q, NULL, 10);
        q += strcspn(q, ",]");
        q += *q == ',' ? 2 : 0;
    }
    return *n_dims > 0;
}

// Sets the keys, then changes each tensor that the loader rejects to the shape that it expects,
// until the model loads.
struct lrnn_model * widen(struct model_edit * e, uint32_t length, uint32_t width, const char * path,
        struct lrnn_error * err) {
    const char * arch = gguf_get_val_str(e->gguf, gguf_find_key(e->gguf, "general.architecture"));
    char         key[128];
    struct test_rng rng = { 1 };
    snprintf(key, sizeof(key), "%.32s.embedding_length", arch);
    gguf_set_val_u32(e->gguf, key, width);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
        snprintf(key, sizeof(key), "%.32s.%s", arch, keys[i].key);
        const int64_t at = gguf_find_key(e->gguf, key);
        if (at >= 0 && gguf_get_kv_type(e->gguf, at) == GGUF_TYPE_UINT32 &&
                gguf_get_val_u32(e->gguf, at) > 0) { // 0: no such layer
            gguf_set_val_u32(e->gguf, key, keys[i].lengths * length);
        }
    }
    if (strcmp(arch, "rwkv6qwen2") == 0) { // its number of heads follows from the width
        gguf_set_val_u32(e->gguf, "rwkv6qwen2.attention.head_count_kv", 1);
    }
    for (int64_t i = 0; i < e->n_tensors; ++i) { // shapes that the loader accepts
        const struct ggml_tensor * x = e->tensors[i];
        if (strcmp(x->name, "token_embd.weight") == 0) {
            reshape(e, x->name, 2, (const int64_t[2]) { width, x->ne[1] }, &rng);
        } else if (strstr(x->name, "ssm_in.weight") != NULL) {
            reshape(e, x->name, 2, (const int64_t[2]) { width, 6 * length }, &rng);
        }
    }
    for (int64_t tries = 0; tries <= e->n_tensors; ++tries) {
        char                name[GGML_MAX_NAME];
        int                 n_dims;
        int64_t             ne[4];
        struct lrnn_model * model =
                model_edit_write(e, path) ? lrnn_model_load(path, NULL, err) : NULL;
        if (model != NULL || !parse(err->text, name, &n_dims, ne, 5 * length)) {
            return model;
        }
        reshape(e, name, n_dims, ne, &rng);
    }
    return NULL;
}
