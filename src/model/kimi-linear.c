// Kimi-Linear and Ling 3.0: KDA layers (kda.c) and a few layers of latent attention (mla.c); the
// first layers with an MLP, the others with a mixture of experts (moe.c)

#include "model/families.h"

#include <stdlib.h>

static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    size_t n; // limits inside the experts are not supported
    layer_kind_by_heads(l, il, layer);
    free(loader_floats(l, loader_key(l, "swiglu_clamp_exp"), 0.0f, 0.0f, &n));
    free(loader_floats(l, loader_key(l, "swiglu_clamp_shexp"), 0.0f, 0.0f, &n));
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
