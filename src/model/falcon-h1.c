// Falcon-H1: Mamba-2 (mamba2.c) and attention side by side in every layer
//
//     h = norm x;   x += mamba(h) + attention(h);   x += mlp(norm x)
//
// Its many multipliers are part of the weights of a file.

#include "model/families.h"

static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    (void) l;
    (void) il;
    layer->recurrent = true;
    layer->attention = true;
    layer->ffn = FFN_SWIGLU;
}

const struct family family_falcon_h1 = {
    .name = "falcon_h1",
    .llama_cpp = "falcon-h1",
    .mixer = &family_mamba2,
    .layer_kind = layer_kind,
    .attention = ATTENTION_ROPE,
    .ffn_norm = "ffn_norm", // without ".weight"
};
