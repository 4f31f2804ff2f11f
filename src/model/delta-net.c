// DeltaNet, Gated DeltaNet (also the recurrent layers of OLMo-Hybrid), DeltaProduct and Gated
// DeltaProduct: n Householder factors per token, n = 1 but in the last two
//
//     q, k_j, v_j = f(conv(W x))        β_j = σ(W_β x), doubled for eigenvalues in [-1,1]
//     q, k_j normalized per head        g = exp(−exp(A_log) softplus(W_α x + dt_bias)), or 1
//     S ← g S
//     for j = 1 .. n:   S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ
//     o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) [∘ silu(W_g x)]);   Megatron: W_o RMSNorm(o ∘ silu(W_g x)), in H groups
//
// f is SiLU, and a norm is ‖·‖; only DeltaNet has others. q and g are per token; k_j, v_j and β_j
// are per factor. v, β and g have HV heads, but in DeltaNet a multiple of the H heads of q and k.

#include "model/families.h"

#include <math.h>

enum qk_norm { QK_NORM_L2, QK_NORM_SUM };

static const char * const QK_NORMS[] = { "l2", "sum", NULL };
static const char * const GATES[] = { "none", "head", NULL };
static const char * const NORMS[] = { "head", "gated_group", NULL };

struct delta_net {
    int64_t          H, HV, K, P, W;
    int64_t          n;          // factors per token
    bool             gated;      // false: g = 1
    bool             beta;       // false: β is 1, or 2 for eigenvalues in [-1,1]
    bool             gated_norm; // the norm comes after the output gate
    enum activation  activation;
    enum qk_norm     qk_norm;
    enum output_gate gate;
    float            eps;
};

struct delta_net_layer {
    struct qkv           in;
    struct ggml_tensor * beta; // [D, n·HV] or NULL
    struct head_gate     gate; // [D, HV], [HV], [HV]; or none
    struct readout       readout;
};

// What all of them have; the memory is zeroed.
static struct delta_net * load_shared(struct loader * l) {
    struct delta_net * f = l->model->shared;
    heads_load(l, &f->H, &f->K, &f->P);
    f->HV = f->H;
    f->W = conv_width_load(l);
    f->n = l->model->info.n_householder = 1;
    f->beta = true;
    f->activation = ACTIVATION_SILU;
    f->gate = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    return f;
}

static bool load_plain(struct loader * l) {
    struct delta_net * f = load_shared(l);
    f->beta = loader_bool_or(l, "lrnn.beta", true);
    f->activation = (enum activation) loader_word(l, "lrnn.qk_activation", ACTIVATIONS);
    f->qk_norm = (enum qk_norm) loader_word(l, "lrnn.qk_norm", QK_NORMS);
    return !l->failed;
}

static bool load_value_heads(struct loader * l, struct delta_net * f) {
    f->HV = loader_int_or(l, "lrnn.head_count_value", 1, 4096, f->H);
    layer_style_load(l); // checked only: all styles build these layers in the same way
    return loader_multiple(l, "lrnn.head_count_value", f->HV, "lrnn.head_count", f->H);
}

static bool load_gated(struct loader * l) {
    struct delta_net * f = load_shared(l);
    f->gated = true;
    return load_value_heads(l, f);
}

static bool load_product(struct loader * l) {
    struct delta_net * f = load_shared(l);
    f->n = l->model->info.n_householder = loader_int(l, "lrnn.householder_count", 1, 256);
    f->gated = loader_word(l, "lrnn.gate", GATES) == 1;
    f->gated_norm = loader_word_or(l, "lrnn.output_norm", NORMS, 0) == 1;
    if (!l->failed && f->gated_norm && f->gate != OUTPUT_GATE_SILU) {
        return loader_fail(l,
                "key 'lrnn.output_gate' is '%s'; expected 'silu' with 'gated_group' in "
                "lrnn.output_norm",
                OUTPUT_GATES[f->gate]);
    }
    return load_value_heads(l, f);
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct delta_net * f = l->model->shared;
    struct delta_net_layer * w = layer->weights;
    const int64_t            D = l->model->n_embd;

    loader_recurrence(l, layer, f->HV, f->K, f->P, 0);
    qkv_load(l, il, layer, f->W, f->H * f->K, f->n * f->H * f->K, f->n * f->HV * f->P, &w->in);
    if (f->beta) {
        w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->n * f->HV);
    }
    if (f->gated) {
        head_gate_load(l, il, f->HV, &w->gate);
    }
    w->readout.groups = f->gated_norm ? f->H : 0;
    readout_load(l, il, f->HV, f->P, TENSOR_REQUIRED, f->eps, f->gate, &w->readout);
    return !l->failed;
}

// q (n = 1) or k, [n·H·K, T] → [K, H, n, T]
static struct ggml_tensor * normalize(
        struct graph * g, const struct delta_net * f, int64_t n, struct ggml_tensor * x) {
    if (f->activation != ACTIVATION_SILU) { // conv_proj_build has applied SiLU already
        x = activation_build(g, f->activation, x);
    }
    x = ggml_reshape_4d(g->ctx, x, f->K, f->H, n, g->n_tokens);
    return f->qk_norm == QK_NORM_L2 ? graph_l2_norm(g, x, 1e-6f)
                                    : ggml_div(g->ctx, x, ggml_sum_rows(g->ctx, x));
}

// [n·HV, T]
static struct ggml_tensor * build_beta(
        struct graph * g, const struct delta_net_layer * w, struct ggml_tensor * x) {
    const struct delta_net * f = g->model->shared;
    if (w->beta != NULL) {
        return graph_beta(g, graph_linear(g, w->beta, NULL, x));
    }
    return ggml_fill(g->ctx, ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, f->HV, g->n_tokens),
            g->model->is_signed ? 2.0f : 1.0f);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct delta_net *              f = g->model->shared;
    const struct delta_net_layer *        w = layer->weights;
    const enum ggml_short_conv_activation conv =
            f->activation == ACTIVATION_SILU ? GGML_SHORT_CONV_SILU : GGML_SHORT_CONV_NONE;

    struct ggml_tensor * q = conv_proj_build(g, &w->in.q, conv, x);                 // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->in.k, conv, x);                 // [n·H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_SILU, x); // [n·HV·P, T]
    struct ggml_tensor * beta = build_beta(g, w, x);                                // [n·HV, T]
    struct ggml_tensor * gate = NULL;                                               // [1, HV, 1, T]
    if (f->gated) {
        gate = graph_heads(g, head_gate_build(g, &w->gate, x), 1, f->HV, 1);
    }
    const struct ggml_householder_scan_args args = {
        .q = normalize(g, f, 1, q),
        .k = normalize(g, f, f->n, k),
        .v = graph_heads(g, v, f->P, f->HV, f->n),
        .beta = graph_heads(g, beta, 1, f->HV, f->n),
        .gate = gate,
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, HV, T]
    return readout_build(g, &w->readout, o, x);
}

#define DELTA_FAMILY(name_, load_)                    \
    const struct family family_##name_ = {            \
        .name = #name_,                               \
        .signed_form = true,                          \
        .shared_size = sizeof(struct delta_net),      \
        .layer_size = sizeof(struct delta_net_layer), \
        .load = load_,                                \
        .load_layer = load_layer,                     \
        .mix = mix,                                   \
    }
DELTA_FAMILY(delta_net, load_plain);
DELTA_FAMILY(gated_delta_net, load_gated);
DELTA_FAMILY(gated_delta_product, load_product);
