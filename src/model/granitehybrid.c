// Granite-4.0-H: Mamba-2 layers (mamba2.c) and a few attention layers without positions, each with
// an MLP or a mixture of experts (moe.c)
//
//     x = m · embedding;   x += r · mixer(norm x);   x += r · mlp(norm x);   logits = W x / m'
//
// m, r, m' and the scale of the attention scores are keys of the file.

#include "model/families.h"

// Layers without key heads are recurrent.
static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    const char * heads = loader_key(l, "attention.head_count_kv");
    const char * rope = loader_key(l, "rope.scaling.finetuned");
    layer->attention = loader_int_at(l, heads, (size_t) il, 0, 4096, -1) > 0;
    layer->recurrent = !layer->attention;
    const bool experts = loader_int_or(l, loader_key(l, "expert_count"), 0, 65536, 0) > 0;
    layer->ffn = experts ? FFN_SWIGLU_EXPERTS : FFN_SWIGLU;
    if (layer->attention && loader_bool_or(l, rope, true)) {
        loader_fail(l, "key '%s' is not false; expected attention without RoPE", rope);
    }
}

const struct family family_granitehybrid = {
    .name = "granitehybrid",
    .llama_cpp = "granitehybrid",
    .mixer = &family_mamba2,
    .layer_kind = layer_kind,
};
