// DeltaNet: one Householder factor per token
//
//     q, k, v = f(conv(W x))            β = σ(W_β x), doubled for eigenvalues in [-1,1]
//     q, k normalized per head
//     S ← S + β k (v − Sᵀ k)ᵀ           o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) [∘ silu(W_g x)])

#include "model/families.h"

#include <math.h>

enum qk_norm { QK_NORM_L2, QK_NORM_SUM };

static const char * const QK_NORMS[] = { "l2", "sum", NULL };

struct delta_net {
    int64_t          H, K, P, W;
    bool             beta; // false: β is 1, or 2 for eigenvalues in [-1,1]
    enum activation  activation;
    enum qk_norm     qk_norm;
    enum output_gate gate;
    float            eps;
};

struct delta_net_layer {
    struct qkv           in;
    struct ggml_tensor * beta; // [D, H] or NULL
    struct readout       readout;
};

static bool load(struct loader * l) {
    struct delta_net * f = l->model->shared;

    heads_load(l, &f->H, &f->K, &f->P);
    f->W = conv_width_load(l);
    f->beta = loader_bool_or(l, "lrnn.beta", true);
    f->activation = (enum activation) loader_word(l, "lrnn.qk_activation", ACTIVATIONS);
    f->qk_norm = (enum qk_norm) loader_word(l, "lrnn.qk_norm", QK_NORMS);
    f->gate = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);

    l->model->info.n_householder = 1;
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct delta_net * f = l->model->shared;
    struct delta_net_layer * w = layer->weights;
    const int64_t            D = l->model->n_embd;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    qkv_load(l, il, layer, f->W, f->H * f->K, f->H * f->K, f->H * f->P, &w->in);
    if (f->beta) {
        w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->H);
    }
    readout_load(l, il, f->H, f->P, TENSOR_REQUIRED, f->eps, f->gate, &w->readout);
    return !l->failed;
}

// q or k, [H·K, T] → [K, H, 1, T]
static struct ggml_tensor * activate(
        struct graph * g, const struct delta_net * f, struct ggml_tensor * x) {
    if (f->activation != ACTIVATION_SILU) { // conv_proj_build has applied SiLU already
        x = activation_build(g, f->activation, x);
    }
    x = ggml_reshape_4d(g->ctx, x, f->K, f->H, 1, g->n_tokens);
    return f->qk_norm == QK_NORM_L2 ? graph_l2_norm(g, x, 1e-6f)
                                    : ggml_div(g->ctx, x, ggml_sum_rows(g->ctx, x));
}

// [H, T]
static struct ggml_tensor * build_beta(
        struct graph * g, const struct delta_net_layer * w, struct ggml_tensor * x) {
    const struct delta_net * f = g->model->shared;
    if (w->beta != NULL) {
        return graph_beta(g, graph_linear(g, w->beta, NULL, x));
    }
    return ggml_fill(g->ctx, ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, f->H, g->n_tokens),
            g->model->is_signed ? 2.0f : 1.0f);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct delta_net *              f = g->model->shared;
    const struct delta_net_layer *        w = layer->weights;
    const enum ggml_short_conv_activation conv =
            f->activation == ACTIVATION_SILU ? GGML_SHORT_CONV_SILU : GGML_SHORT_CONV_NONE;

    struct ggml_tensor * q = activate(g, f, conv_proj_build(g, &w->in.q, conv, x)); // [K, H, 1, T]
    struct ggml_tensor * k = activate(g, f, conv_proj_build(g, &w->in.k, conv, x)); // [K, H, 1, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_SILU, x); // [H·P, T]
    struct ggml_tensor * beta = build_beta(g, w, x);                                // [H, T]

    const struct ggml_householder_scan_args args = {
        .q = q,
        .k = k,
        .v = graph_heads(g, v, f->P, f->H, 1),
        .beta = graph_heads(g, beta, 1, f->H, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, H, T]
    return readout_build(g, &w->readout, o, x);
}

const struct family family_delta_net = {
    .name = "delta_net",
    .signed_form = true,
    .shared_size = sizeof(struct delta_net),
    .layer_size = sizeof(struct delta_net_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
