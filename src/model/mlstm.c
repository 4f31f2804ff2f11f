// mLSTM (xLSTM-7B): exponential input gate, normalizer, running maximum
//
//     q, k, v = W x                     cap(a) = c tanh(a / c)
//     i = cap(W_i x + b_i)              f = cap(W_f x + b_f)
//     C ← e^{logσ(f)} C + e^i k vᵀ      n ← e^{logσ(f)} n + e^i k
//     h = K^-1/2 Cᵀ q / (max(|K^-1/2 n·q|, 1) + ε)
//     out = W_o (LayerNorm(h) per head ∘ w ∘ σ(W_g x))
//
// The op keeps C and n in range with a running maximum m; see lrnn-ops.h.

#include "model/families.h"

struct mlstm {
    int64_t H, K, P;
    float   cap;     // c; 0: no cap
    float   epsilon; // ε
    float   norm_eps;
};

struct mlstm_layer {
    struct qkv           in;              // no convolution
    struct ggml_tensor * gate;            // [D, H·P]
    struct ggml_tensor * igate, *igate_b; // [D, H], [H]
    struct ggml_tensor * fgate, *fgate_b; // [D, H], [H]
    struct ggml_tensor * norm;            // [H·P]
    struct ggml_tensor * output;          // [H·P, D]
};

static bool load(struct loader * l) {
    struct mlstm * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->cap = loader_float_or(l, "lrnn.gate_soft_cap", 1e-6f, 1e6f, 0.0f);
    f->epsilon = loader_float(l, "lrnn.mlstm_epsilon", 0.0f, 1.0f);
    f->norm_eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct mlstm * f = l->model->shared;
    struct mlstm_layer * w = layer->weights;
    const int64_t        D = l->model->n_embd;

    loader_recurrence(l, layer, f->H, f->K, f->P, f->K + 1); // + n and m
    qkv_load(l, il, layer, 0, f->H * f->K, f->H * f->K, f->H * f->P, &w->in);
    w->gate = loader_tensor_2d(l, il, "attn_gate.weight", TENSOR_REQUIRED, D, f->H * f->P);
    w->igate = loader_tensor_2d(l, il, "ssm_igate.weight", TENSOR_REQUIRED, D, f->H);
    w->igate_b = loader_tensor_1d(l, il, "ssm_igate.bias", TENSOR_F32, f->H);
    w->fgate = loader_tensor_2d(l, il, "ssm_fgate.weight", TENSOR_REQUIRED, D, f->H);
    w->fgate_b = loader_tensor_1d(l, il, "ssm_fgate.bias", TENSOR_F32, f->H);
    w->norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, f->H * f->P);
    w->output = loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, f->H * f->P, D);
    return !l->failed;
}

// cap(W x + b), [D, T] → [H, T]
static struct ggml_tensor * build_gate(struct graph * g, const struct mlstm * f,
        struct ggml_tensor * w, struct ggml_tensor * b, struct ggml_tensor * x) {
    return graph_soft_cap(g, graph_linear(g, w, b, x), f->cap);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct mlstm *       f = g->model->shared;
    const struct mlstm_layer * w = layer->weights;
    struct ggml_context *      c = g->ctx;

    struct ggml_tensor * q = conv_proj_build(g, &w->in.q, GGML_SHORT_CONV_NONE, x); // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->in.k, GGML_SHORT_CONV_NONE, x); // [H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_NONE, x); // [H·P, T]
    struct ggml_tensor * log_i = build_gate(g, f, w->igate, w->igate_b, x);         // [H, T]
    struct ggml_tensor * forget = build_gate(g, f, w->fgate, w->fgate_b, x);        // [H, T]
    struct ggml_tensor * h = graph_mlstm(g, q, k, v, log_i, forget, f->epsilon);    // [P, H, T]

    h = graph_layer_norm(g, h, NULL, NULL, f->norm_eps);
    h = ggml_mul(c, ggml_reshape_2d(c, h, f->H * f->P, g->n_tokens), w->norm); // [H·P, T]
    h = ggml_mul(c, h, ggml_sigmoid(c, graph_linear(g, w->gate, NULL, x)));
    return graph_linear(g, w->output, NULL, h);
}

const struct family family_mlstm = {
    .name = "mlstm",
    .shared_size = sizeof(struct mlstm),
    .layer_size = sizeof(struct mlstm_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
