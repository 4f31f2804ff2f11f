// LFM2: gated short convolutions, and a few layers of attention; each with an MLP or, in mixtures
// after the first layers, with experts (moe.c)
//
//     (b, c, u) = W_in x;   out = W_out (c ∘ conv(b ∘ u))
//
// A layer remembers the last W − 1 tokens and nothing else.

#include "model/families.h"

struct lfm2_layer {
    struct ggml_tensor * in;   // [D, 3D]: rows b, c, u
    struct ggml_tensor * conv; // [W, D]
    struct ggml_tensor * out;  // [D, D]
    int32_t              state;
};

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    struct lfm2_layer * w = layer->weights;
    const int64_t       D = l->model->n_embd;
    const int64_t       W = loader_int(l, loader_key(l, "shortconv.l_cache"), 2, 64);

    w->state = loader_state(l, layer, (W - 1) * D);
    w->in = loader_tensor_2d(l, il, "shortconv.in_proj.weight", TENSOR_REQUIRED, D, 3 * D);
    w->conv = loader_tensor_2d(l, il, "shortconv.conv.weight", TENSOR_F32, W, D);
    w->out = loader_tensor_2d(l, il, "shortconv.out_proj.weight", TENSOR_REQUIRED, D, D);
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct lfm2_layer * w = layer->weights;
    const int64_t             D = g->model->n_embd;

    x = graph_product(g, w->in, x); // [3D, T]
    struct ggml_tensor * bu = ggml_mul(g->ctx, columns(g, x, 0, D), columns(g, x, 2 * D, D));
    bu = graph_conv(g, w->state, w->conv, NULL, GGML_SHORT_CONV_NONE, bu); // [D, T]
    return graph_product(g, w->out, ggml_mul(g->ctx, bu, columns(g, x, D, D)));
}

static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    layer_kind_by_heads(l, il, layer);
    loader_int_or(l, loader_key(l, "attention.sliding_window"), 0, 0, 0); // not supported
}

const struct family family_lfm2 = {
    .name = "lfm2",
    .llama_cpp = "lfm2",
    .layer_size = sizeof(struct lfm2_layer),
    .load_layer = load_layer,
    .mix = mix,
    .layer_kind = layer_kind,
    .attention = ATTENTION_ROPE | ATTENTION_QK_NORM,
    .output_norm = "token_embd_norm.weight", // in spite of its name
};

const struct family family_lfm2moe = {
    .name = "lfm2moe",
    .llama_cpp = "lfm2moe",
    .mixer = &family_lfm2,
    .layer_kind = layer_kind,
    .attention = ATTENTION_ROPE | ATTENTION_QK_NORM,
    .router = ROUTER_SIGMOID,
    .output_norm = "token_embd_norm.weight",
};
