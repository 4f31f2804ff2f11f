// KDA, Kimi delta attention: the gated delta rule with one gate per key channel; also the recurrent
// layers of Kimi-Linear and Ling
//
//     q, k, v = silu(conv(W x))         β = σ(W_β x), doubled for eigenvalues in [-1,1]
//     q, k / ‖·‖                        f = W_f2 W_f1 x + dt_bias
//     g = exp(−exp(A_log) softplus(f));   with a lower bound b:  g = exp(b σ(exp(A_log) f))
//     S ← g ∘ S;   S ← S + β k (v − Sᵀ k)ᵀ;   o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) ∘ σ(W_g2 W_g1 x + b_g))
//
// There are HV heads of v, β and the gate, a multiple of the H heads of q and k. Ling has single
// matrices W_f and W_g.

#include "model/families.h"

#include <math.h>
#include <stdio.h>

struct kda {
    int64_t H, HV, K, P, W;
    float   lower_bound; // 0: the softplus form
    bool    positive_a;  // the file has exp(A_log); otherwise −exp(A_log)
    float   eps;
};

struct kda_layer {
    struct conv_proj     q, k, v;
    struct ggml_tensor * beta;      // [D, HV]
    struct ggml_tensor * f_a, *f_b; // [D, R], [R, HV·K]; or [D, HV·K], NULL
    struct ggml_tensor * a;         // [1, HV]        ∓exp(A_log)
    struct ggml_tensor * dt_bias;   // [HV·K]
    struct ggml_tensor * g_a, *g_b; // [D, R], [R, HV·P]; or [D, HV·P], NULL
    struct ggml_tensor * g_bias;    // [HV·P] or NULL
    struct readout       readout;
};

// A file of llama.cpp.
static void load_llama_cpp_keys(struct loader * l, struct kda * f) {
    f->H = f->HV = loader_int(l, loader_key(l, "attention.head_count"), 1, 4096);
    f->K = f->P = loader_int(l, loader_key(l, "kda.head_dim"), 1, 65536);
    f->W = loader_int(l, loader_key(l, "ssm.conv_kernel"), 2, 64);
    f->positive_a = l->model->family == &family_bailingmoe3;
    f->lower_bound = loader_float_or(l, loader_key(l, "kda.gate_lower_bound"), -1e6f, -1e-6f, 0.0f);
    f->eps = l->model->norm_eps;
    if (!l->failed && f->positive_a != (f->lower_bound < 0.0f)) {
        loader_fail(l, "key '%s' is %s; expected %s", loader_key(l, "kda.gate_lower_bound"),
                f->positive_a ? "missing" : "present", f->positive_a ? "a bound" : "none");
    }
}

static bool load(struct loader * l) {
    struct kda * f = l->model->shared;

    l->model->info.n_householder = 1;
    if (l->llama_cpp) {
        load_llama_cpp_keys(l, f);
        return !l->failed;
    }
    f->H = loader_int(l, "lrnn.head_count", 1, 4096);
    f->HV = loader_int_or(l, "lrnn.head_count_value", 1, 4096, f->H);
    f->K = loader_int(l, "lrnn.key_length", 1, 65536);
    f->P = loader_int(l, "lrnn.value_length", 1, 65536);
    f->W = conv_width_load(l);
    f->lower_bound = loader_float_or(l, "lrnn.gate_lower_bound", -1e6f, -1e-6f, 0.0f);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    loader_multiple(l, "lrnn.head_count_value", f->HV, "lrnn.head_count", f->H);
    return !l->failed;
}

// Two matrices of low rank, "<name>_a" and "<name>_b", or in Ling one, "<name>_a"
static void load_low_rank(struct loader * l, int32_t il, const char * name, int64_t out,
        struct ggml_tensor ** a, struct ggml_tensor ** b) {
    const bool one = l->model->family == &family_bailingmoe3;
    char       full[64];
    snprintf(full, sizeof(full), "%s_a.weight", name);
    *a = loader_tensor_2d(l, il, full, TENSOR_REQUIRED, l->model->n_embd, one ? out : 0);
    if (!one) {
        snprintf(full, sizeof(full), "%s_b.weight", name);
        *b = loader_tensor_2d(l, il, full, TENSOR_REQUIRED, *a != NULL ? (*a)->ne[1] : 0, out);
    }
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct kda * f = l->model->shared;
    struct kda_layer * w = layer->weights;
    const int64_t      D = l->model->n_embd;

    loader_recurrence(l, layer, f->HV, f->K, f->P, 0);
    conv_proj_load(l, il, layer, "attn_q.weight", "q", f->W, f->H * f->K, &w->q);
    conv_proj_load(l, il, layer, "attn_k.weight", "k", f->W, f->H * f->K, &w->k);
    conv_proj_load(l, il, layer, "attn_v.weight", "v", f->W, f->HV * f->P, &w->v);
    w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->HV);
    load_low_rank(l, il, "ssm_f", f->HV * f->K, &w->f_a, &w->f_b);
    w->a = loader_tensor_1d(l, il, "ssm_a", TENSOR_F32 | (f->positive_a ? 0 : TENSOR_DECAY), f->HV);
    w->dt_bias = loader_tensor_1d(l, il, "ssm_dt.bias", TENSOR_F32, f->HV * f->K);
    load_low_rank(l, il, "ssm_g", f->HV * f->P, &w->g_a, &w->g_b);
    w->g_bias = loader_tensor_1d(l, il, "ssm_g_b.bias", TENSOR_F32 | TENSOR_OPTIONAL, f->HV * f->P);
    w->readout.norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, f->P);
    w->readout.output =
            loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, f->HV * f->P, D);
    w->readout.eps = f->eps;
    w->readout.activation = OUTPUT_GATE_SIGMOID;
    return !l->failed;
}

// B A x + bias; B NULL: A x + bias
static struct ggml_tensor * low_rank(struct graph * g, struct ggml_tensor * a,
        struct ggml_tensor * b, struct ggml_tensor * bias, struct ggml_tensor * x) {
    return b != NULL ? graph_linear(g, b, bias, graph_product(g, a, x))
                     : graph_linear(g, a, bias, x);
}

// [D, T] → [K, HV, T]
static struct ggml_tensor * build_gate(
        struct graph * g, const struct kda_layer * w, struct ggml_tensor * x) {
    const struct kda *    f = g->model->shared;
    struct ggml_context * c = g->ctx;

    struct ggml_tensor * a = ggml_reshape_2d(c, w->a, 1, f->HV); // [1, HV]
    x = low_rank(g, w->f_a, w->f_b, w->dt_bias, x);              // [HV·K, T]
    x = ggml_reshape_3d(c, x, f->K, f->HV, g->n_tokens);         // [K, HV, T]
    if (f->lower_bound == 0.0f) {
        return ggml_exp(c, ggml_mul(c, ggml_softplus(c, x), a));
    }
    x = ggml_mul(c, x, a);
    x = ggml_sigmoid(c, f->positive_a ? x : ggml_neg(c, x));
    return ggml_exp(c, ggml_scale(c, x, f->lower_bound));
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct kda *       f = g->model->shared;
    const struct kda_layer * w = layer->weights;
    const int64_t            T = g->n_tokens;

    struct ggml_tensor * q = conv_proj_build(g, &w->q, GGML_SHORT_CONV_SILU, x);  // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->k, GGML_SHORT_CONV_SILU, x);  // [H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->v, GGML_SHORT_CONV_SILU, x);  // [HV·P, T]
    struct ggml_tensor * beta = graph_beta(g, graph_linear(g, w->beta, NULL, x)); // [HV, T]
    struct ggml_tensor * gate = build_gate(g, w, x);                              // [K, HV, T]

    const struct ggml_householder_scan_args args = {
        .q = graph_l2_norm(g, ggml_reshape_4d(g->ctx, q, f->K, f->H, 1, T), 1e-6f),
        .k = graph_l2_norm(g, ggml_reshape_4d(g->ctx, k, f->K, f->H, 1, T), 1e-6f),
        .v = graph_heads(g, v, f->P, f->HV, 1),
        .beta = graph_heads(g, beta, 1, f->HV, 1),
        .gate = ggml_reshape_4d(g->ctx, gate, f->K, f->HV, 1, T),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, HV, T]

    x = low_rank(g, w->g_a, w->g_b, w->g_bias, x); // [HV·P, T]
    return readout_build_gated(g, &w->readout, o, x);
}

const struct family family_kda = {
    .name = "kda",
    .signed_form = true,
    .shared_size = sizeof(struct kda),
    .layer_size = sizeof(struct kda_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
};
