// Granite-4.0-H: Mamba-2 layers (mamba2.c) and a few attention layers without positions, each with
// an MLP or a mixture of experts (moe.c)
//
//     x = m · embedding;   x += r · mixer(norm x);   x += r · mlp(norm x);   logits = W x / m'
//
// m, r, m' and the scale of the attention scores are keys of the file.

#include "model/families.h"

static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    layer_kind_by_heads(l, il, layer);
    const char * rope = loader_key(l, "rope.scaling.finetuned");
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
