// Granite-4.0-H and Bamba: Mamba-2 layers (mamba2.c) and a few attention layers, each with an MLP
// or a mixture of experts (moe.c). Granite's attention has no positions, Bamba's has RoPE.
//
//     x = m · embedding;   x += r · mixer(norm x);   x += r · mlp(norm x);   logits = W x / m'
//
// m, r, m' and the scale of the attention scores are keys of the file.

#include "model/families.h"

const struct family family_granitehybrid = {
    .name = "granitehybrid",
    .llama_cpp = "granitehybrid",
    .mixer = &family_mamba2,
    .layer_kind = layer_kind_by_heads,
    .attention = ATTENTION_ROPE_FINETUNED,
};
