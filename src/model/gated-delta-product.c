// DeltaProduct and Gated DeltaProduct: n Householder factors per token
//
//     q, k_j, v_j = silu(conv(W x))     β_j = σ(W_β x), doubled for eigenvalues in [-1,1]
//     q, k_j / ‖·‖                      g   = exp(−exp(A_log) softplus(W_α x + dt_bias)), or 1
//     S ← g S
//     for j = 1 .. n:   S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ
//     o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) [∘ silu(W_g x)])
//
// q and g are per token; k_j, v_j and β_j are per factor.

#include "model/families.h"

#include <math.h>

static const char * const GATES[] = { "none", "head", NULL };

struct delta_product {
    int64_t          H, K, P, W;
    int64_t          n;     // factors per token
    bool             gated; // false: DeltaProduct, g = 1
    enum output_gate gate;
    float            eps;
};

struct delta_product_layer {
    struct qkv           in;
    struct ggml_tensor * beta; // [D, n·H]
    struct head_gate     gate; // [D, H], [H], [H]; or none
    struct readout       readout;
};

static bool load(struct loader * l) {
    struct delta_product * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->W = conv_width_load(l);
    f->n = loader_int(l, "lrnn.householder_count", 1, 256);
    f->gated = loader_word(l, "lrnn.gate", GATES) == 1;
    f->gate = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    layer_style_load(l); // checked only: both styles build these layers in the same way

    l->model->info.n_householder = f->n;
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct delta_product * f = l->model->shared;
    struct delta_product_layer * w = layer->weights;
    const int64_t                D = l->model->n_embd;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    const int64_t nH = f->n * f->H;
    qkv_load(l, il, layer, f->W, f->H * f->K, nH * f->K, nH * f->P, &w->in);
    w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->n * f->H);
    if (f->gated) {
        head_gate_load(l, il, f->H, &w->gate);
    }
    readout_load(l, il, f->H, f->P, TENSOR_REQUIRED, f->eps, f->gate, &w->readout);
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct delta_product *       f = g->model->shared;
    const struct delta_product_layer * w = layer->weights;
    const int64_t                      T = g->n_tokens;

    struct ggml_tensor * q = conv_proj_build(g, &w->in.q, GGML_SHORT_CONV_SILU, x); // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->in.k, GGML_SHORT_CONV_SILU, x); // [n·H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_SILU, x); // [n·H·P, T]
    struct ggml_tensor * beta = graph_beta(g, graph_linear(g, w->beta, NULL, x));   // [n·H, T]
    struct ggml_tensor * gate = NULL;                                               // [1, H, 1, T]
    if (f->gated) {
        gate = graph_heads(g, head_gate_build(g, &w->gate, x), 1, f->H, 1);
    }
    const struct ggml_householder_scan_args args = {
        .q = graph_l2_norm(g, ggml_reshape_4d(g->ctx, q, f->K, f->H, 1, T), 1e-6f),
        .k = graph_l2_norm(g, ggml_reshape_4d(g->ctx, k, f->K, f->H, f->n, T), 1e-6f),
        .v = graph_heads(g, v, f->P, f->H, f->n),
        .beta = graph_heads(g, beta, 1, f->H, f->n),
        .gate = gate,
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, H, T]
    return readout_build(g, &w->readout, o, x);
}

const struct family family_gated_delta_product = {
    .name = "gated_delta_product",
    .signed_form = true,
    .shared_size = sizeof(struct delta_product),
    .layer_size = sizeof(struct delta_product_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
