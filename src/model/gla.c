// GLA, gated linear attention: one gate per key channel
//
//     q, k, v = W x, with a short convolution silu(conv(W x))
//     α = σ(W_f2 W_f1 x + b)^(1/16), clamped from below;   2α − 1 for eigenvalues in [-1,1]
//     S ← α ∘ S + k vᵀ                  o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) ∘ silu(W_g x))
//
// The exponent is 1 / lrnn.gate_normalizer, 16 in most models.

#include "model/families.h"

#include <math.h>

struct gla {
    int64_t          H, K, P, W;
    int64_t          HK; // heads of k, v and the gate
    enum activation  feature_map;
    enum output_gate gate;
    float            eps;
    float            normalizer;
    float            clamp_min; // of log α; −∞: none
};

struct gla_layer {
    struct qkv      in;
    struct low_rank f; // out = HK·K
    struct readout  readout;
};

static bool load(struct loader * l) {
    struct gla * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->HK = loader_int_or(l, "lrnn.head_count_kv", 1, 4096, f->H);
    f->W = conv_width_load(l);
    f->feature_map = (enum activation) loader_word_or(
            l, "lrnn.feature_map", ACTIVATIONS, ACTIVATION_IDENTITY);
    f->gate = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    f->normalizer = loader_float(l, "lrnn.gate_normalizer", 1e-6f, 1e6f);
    f->clamp_min = loader_float_or(l, "lrnn.gate_clamp_min", -1e6f, 0.0f, -INFINITY);
    return loader_divisor(l, "lrnn.head_count_kv", f->HK, "lrnn.head_count", f->H);
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct gla * f = l->model->shared;
    struct gla_layer * w = layer->weights;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    qkv_load(l, il, layer, f->W, f->H * f->K, f->HK * f->K, f->HK * f->P, &w->in);
    low_rank_load(
            l, il, "ssm_f_a.weight", "ssm_f_b.weight", NULL, f->HK * f->K, TENSOR_REQUIRED, &w->f);
    w->f.bias = loader_tensor_1d(l, il, "ssm_f_b.bias", TENSOR_F32 | TENSOR_OPTIONAL, f->HK * f->K);
    readout_load(l, il, f->H, f->P, TENSOR_OPTIONAL, f->eps, f->gate, &w->readout);
    return !l->failed;
}

// The SiLU is part of the convolution: without a convolution there is none.
static struct ggml_tensor * project(
        struct graph * g, const struct conv_proj * p, struct ggml_tensor * x) {
    return conv_proj_build(g, p, p->conv != NULL ? GGML_SHORT_CONV_SILU : GGML_SHORT_CONV_NONE, x);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct gla *       f = g->model->shared;
    const struct gla_layer * w = layer->weights;

    struct ggml_tensor * q =
            activation_build(g, f->feature_map, project(g, &w->in.q, x)); // [H·K, T]
    struct ggml_tensor * k =
            activation_build(g, f->feature_map, project(g, &w->in.k, x)); // [HK·K, T]
    struct ggml_tensor * v = project(g, &w->in.v, x);                     // [HK·P, T]

    // log α = logσ(f) / normalizer = −softplus(−f) / normalizer
    struct ggml_tensor * gate = low_rank_build(g, &w->f, x); // [HK·K, T]
    gate = ggml_scale(g->ctx, ggml_softplus(g->ctx, ggml_neg(g->ctx, gate)), -1.0f / f->normalizer);
    if (f->clamp_min > -INFINITY) {
        gate = ggml_clamp(g->ctx, gate, f->clamp_min, 0.0f);
    }
    gate = ggml_exp(g->ctx, gate);
    if (g->model->is_signed) {
        gate = ggml_scale_bias(g->ctx, gate, 2.0f, -1.0f);
    }
    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, q, f->K, f->H, 1),
        .b = graph_heads(g, k, f->K, f->HK, 1),
        .x = graph_heads(g, v, f->P, f->HK, 1),
        .gate = graph_heads(g, gate, f->K, f->HK, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_signed_gate(g, args); // [P, H, T]
    return readout_build(g, &w->readout, o, x);
}

const struct family family_gla = {
    .name = "gla",
    .signed_form = true,
    .shared_size = sizeof(struct gla),
    .layer_size = sizeof(struct gla_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
