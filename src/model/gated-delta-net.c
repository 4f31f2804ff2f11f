// Gated DeltaNet; also the recurrent layers of OLMo-Hybrid
//
//     q, k, v = silu(conv(W x))         β = σ(W_β x), doubled for eigenvalues in [-1,1]
//     q, k / ‖·‖                        g = exp(−exp(A_log) softplus(W_α x + dt_bias))
//     S ← g S;   S ← S + β k (v − Sᵀ k)ᵀ;   o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) [∘ silu(W_g x)])
//
// β and g are per value head. There are HV value heads, a multiple of the H heads of q and k.

#include "model/families.h"

#include <math.h>

struct gdn {
    int64_t          H, HV, K, P, W;
    enum output_gate gate;
    float            eps;
};

struct gdn_layer {
    struct qkv           in;
    struct ggml_tensor * beta; // [D, HV]
    struct head_gate     gate; // [D, HV], [HV], [HV]
    struct readout       readout;
};

static bool load(struct loader * l) {
    struct gdn * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->HV = loader_int_or(l, "lrnn.head_count_value", 1, 4096, f->H);
    f->W = conv_width_load(l);
    f->gate = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    layer_style_load(l); // checked only: both styles build these layers in the same way
    loader_multiple(l, "lrnn.head_count_value", f->HV, "lrnn.head_count", f->H);
    l->model->info.n_householder = 1;
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct gdn * f = l->model->shared;
    struct gdn_layer * w = layer->weights;
    const int64_t      D = l->model->n_embd;

    loader_recurrence(l, layer, f->HV, f->K, f->P, 0);
    qkv_load(l, il, layer, f->W, f->H * f->K, f->H * f->K, f->HV * f->P, &w->in);
    w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->HV);
    head_gate_load(l, il, f->HV, &w->gate);
    readout_load(l, il, f->HV, f->P, TENSOR_REQUIRED, f->eps, f->gate, &w->readout);
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct gdn *       f = g->model->shared;
    const struct gdn_layer * w = layer->weights;
    const int64_t            T = g->n_tokens;

    struct ggml_tensor * q = conv_proj_build(g, &w->in.q, GGML_SHORT_CONV_SILU, x); // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->in.k, GGML_SHORT_CONV_SILU, x); // [H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_SILU, x); // [HV·P, T]
    struct ggml_tensor * beta = graph_beta(g, graph_linear(g, w->beta, NULL, x));   // [HV, T]
    struct ggml_tensor * gate = head_gate_build(g, &w->gate, x);                    // [HV, T]

    const struct ggml_householder_scan_args args = {
        .q = graph_l2_norm(g, ggml_reshape_4d(g->ctx, q, f->K, f->H, 1, T), 1e-6f),
        .k = graph_l2_norm(g, ggml_reshape_4d(g->ctx, k, f->K, f->H, 1, T), 1e-6f),
        .v = graph_heads(g, v, f->P, f->HV, 1),
        .beta = graph_heads(g, beta, 1, f->HV, 1),
        .gate = graph_heads(g, gate, 1, f->HV, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, HV, T]
    return readout_build(g, &w->readout, o, x);
}

const struct family family_gated_delta_net = {
    .name = "gated_delta_net",
    .signed_form = true,
    .shared_size = sizeof(struct gdn),
    .layer_size = sizeof(struct gdn_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
