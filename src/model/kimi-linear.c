// Kimi-Linear and Ling 3.0: KDA layers (kda.c) and a few layers of latent attention (mla.c); the
// first layers with an MLP, the others with a mixture of experts (moe.c)

#include "model/families.h"

#include <stdlib.h>

// Layers without key heads are recurrent.
static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    const char * heads = loader_key(l, "attention.head_count_kv");
    const char * dense = loader_key(l, "leading_dense_block_count");
    layer->attention = loader_int_at(l, heads, (size_t) il, 0, 4096, -1) > 0;
    layer->recurrent = !layer->attention;
    size_t n; // limits inside the experts are not supported
    free(loader_floats(l, loader_key(l, "swiglu_clamp_exp"), 0.0f, 0.0f, &n));
    free(loader_floats(l, loader_key(l, "swiglu_clamp_shexp"), 0.0f, 0.0f, &n));
    layer->ffn = il < loader_int_or(l, dense, 0, 4096, 0) ? FFN_SWIGLU : FFN_SWIGLU_EXPERTS;
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
