// Gated DeltaNet-2: KDA with two gates in place of β, one per key channel for what is erased and
// one per value channel for what is written
//
//     q, k, v = silu(conv(W x))         b = σ(W_b x), doubled for eigenvalues in [-1,1]
//     q, k / ‖·‖                        w = σ(W_w x), never doubled
//     g = exp(−exp(A_log) softplus(W_f2 W_f1 x + dt_bias))
//     S ← g ∘ S;   S ← S − k ((b ∘ k)ᵀ S) + k (w ∘ v)ᵀ;   o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) ∘ σ(W_g2 W_g1 x + b_g))
//
// There are HV heads of v and w, a multiple of the H heads of q, k, b and g.

#include "model/families.h"

#include <math.h>

struct gdn2 {
    int64_t H, HV, K, P, W;
    float   eps;
};

struct gdn2_layer {
    struct qkv           in;
    struct ggml_tensor * erase; // [D, H·K]       W_b
    struct ggml_tensor * write; // [D, HV·P]      W_w
    struct low_rank      decay; // [D, R], [R, H·K], [H·K]
    struct ggml_tensor * a;     // [H]            −exp(A_log)
    struct low_rank      gate;  // [D, R], [R, HV·P], [HV·P] or NULL
    struct readout       readout;
};

static bool load(struct loader * l) {
    struct gdn2 * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->HV = loader_int_or(l, "lrnn.head_count_value", 1, 4096, f->H);
    f->W = conv_width_load(l);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    loader_multiple(l, "lrnn.head_count_value", f->HV, "lrnn.head_count", f->H);
    l->model->info.n_householder = 1;
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct gdn2 * f = l->model->shared;
    struct gdn2_layer * w = layer->weights;
    const int64_t       D = l->model->n_embd;
    const int64_t       HK = f->H * f->K, VP = f->HV * f->P;

    loader_recurrence(l, layer, f->HV, f->K, f->P, 0);
    qkv_load(l, il, layer, f->W, HK, HK, VP, &w->in);
    w->erase = loader_tensor_2d(l, il, "ssm_erase.weight", TENSOR_REQUIRED, D, HK);
    w->write = loader_tensor_2d(l, il, "ssm_write.weight", TENSOR_REQUIRED, D, VP);
    low_rank_load(l, il, "ssm_f_a.weight", "ssm_f_b.weight", "ssm_dt.bias", HK, TENSOR_REQUIRED,
            &w->decay);
    w->a = loader_tensor_1d(l, il, "ssm_a", TENSOR_F32 | TENSOR_DECAY, f->H);
    low_rank_load(l, il, "ssm_g_a.weight", "ssm_g_b.weight", NULL, VP, TENSOR_REQUIRED, &w->gate);
    w->gate.bias = loader_tensor_1d(l, il, "ssm_g_b.bias", TENSOR_F32 | TENSOR_OPTIONAL, VP);
    readout_load(l, il, f->HV, f->P, TENSOR_REQUIRED, f->eps, OUTPUT_GATE_NONE, &w->readout);
    w->readout.activation = OUTPUT_GATE_SIGMOID; // of low rank, built here
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct gdn2 *       f = g->model->shared;
    const struct gdn2_layer * w = layer->weights;
    struct ggml_context *     c = g->ctx;
    const int64_t             T = g->n_tokens;

    struct ggml_tensor * q = conv_proj_build(g, &w->in.q, GGML_SHORT_CONV_SILU, x);   // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->in.k, GGML_SHORT_CONV_SILU, x);   // [H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_SILU, x);   // [HV·P, T]
    struct ggml_tensor * b = graph_beta(g, graph_linear(g, w->erase, NULL, x));       // [H·K, T]
    struct ggml_tensor * write = ggml_sigmoid(c, graph_linear(g, w->write, NULL, x)); // [HV·P, T]

    struct ggml_tensor * a = ggml_reshape_2d(c, w->a, 1, f->H);                    // [1, H]
    struct ggml_tensor * gate = ggml_softplus(c, low_rank_build(g, &w->decay, x)); // [H·K, T]
    gate = ggml_exp(c, ggml_mul(c, ggml_reshape_3d(c, gate, f->K, f->H, T), a));   // [K, H, T]

    q = graph_l2_norm(g, ggml_reshape_3d(c, q, f->K, f->H, T), 1e-6f); // [K, H, T]
    k = graph_l2_norm(g, ggml_reshape_3d(c, k, f->K, f->H, T), 1e-6f); // [K, H, T]
    k = ggml_reshape_4d(c, k, f->K, f->H, 1, T);

    // The scan reads Sᵀ r before the gate: (b ∘ k)ᵀ (g ∘ S) = (g ∘ b ∘ k)ᵀ S.
    struct ggml_tensor * r = ggml_mul(c, gate, ggml_reshape_3d(c, b, f->K, f->H, T));
    r = ggml_mul(c, ggml_reshape_4d(c, r, f->K, f->H, 1, T), k); // [K, H, 1, T]

    const struct ggml_householder_scan_args args = {
        .q = ggml_reshape_4d(c, q, f->K, f->H, 1, T),
        .k = k,
        .v = graph_heads(g, ggml_mul(c, v, write), f->P, f->HV, 1),
        .gate = ggml_reshape_4d(c, gate, f->K, f->H, 1, T),
        .r = r,
        .w = k,
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, HV, T]
    return readout_build_gated(g, &w->readout, o, low_rank_build(g, &w->gate, x));
}

const struct family family_gated_delta_net_2 = {
    .name = "gated_delta_net_2",
    .signed_form = true,
    .shared_size = sizeof(struct gdn2),
    .layer_size = sizeof(struct gdn2_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
