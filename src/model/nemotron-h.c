// Nemotron-H: layers that are one thing each: Mamba-2 (mamba2.c), attention without positions, an
// MLP with ReLU², or a mixture of such MLPs (moe.c)
//
//     x += mixer(norm x)    or    x += ffn(norm x)

#include "model/families.h"

#include <stdio.h>

// A layer has key heads, a feed-forward length, or neither: then it is recurrent. One with a router
// is a mixture.
static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    const char *  heads = loader_key(l, "attention.head_count_kv");
    const int64_t n = loader_int_at(l, heads, (size_t) il, 0, 4096, -1);
    char          router[64];
    snprintf(router, sizeof(router), "blk.%d.ffn_gate_inp.weight", il);
    const bool mixture = model_file_find_tensor(l->file, router) != NULL;
    layer->attention = n > 0;
    layer->ffn = layer->n_ff == 0 ? FFN_NONE : mixture ? FFN_RELU2_EXPERTS : FFN_RELU2;
    layer->recurrent = n == 0 && layer->n_ff == 0;
    if (n > 0 && layer->n_ff > 0) {
        loader_fail(l,
                "layer %d has %lld key heads and a feed-forward length of %lld; expected one of "
                "the two to be 0",
                il, (long long) n, (long long) layer->n_ff);
    }
}

const struct family family_nemotron_h = {
    .name = "nemotron_h",
    .llama_cpp = "nemotron_h",
    .mixer = &family_mamba2,
    .layer_kind = layer_kind,
};

const struct family family_nemotron_h_moe = {
    .name = "nemotron_h_moe",
    .llama_cpp = "nemotron_h_moe",
    .mixer = &family_mamba2,
    .layer_kind = layer_kind,
    .router = ROUTER_SIGMOID | ROUTER_UNNORMALIZED,
};
