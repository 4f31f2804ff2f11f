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

struct kda {
    int64_t H, HV, K, P, W;
    float   lower_bound; // 0: the softplus form
    bool    positive_a;  // the file has exp(A_log); otherwise −exp(A_log)
    float   eps;
};

struct kda_layer {
    struct qkv           in;
    struct ggml_tensor * beta; // [D, HV]
    struct low_rank      f;    // out = HV·K, bias dt_bias; Ling: up is NULL, down [D, HV·K]
    struct ggml_tensor * a;    // [HV]           ∓exp(A_log)
    struct low_rank      g;    // out = HV·P; as f, without a bias perhaps
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
    heads_load(l, &f->H, &f->K, &f->P);
    f->HV = loader_int_or(l, "lrnn.head_count_value", 1, 4096, f->H);
    f->W = conv_width_load(l);
    f->lower_bound = loader_float_or(l, "lrnn.gate_lower_bound", -1e6f, -1e-6f, 0.0f);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    loader_multiple(l, "lrnn.head_count_value", f->HV, "lrnn.head_count", f->H);
    return !l->failed;
}

static void load_map(struct loader * l, int32_t il, const char * down, const char * up, int64_t out,
        struct low_rank * map) {
    if (l->model->family == &family_bailingmoe3) {
        map->down = loader_tensor_2d(l, il, down, TENSOR_REQUIRED, l->model->n_embd, out);
    } else {
        low_rank_load(l, il, down, up, NULL, out, TENSOR_REQUIRED, map);
    }
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct kda * f = l->model->shared;
    struct kda_layer * w = layer->weights;
    const int64_t      D = l->model->n_embd;

    loader_recurrence(l, layer, f->HV, f->K, f->P, 0);
    qkv_load(l, il, layer, f->W, f->H * f->K, f->H * f->K, f->HV * f->P, &w->in);
    w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->HV);
    load_map(l, il, "ssm_f_a.weight", "ssm_f_b.weight", f->HV * f->K, &w->f);
    w->a = loader_tensor_1d(l, il, "ssm_a", TENSOR_F32 | (f->positive_a ? 0 : TENSOR_DECAY), f->HV);
    w->f.bias = loader_tensor_1d(l, il, "ssm_dt.bias", TENSOR_F32, f->HV * f->K);
    load_map(l, il, "ssm_g_a.weight", "ssm_g_b.weight", f->HV * f->P, &w->g);
    w->g.bias = loader_tensor_1d(l, il, "ssm_g_b.bias", TENSOR_F32 | TENSOR_OPTIONAL, f->HV * f->P);
    readout_load(l, il, f->HV, f->P, TENSOR_REQUIRED, f->eps, OUTPUT_GATE_NONE, &w->readout);
    w->readout.activation = OUTPUT_GATE_SIGMOID; // of w->g
    return !l->failed;
}

// [D, T] → [K, HV, T]
static struct ggml_tensor * build_gate(
        struct graph * g, const struct kda_layer * w, struct ggml_tensor * x) {
    const struct kda *    f = g->model->shared;
    struct ggml_context * c = g->ctx;

    struct ggml_tensor * a = ggml_reshape_2d(c, w->a, 1, f->HV); // [1, HV]
    x = low_rank_build(g, &w->f, x);                             // [HV·K, T]
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

    struct ggml_tensor * q = conv_proj_build(g, &w->in.q, GGML_SHORT_CONV_SILU, x); // [H·K, T]
    struct ggml_tensor * k = conv_proj_build(g, &w->in.k, GGML_SHORT_CONV_SILU, x); // [H·K, T]
    struct ggml_tensor * v = conv_proj_build(g, &w->in.v, GGML_SHORT_CONV_SILU, x); // [HV·P, T]
    struct ggml_tensor * beta = graph_beta(g, graph_linear(g, w->beta, NULL, x));   // [HV, T]
    struct ggml_tensor * gate = build_gate(g, w, x);                                // [K, HV, T]

    const struct ggml_householder_scan_args args = {
        .q = graph_l2_norm(g, ggml_reshape_4d(g->ctx, q, f->K, f->H, 1, T), 1e-6f),
        .k = graph_l2_norm(g, ggml_reshape_4d(g->ctx, k, f->K, f->H, 1, T), 1e-6f),
        .v = graph_heads(g, v, f->P, f->HV, 1),
        .beta = graph_heads(g, beta, 1, f->HV, 1),
        .gate = ggml_reshape_4d(g->ctx, gate, f->K, f->HV, 1, T),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [P, HV, T]

    return readout_build_gated(g, &w->readout, o, low_rank_build(g, &w->g, x));
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
