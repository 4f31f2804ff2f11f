// Gated DeltaNet, and (Gated) DeltaProduct, which has n Householder factors a token; OLMo-Hybrid's
// linear layers are the former.
//
//     q, k_j, v_j = silu(conv(W x))     β_j = σ(W_β x), doubled for eigenvalues in [-1,1]     j = 1 .. n
//     q, k_j / ‖·‖                      g   = exp( −exp(A_log) softplus(W_α x + dt_bias) )    one a value head, or none
//     S ← g S
//     for j:  S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ
//     o = K^-1/2 Sᵀ q
//     out = W_o ( RMSNorm(o) [∘ silu(W_g x)] )

#include "models/models.h"

#include <math.h>

static const char * const GATES[]        = { "none", "head", NULL };
static const char * const BLOCK_STYLES[] = { "pre", "olmo_hybrid", NULL };

struct gdn {
    int64_t          H, HV, K, P, W, n;
    bool             gated;
    enum output_gate gate;
    float            eps;
};

struct gdn_layer {
    struct block         block;
    struct conv_proj     q, k, v;
    struct ggml_tensor * beta;    // [D, n·HV]
    struct ggml_tensor * alpha;   // [D, HV]
    struct ggml_tensor * a;       // [HV]          −exp(A_log)
    struct ggml_tensor * dt_bias; // [HV]
    struct ggml_tensor * gate;    // [D, HV·P]
    struct readout       readout;
};

static bool load_any(struct loader * l, bool product) {
    struct gdn * f = l->model->shared = loader_alloc(l, sizeof(*f));
    if (f == NULL) {
        return false;
    }
    f->H     = loader_int(l, "lrnn.head_count", 1, 4096);
    f->HV    = product ? f->H : loader_int_or(l, "lrnn.head_count_value", 1, 4096, f->H);
    f->K     = loader_int(l, "lrnn.key_length", 1, 65536);
    f->P     = loader_int(l, "lrnn.value_length", 1, 65536);
    f->W     = conv_width_load(l);
    f->n     = product ? loader_int(l, "lrnn.householder_count", 1, 256) : 1;
    f->gated = product ? loader_word(l, "lrnn.gate", GATES) == 1 : true;
    f->gate  = (enum output_gate) loader_word(l, "lrnn.output_gate", OUTPUT_GATES);
    f->eps   = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    loader_word_or(l, "lrnn.block_style", BLOCK_STYLES, 0); // attention layers alone differ
    if (!l->failed && f->HV % f->H != 0) {
        return loader_fail(l,
                "lrnn.head_count_value is %lld; expected a multiple of lrnn.head_count = %lld",
                (long long) f->HV, (long long) f->H);
    }
    l->model->info.n_householder = f->n;
    return !l->failed;
}

static bool load_net(struct loader * l) {
    return load_any(l, false);
}

static bool load_product(struct loader * l) {
    return load_any(l, true);
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct gdn * f = l->model->shared;
    struct gdn_layer * w = layer->weights = loader_alloc(l, sizeof(*w));
    const int64_t      D                  = l->model->n_embd;
    if (w == NULL || !block_load(l, il, false, &w->block)) {
        return false;
    }
    loader_recurrence(l, layer, f->HV, f->K, f->P, 0);
    conv_proj_load(l, il, layer, "q", f->W, f->H * f->K, &w->q);
    conv_proj_load(l, il, layer, "k", f->W, f->n * f->H * f->K, &w->k);
    conv_proj_load(l, il, layer, "v", f->W, f->n * f->HV * f->P, &w->v);
    w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->n * f->HV);
    if (f->gated) {
        w->alpha   = loader_tensor_2d(l, il, "ssm_alpha.weight", TENSOR_REQUIRED, D, f->HV);
        w->a       = loader_tensor_1d(l, il, "ssm_a", TENSOR_F32 | TENSOR_DECAY, f->HV);
        w->dt_bias = loader_tensor_1d(l, il, "ssm_dt.bias", TENSOR_F32, f->HV);
    }
    w->gate         = f->gate != OUTPUT_GATE_NONE ? loader_tensor_2d(l, il, "attn_gate.weight",
                                                            TENSOR_REQUIRED, D, f->HV * f->P)
                                                  : NULL;
    w->readout.norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, f->P);
    w->readout.output =
            loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, f->HV * f->P, D);
    w->readout.eps  = f->eps;
    w->readout.gate = f->gate;
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct gdn *       f = g->model->shared;
    const struct gdn_layer * w = layer->weights;

    struct ggml_tensor * q    = conv_proj_build(g, &w->q, GGML_SHORT_CONV_SILU, x); // [H·K, T]
    struct ggml_tensor * k    = conv_proj_build(g, &w->k, GGML_SHORT_CONV_SILU, x); // [n·H·K, T]
    struct ggml_tensor * v    = conv_proj_build(g, &w->v, GGML_SHORT_CONV_SILU, x); // [n·HV·P, T]
    struct ggml_tensor * beta = graph_beta(g, graph_linear(g, w->beta, NULL, x));   // [n·HV, T]
    struct ggml_tensor * gate = NULL;                                               // [HV, T]
    if (f->gated) {
        gate = ggml_softplus(g->ctx, graph_linear(g, w->alpha, w->dt_bias, x));
        gate = ggml_exp(g->ctx, ggml_mul(g->ctx, gate, w->a));
    }
    struct ggml_tensor * o = graph_householder(
            g, (struct ggml_householder_scan_args) {
                       // [P, HV, T]
                       .q = graph_l2_norm(
                               g, ggml_reshape_4d(g->ctx, q, f->K, f->H, 1, g->n_tokens), 1e-6f),
                       .k = graph_l2_norm(
                               g, ggml_reshape_4d(g->ctx, k, f->K, f->H, f->n, g->n_tokens), 1e-6f),
                       .v     = graph_heads(g, v, f->P, f->HV, f->n),
                       .beta  = graph_heads(g, beta, 1, f->HV, f->n),
                       .gate  = gate != NULL ? graph_heads(g, gate, 1, f->HV, 1) : NULL,
                       .scale = 1.0f / sqrtf((float) f->K),
               });
    return readout_build(
            g, &w->readout, o, w->gate != NULL ? graph_linear(g, w->gate, NULL, x) : NULL);
}

static struct ggml_tensor * block(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct gdn_layer * w = layer->weights;
    return block_build(g, &w->block, layer, mix, x);
}

const struct family family_gated_delta_net = {
    .name        = "gated_delta_net",
    .signed_form = true,
    .load        = load_net,
    .load_layer  = load_layer,
    .block       = block,
};

const struct family family_gated_delta_product = {
    .name        = "gated_delta_product",
    .signed_form = true,
    .load        = load_product,
    .load_layer  = load_layer,
    .block       = block,
};
