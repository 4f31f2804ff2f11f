// HGRN2: linear attention with the key 1 − gate
//
//     q = silu(conv(W_q x))             g = b + (1 − b) σ(conv(W_f x))
//     k = 1 − g                         v = conv(W_v x)
//     S ← g ∘ S + k vᵀ                  o = K^-1/2 Sᵀ q
//     out = W_o RMSNorm(o), over all heads at once
//
// b is the lower bound of the layer, 0 in the first one.

#include "model/families.h"

#include <math.h>

struct hgrn2 {
    int64_t H, K, P, W;
    float   eps;
};

struct hgrn2_layer {
    struct conv_proj     q, f, v;
    struct ggml_tensor * lower_bound; // [H·K], NULL: 0
    struct ggml_tensor * norm;        // [H·P]
    struct ggml_tensor * output;      // [H·P, D]
};

static bool load(struct loader * l) {
    struct hgrn2 * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->W = conv_width_load(l);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct hgrn2 * f = l->model->shared;
    struct hgrn2_layer * w = layer->weights;
    const int64_t        D = l->model->n_embd;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    conv_proj_load(l, il, layer, "attn_q.weight", "q", f->W, f->H * f->K, &w->q);
    conv_proj_load(l, il, layer, "attn_v.weight", "v", f->W, f->H * f->P, &w->v);
    conv_proj_load(l, il, layer, "ssm_f.weight", "f", f->W, f->H * f->K, &w->f);
    w->lower_bound = loader_tensor_1d(l, il, "ssm_lower_bound.weight",
            TENSOR_F32 | TENSOR_OPTIONAL | TENSOR_SHARE, f->H * f->K);
    w->norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, f->H * f->P);
    w->output = loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, f->H * f->P, D);
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct hgrn2 *       f = g->model->shared;
    const struct hgrn2_layer * w = layer->weights;

    struct ggml_tensor * q =
            ggml_silu(g->ctx, conv_proj_build(g, &w->q, GGML_SHORT_CONV_NONE, x)); // [H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->v, GGML_SHORT_CONV_NONE, x);   // [H·P, T]
    struct ggml_tensor * gate =
            ggml_sigmoid(g->ctx, conv_proj_build(g, &w->f, GGML_SHORT_CONV_NONE, x)); // [H·K, T]
    if (w->lower_bound != NULL) { // b + (1 − b) σ
        struct ggml_tensor * rest = ggml_scale_bias(g->ctx, w->lower_bound, -1.0f, 1.0f); // [H·K]
        gate = ggml_add(g->ctx, ggml_mul(g->ctx, gate, rest), w->lower_bound);
    }
    struct ggml_tensor * k = ggml_scale_bias(g->ctx, gate, -1.0f, 1.0f); // [H·K, T]

    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, q, f->K, f->H, 1),
        .b = graph_heads(g, k, f->K, f->H, 1),
        .x = graph_heads(g, v, f->P, f->H, 1),
        .gate = graph_heads(g, gate, f->K, f->H, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_signed_gate(g, args); // [P, H, T]

    o = ggml_reshape_2d(g->ctx, o, f->H * f->P, g->n_tokens); // [H·P, T]
    return graph_linear(g, w->output, NULL, graph_rms_norm(g, o, w->norm, f->eps));
}

const struct family family_hgrn2 = {
    .name = "hgrn2",
    .shared_size = sizeof(struct hgrn2),
    .layer_size = sizeof(struct hgrn2_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
