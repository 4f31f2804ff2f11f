// Mamba (S6): one transition per element of the state
//
//     (u, z) = W_in x                   u = silu(conv(u))
//     (δ, B, C) = W_x u                 [each RMSNorm, in Jamba with weights]
//     Δ = softplus(W_Δ δ + b)
//     S ← a ∘ S + B (Δ ∘ u)ᵀ            a = exp(Δ A), 2 exp(Δ A) − 1 for eigenvalues in [-1,1]
//     y = Sᵀ C + d ∘ u
//     out = W_out (y ∘ silu(z))
//
// N is the length of B and C, E = P the inner width, R the length of δ.

#include "model/families.h"

struct mamba {
    int64_t W, N;
    float   bc_eps; // of the norms of δ, B and C; 0: no norms
};

struct mamba_layer {
    struct ggml_tensor * in, *in_bias;     // [D, 2E], [2E] or NULL
    struct ggml_tensor * conv, *conv_bias; // [W, E], [E] or NULL
    struct ggml_tensor * x;                // [E, R + 2N]
    struct ggml_tensor * dt, *dt_bias;     // [R, E], [E]
    struct ggml_tensor * a;                // [N, E]     A = −exp(A_log)
    struct ggml_tensor * d;                // [E]
    struct ggml_tensor * norms[3];         // [R], [N], [N] of δ, B and C; NULL: 1
    struct ggml_tensor * out, *out_bias;   // [E, D], [D] or NULL
    int32_t              conv_state;
};

static bool load(struct loader * l) {
    struct mamba * f = l->model->shared;

    const bool ours = !l->llama_cpp;
    f->W = ours ? conv_width_load(l) : loader_int(l, loader_key(l, "ssm.conv_kernel"), 2, 64);
    f->N = loader_int(l, loader_key(l, ours ? "state_length" : "ssm.state_size"), 1, 65536);
    if (ours) {
        f->bc_eps = loader_float_or(l, "lrnn.dt_b_c_norm_epsilon", 1e-12f, 1.0f, 0.0f);
    } else if (l->model->family == &family_jamba ||
               loader_bool_or(l, loader_key(l, "ssm.dt_b_c_rms"), false)) { // one eps for all norms
        f->bc_eps = l->model->norm_eps;
    }
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct mamba * f = l->model->shared;
    struct mamba_layer * w = layer->weights;
    const int64_t        D = l->model->n_embd;

    w->in = loader_tensor_2d(l, il, "ssm_in.weight", TENSOR_REQUIRED, D, 0);
    if (l->failed) {
        return false;
    }
    const int64_t E = w->in->ne[1] / 2;
    if (w->in->ne[1] % 2 != 0) {
        return loader_fail(l, "tensor blk.%d.ssm_in.weight has %lld rows; expected an even number",
                il, (long long) w->in->ne[1]);
    }
    loader_recurrence(l, layer, 1, f->N, E, 0);
    if (f->W > 0) {
        w->conv = loader_tensor_2d(l, il, "ssm_conv1d.weight", TENSOR_F32, f->W, E);
        w->conv_bias = loader_tensor_1d(l, il, "ssm_conv1d.bias", TENSOR_F32 | TENSOR_OPTIONAL, E);
        w->conv_state = loader_state(l, layer, (f->W - 1) * E);
    }
    w->dt = loader_tensor_2d(l, il, "ssm_dt.weight", TENSOR_REQUIRED, 0, E);
    w->dt_bias = loader_tensor_1d(l, il, "ssm_dt.bias", TENSOR_F32, E);
    w->x = loader_tensor_2d(
            l, il, "ssm_x.weight", TENSOR_REQUIRED, E, l->failed ? 0 : w->dt->ne[0] + 2 * f->N);
    w->a = loader_tensor_2d(l, il, "ssm_a", TENSOR_F32 | TENSOR_DECAY, f->N, E);
    w->d = loader_tensor_1d(l, il, "ssm_d", TENSOR_F32, E);
    w->out = loader_tensor_2d(l, il, "ssm_out.weight", TENSOR_REQUIRED, E, D);
    if (l->model->family == &family_jamba && !l->failed) {
        w->norms[0] = loader_tensor_1d(l, il, "ssm_dt_norm.weight", TENSOR_F32, w->dt->ne[0]);
        w->norms[1] = loader_tensor_1d(l, il, "ssm_b_norm.weight", TENSOR_F32, f->N);
        w->norms[2] = loader_tensor_1d(l, il, "ssm_c_norm.weight", TENSOR_F32, f->N);
    }

    w->in_bias = loader_tensor_1d(l, il, "ssm_in.bias", TENSOR_F32 | TENSOR_OPTIONAL, 2 * E);
    w->out_bias = loader_tensor_1d(l, il, "ssm_out.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct mamba *       f = g->model->shared;
    const struct mamba_layer * w = layer->weights;
    struct ggml_context *      c = g->ctx;
    const int64_t              E = w->in->ne[1] / 2;
    const int64_t              R = w->dt->ne[0];
    const int64_t              T = g->n_tokens;

    struct ggml_tensor * uz = graph_linear(g, w->in, w->in_bias, x); // [2E, T]
    struct ggml_tensor * u = columns(g, uz, 0, E);                   // [E, T]
    struct ggml_tensor * z = columns(g, uz, E, E);                   // [E, T]
    u = graph_conv(g, w->conv_state, w->conv, w->conv_bias, GGML_SHORT_CONV_SILU,
            w->conv != NULL ? u : ggml_cont(c, u)); // [E, T]

    struct ggml_tensor * p = graph_linear(g, w->x, NULL, u); // [R + 2N, T]
    struct ggml_tensor * dt = columns(g, p, 0, R);           // [R, T]
    struct ggml_tensor * B = columns(g, p, R, f->N);         // [N, T]
    struct ggml_tensor * C = columns(g, p, R + f->N, f->N);  // [N, T]
    if (f->bc_eps > 0.0f) {
        dt = graph_rms_norm(g, dt, w->norms[0], f->bc_eps);
        B = graph_rms_norm(g, B, w->norms[1], f->bc_eps);
        C = graph_rms_norm(g, C, w->norms[2], f->bc_eps);
    }
    dt = ggml_softplus(c, graph_linear(g, w->dt, w->dt_bias, dt)); // [E, T]

    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, C, f->N, 1, 1),
        .b = graph_heads(g, B, f->N, 1, 1),
        .x = graph_heads(g, u, E, 1, 1),
        .dt = graph_heads(g, dt, E, 1, 1),
        .A = ggml_transpose(c, w->a),
        .form = g->model->is_signed ? GGML_SIGNED_SCAN_TWO_EXP_M1 : GGML_SIGNED_SCAN_EXP,
        .scale = 1.0f,
    };
    struct ggml_tensor * y = graph_signed_gate(g, args); // [E, 1, T]

    y = ggml_add(c, ggml_reshape_2d(c, y, E, T), ggml_mul(c, u, w->d)); // [E, T]
    y = ggml_swiglu_split(c, z, y);                                     // y ∘ silu(z)
    return graph_linear(g, w->out, w->out_bias, y);
}

const struct family family_mamba = {
    .name = "mamba",
    .llama_cpp = "mamba",
    .signed_form = true,
    .shared_size = sizeof(struct mamba),
    .layer_size = sizeof(struct mamba_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
    .no_mlp = true,
};
