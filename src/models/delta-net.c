// DeltaNet
//
//     q, k, v = f(conv(W x))            β = σ(W_β x), doubled for eigenvalues in [-1,1]
//     q, k normalised per head
//     S ← S + β k (v − Sᵀ k)ᵀ           o = K^-1/2 Sᵀ q
//     out = W_o ( RMSNorm(o) [∘ silu(W_g x)] )

#include "models/models.h"

#include <math.h>

enum qk_norm { QK_NORM_L2, QK_NORM_SUM };

static const char * const QK_NORMS[] = { "l2", "sum", NULL };

struct delta_net {
    int64_t          H, K, P, W;
    bool             beta;
    enum activation  activation;
    enum qk_norm     qk_norm;
    enum output_gate gate;
    float            eps;
};

struct delta_net_layer {
    struct block         block;
    struct conv_proj     q, k, v;
    struct ggml_tensor * beta; // [D, H]
    struct ggml_tensor * gate; // [D, H·P]
    struct readout       readout;
};

static bool load(struct loader * l) {
    struct delta_net * f = l->model->shared = loader_alloc(l, sizeof(*f));
    if (f == NULL) {
        return false;
    }
    f->H          = loader_int(l, "lrnn.head_count", 1, 4096);
    f->K          = loader_int(l, "lrnn.key_length", 1, 65536);
    f->P          = loader_int(l, "lrnn.value_length", 1, 65536);
    f->W          = conv_width_load(l);
    f->beta       = loader_bool_or(l, "lrnn.beta", true);
    f->activation = (enum activation) loader_word(l, "lrnn.qk_activation", ACTIVATIONS);
    f->qk_norm    = (enum qk_norm) loader_word(l, "lrnn.qk_norm", QK_NORMS);
    f->gate       = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps        = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    l->model->info.n_householder = 1;
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct delta_net * f = l->model->shared;
    struct delta_net_layer * w = layer->weights = loader_alloc(l, sizeof(*w));
    const int64_t            D                  = l->model->n_embd;
    if (w == NULL || !block_load(l, il, false, &w->block)) {
        return false;
    }
    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    conv_proj_load(l, il, layer, "q", f->W, f->H * f->K, &w->q);
    conv_proj_load(l, il, layer, "k", f->W, f->H * f->K, &w->k);
    conv_proj_load(l, il, layer, "v", f->W, f->H * f->P, &w->v);
    w->beta = f->beta ? loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->H) : NULL;
    w->gate = f->gate != OUTPUT_GATE_NONE
                      ? loader_tensor_2d(l, il, "attn_gate.weight", TENSOR_REQUIRED, D, f->H * f->P)
                      : NULL;
    w->readout.norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, f->P);
    w->readout.output =
            loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, f->H * f->P, D);
    w->readout.eps  = f->eps;
    w->readout.gate = f->gate;
    return !l->failed;
}

// q or k, [H·K, T] → [K, H, 1, T]
static struct ggml_tensor * activate(
        struct graph * g, const struct delta_net * f, struct ggml_tensor * x) {
    if (f->activation !=
            ACTIVATION_SILU) { // that one is in the convolution, or stands in its place
        x = activation_build(g, f->activation, x);
    }
    x = ggml_reshape_4d(g->ctx, x, f->K, f->H, 1, g->n_tokens);
    return f->qk_norm == QK_NORM_L2 ? graph_l2_norm(g, x, 1e-6f)
                                    : ggml_div(g->ctx, x, ggml_sum_rows(g->ctx, x));
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct delta_net *              f = g->model->shared;
    const struct delta_net_layer *        w = layer->weights;
    const enum ggml_short_conv_activation conv =
            f->activation == ACTIVATION_SILU ? GGML_SHORT_CONV_SILU : GGML_SHORT_CONV_NONE;

    struct ggml_tensor * q = activate(g, f, conv_proj_build(g, &w->q, conv, x)); // [K, H, 1, T]
    struct ggml_tensor * k = activate(g, f, conv_proj_build(g, &w->k, conv, x)); // [K, H, 1, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->v, GGML_SHORT_CONV_SILU, x); // [H·P, T]

    struct ggml_tensor * beta; // [1, H, 1, T]
    if (w->beta != NULL) {
        beta = graph_beta(g, graph_linear(g, w->beta, NULL, x));
    } else {
        beta = ggml_fill(g->ctx, ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, f->H, g->n_tokens),
                g->model->is_signed ? 2.0f : 1.0f);
    }
    struct ggml_tensor * o = graph_householder(g, (struct ggml_householder_scan_args) {
                                                          // [P, H, T]
                                                          .q     = q,
                                                          .k     = k,
                                                          .v     = graph_heads(g, v, f->P, f->H, 1),
                                                          .beta  = graph_heads(g, beta, 1, f->H, 1),
                                                          .scale = 1.0f / sqrtf((float) f->K),
                                                  });
    return readout_build(
            g, &w->readout, o, w->gate != NULL ? graph_linear(g, w->gate, NULL, x) : NULL);
}

static struct ggml_tensor * block(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct delta_net_layer * w = layer->weights;
    return block_build(g, &w->block, layer, mix, x);
}

const struct family family_delta_net = {
    .name        = "delta_net",
    .signed_form = true,
    .load        = load,
    .load_layer  = load_layer,
    .block       = block,
};
