// Transformer: the baseline, a model of attention layers only
//
//     x += attention(norm x);   x += mlp(norm x)
//
// The mixer and its equation are in attention.c, which the hybrids share.

#include "model/families.h"

const struct family family_transformer = {
    .name = "transformer",
    .own_range = true,
    .attention_only = true,
};
