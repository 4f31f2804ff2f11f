#pragma once

// The families, one file each. What they share: the block of projections around a mixer, and
// attention.

#include "run/graph.h"
#include "file/loader.h"

// Every family, by its name in lrnn.family: its file defines family_<name>. A new one needs its
// file and a line here.
#define FAMILIES(X)        \
    X(delta_net)           \
    X(gated_delta_net)     \
    X(gated_delta_product) \
    X(gla)                 \
    X(hgrn2)               \
    X(kda)                 \
    X(mamba)               \
    X(mamba2)              \
    X(mlstm)               \
    X(retnet)              \
    X(rwkv6)               \
    X(rwkv7)               \
    X(transformer)

#define FAMILY_DECLARE(name) extern const struct family family_##name;
FAMILIES(FAMILY_DECLARE)
#undef FAMILY_DECLARE

//
// block.c: x += mixer(norm x);  x += mlp(norm x)
//
struct block {
    struct ggml_tensor * attn_norm;             // [D]
    struct ggml_tensor * ffn_norm;              // [D]
    struct ggml_tensor * ffn_gate, *ffn_gate_b; // [D, F], [F] or NULL
    struct ggml_tensor * ffn_up, *ffn_up_b;     // [D, F], [F] or NULL
    struct ggml_tensor * ffn_down, *ffn_down_b; // [F, D], [D] or NULL
    bool                 post;                  // x += norm(mixer x);  x += norm(mlp x)
};

typedef struct ggml_tensor * (*mixer)(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x);

bool block_load(struct loader * l, int32_t il, bool post, struct block * block);
struct ggml_tensor * block_build(struct graph * g, const struct block * block,
        const struct layer * layer, mixer mix, struct ggml_tensor * x);

//
// The norm before a Mamba block: RMSNorm, LayerNorm where there is a bias
//
struct block_norm {
    struct ggml_tensor *weight, *bias; // [D], [D] or NULL
};

void block_norm_load(struct loader * l, int32_t il, struct block_norm * norm);
struct ggml_tensor * block_norm_build(
        struct graph * g, const struct block_norm * norm, struct ggml_tensor * x);

//
// A projection with its short convolution: y = f(conv(W x)), f SiLU or nothing
//
struct conv_proj {
    struct ggml_tensor * proj; // [D, channels]
    struct ggml_tensor * conv; // [W, channels], NULL: none
    struct ggml_tensor * bias; // [channels] or NULL
    int32_t              state;
};

// lrnn.conv_width: 0 for none, at least 2 otherwise
int64_t conv_width_load(struct loader * l);

// The projection is "attn_<name>.weight" and its convolution "ssm_conv1d_<name>.weight".
bool conv_proj_load(struct loader * l, int32_t il, struct layer * layer, const char * name,
        int64_t width, int64_t channels, struct conv_proj * proj);
struct ggml_tensor * conv_proj_build(struct graph * g, const struct conv_proj * proj,
        enum ggml_short_conv_activation activation, struct ggml_tensor * x);

//
// What is applied to q and k: the words of lrnn.qk_activation and lrnn.feature_map
//
enum activation {
    ACTIVATION_IDENTITY,
    ACTIVATION_RELU,
    ACTIVATION_ELU,
    ACTIVATION_SILU
}; // ELU: elu(x) + 1

extern const char * const ACTIVATIONS[];

struct ggml_tensor * activation_build(
        struct graph * g, enum activation activation, struct ggml_tensor * x);

//
// The read-out of fla's mixers: per head RMSNorm(o), times the output gate, then the output
// projection
//
enum output_gate { OUTPUT_GATE_NONE, OUTPUT_GATE_SILU, OUTPUT_GATE_SIGMOID };

extern const char * const OUTPUT_GATES[];

struct readout {
    struct ggml_tensor * norm;   // [P] or NULL
    struct ggml_tensor * output; // [heads·P, D]
    float                eps;
    enum output_gate     gate;
};

// o [P, heads, T], gate [heads·P, T] before its activation or NULL → [D, T]
struct ggml_tensor * readout_build(struct graph * g, const struct readout * r,
        struct ggml_tensor * o, struct ggml_tensor * gate);

//
// attention.c: the attention layers of hybrids and of the Transformer
//
bool attention_load_layer(struct loader * l, int32_t il, struct layer * layer);
struct ggml_tensor * attention_block(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x);
