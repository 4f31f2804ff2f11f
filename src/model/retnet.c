// RetNet: linear attention with a constant gate per head
//
//     q, k = RoPE(W x)                  v = W x
//     γ_h = 1 − 2^(−5−h)                h = 0 .. H − 1
//     S ← γ_h S + k vᵀ                  o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) ∘ silu(W_g x))

#include "model/families.h"

#include <math.h>

struct retnet {
    int64_t          H, K, P;
    enum activation  feature_map;
    enum output_gate gate;
    float            eps;
    float            rope_theta;
};

struct retnet_layer {
    struct qkv     in; // no convolution
    struct readout readout;
};

static bool load(struct loader * l) {
    struct retnet * f = l->model->shared;

    f->H = loader_int(l, "lrnn.head_count", 1, 100); // above, 2^(−5−h) is too small for a float
    f->K = loader_int(l, "lrnn.key_length", 2, 65536);
    f->P = loader_int(l, "lrnn.value_length", 1, 65536);
    f->feature_map = (enum activation) loader_word_or(
            l, "lrnn.feature_map", ACTIVATIONS, ACTIVATION_IDENTITY);
    f->gate = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    f->rope_theta = loader_float(l, "lrnn.rope_theta", 1.0f, 1e12f);
    if (!l->failed && f->K % 2 != 0) {
        return loader_fail(l, "key 'lrnn.key_length' is %lld; expected an even number, for RoPE",
                (long long) f->K);
    }
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct retnet * f = l->model->shared;
    struct retnet_layer * w = layer->weights;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    qkv_load(l, il, layer, 0, f->H * f->K, f->H * f->K, f->H * f->P, &w->in);
    readout_load(l, il, f->H, f->P, TENSOR_OPTIONAL, f->eps, f->gate, &w->readout);
    return !l->failed;
}

// q or k, [H·K, T] → [K, H, 1, T]
static struct ggml_tensor * rotate(
        struct graph * g, const struct retnet * f, struct ggml_tensor * x) {
    x = activation_build(g, f->feature_map, x);
    x = ggml_reshape_3d(g->ctx, x, f->K, f->H, g->n_tokens);
    x = graph_rope(g, x, f->K, f->rope_theta, NULL, false);
    return ggml_reshape_4d(g->ctx, x, f->K, f->H, 1, g->n_tokens);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct retnet *       f = g->model->shared;
    const struct retnet_layer * w = layer->weights;
    struct ggml_context *       c = g->ctx;

    struct ggml_tensor * q =
            rotate(g, f, conv_proj_build(g, &w->in.q, GGML_SHORT_CONV_NONE, x)); // [K, H, 1, T]
    struct ggml_tensor * k =
            rotate(g, f, conv_proj_build(g, &w->in.k, GGML_SHORT_CONV_NONE, x));    // [K, H, 1, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_NONE, x); // [H·P, T]

    // γ_h = 1 − e^(−(5 + h) ln 2)
    struct ggml_tensor * gamma = ggml_arange(c, 5.0f, 5.0f + (float) f->H, 1.0f); // [H]
    gamma = ggml_exp(c, ggml_scale(c, gamma, -0.693147181f));
    gamma = ggml_scale_bias(c, gamma, -1.0f, 1.0f);

    const struct ggml_signed_scan_args args = {
        .c = q,
        .b = k,
        .x = graph_heads(g, v, f->P, f->H, 1),
        .gate = ggml_reshape_4d(c, gamma, 1, f->H, 1, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_signed_gate(g, args); // [P, H, T]
    return readout_build(g, &w->readout, o, x);
}

const struct family family_retnet = {
    .name = "retnet",
    .shared_size = sizeof(struct retnet),
    .layer_size = sizeof(struct retnet_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
