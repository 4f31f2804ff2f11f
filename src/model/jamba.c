// Jamba: Mamba layers (mamba.c), whose δ, B and C have norms with weights, and a few attention
// layers without positions, each with an MLP or a mixture of experts (moe.c)
//
//     x += mixer(norm x);   x += ffn(norm x)

#include "model/families.h"

#include <stdio.h>

// A layer with key heads is attention, others are recurrent; one with a router is a mixture.
static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    char router[64];
    snprintf(router, sizeof(router), "blk.%d.ffn_gate_inp.weight", il);
    layer_kind_by_heads(l, il, layer);
    layer->ffn = model_file_find_tensor(l->file, router) != NULL ? FFN_SWIGLU_EXPERTS : FFN_SWIGLU;
}

const struct family family_jamba = {
    .name = "jamba",
    .llama_cpp = "jamba",
    .mixer = &family_mamba,
    .layer_kind = layer_kind,
    .router = ROUTER_UNNORMALIZED,
};
