// Kimi-Linear and Ling 3.0: KDA layers (kda.c) and a few layers of latent attention (mla.c); the
// first layers with an MLP, the others with a mixture of experts (moe.c)

#include "model/families.h"

#include <stdlib.h>

// The limit of SwiGLU in layer il; llama.cpp takes the smallest ones as none, too.
static float limit_of(struct loader * l, const char * name, int32_t il) {
    const char * key = loader_key(l, name);
    size_t       n;
    float *      limits = loader_floats(l, key, 0.0f, 1e6f, &n);
    if (n > 0 && n <= (size_t) il) {
        loader_fail(l, "key '%s' has %zu elements; expected at least %d", key, n, il + 1);
    }
    const float limit = n > (size_t) il && limits[il] > 1e-6f ? limits[il] : 0.0f;
    free(limits);
    return limit;
}

static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    layer_kind_by_heads(l, il, layer);
    layer->glu_limit = limit_of(l, "swiglu_clamp_shexp", il);
    layer->glu_limit_experts = limit_of(l, "swiglu_clamp_exp", il);
}

const struct family family_kimi_linear = {
    .name = "kimi_linear",
    .llama_cpp = "kimi-linear",
    .mixer = &family_kda,
    .layer_kind = layer_kind,
    .attention = ATTENTION_LATENT,
    .router = ROUTER_SIGMOID,
};

const struct family family_bailingmoe3 = {
    .name = "bailingmoe3",
    .llama_cpp = "bailingmoe3",
    .mixer = &family_kda,
    .layer_kind = layer_kind,
    .attention = ATTENTION_LATENT | ATTENTION_ROPE | ATTENTION_GATE,
    .router = ROUTER_SIGMOID | ROUTER_UNNORMALIZED,
};
