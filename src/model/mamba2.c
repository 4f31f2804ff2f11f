// Mamba-2 (SSD): one transition per head
//
//     (z, u, B, C, δ) = W_in x          (u, B, C) = silu(conv(u, B, C))
//     Δ = clamp(softplus(δ + b))
//     S ← a S + B (Δ u)ᵀ                a = exp(Δ A), 2 exp(Δ A) − 1 for eigenvalues in [-1,1]
//     y = Sᵀ C + d u
//     y = RMSNorm(y ∘ silu(z)), per group; some Falcon-H1: y ∘ silu(z)
//     out = W_out y
//
// N is the length of B and C, G the number of groups that share them, E = H·P the inner width.

#include "model/families.h"

#include <math.h>

struct mamba2 {
    int64_t W, N, H, P, G;
    float   dt_min, dt_max;
    float   eps;
};

struct mamba2_layer {
    struct ggml_tensor * in, *in_bias;     // [D, 2E + 2GN + H], [2E + 2GN + H] or NULL
    struct ggml_tensor * conv, *conv_bias; // [W, E + 2GN], [E + 2GN] or NULL
    struct ggml_tensor * dt_bias;          // [H]
    struct ggml_tensor * a;                // [1, H]      A = −exp(A_log)
    struct ggml_tensor * d;                // [1, H]
    struct ggml_tensor * group_norm;       // [E/G, G], NULL: none
    struct ggml_tensor * out, *out_bias;   // [E, D], [D] or NULL
    int32_t              conv_state;
};

static bool load(struct loader * l) {
    struct mamba2 * f = l->model->shared;

    const bool   ours = !l->llama_cpp;
    const char * heads = loader_key(l, ours ? "head_count" : "ssm.time_step_rank");
    const char * groups = loader_key(l, ours ? "group_count" : "ssm.group_count");

    f->H = loader_int(l, heads, 1, 65536);
    f->G = loader_int(l, groups, 1, 65536);
    loader_divisor(l, groups, f->G, heads, f->H);
    if (ours) {
        f->P = loader_int(l, "lrnn.value_length", 1, 65536);
    } else {
        const char *  inner = loader_key(l, "ssm.inner_size");
        const int64_t E = loader_int(l, inner, 1, 1 << 24);
        loader_multiple(l, inner, E, heads, f->H);
        f->P = E / f->H;
    }
    f->W = loader_int(l, loader_key(l, ours ? "conv_width" : "ssm.conv_kernel"), 2, 64);
    f->N = loader_int(l, loader_key(l, ours ? "state_length" : "ssm.state_size"), 1, 65536);
    f->eps = ours ? loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f) : l->model->norm_eps;
    f->dt_min = loader_float_or(l, loader_key(l, "dt_min"), 0.0f, 1e6f, 0.0f);
    f->dt_max = loader_float_or(l, loader_key(l, "dt_max"), 0.0f, 1e6f, INFINITY);
    if (!l->failed && f->dt_min > f->dt_max) {
        loader_fail(l, "key '%s.dt_min' is %g; expected at most %s.dt_max = %g", l->arch,
                (double) f->dt_min, l->arch, (double) f->dt_max);
    }
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct mamba2 * f = l->model->shared;
    struct mamba2_layer * w = layer->weights;
    const int64_t         D = l->model->n_embd;
    const int64_t         E = f->H * f->P;
    const int64_t         C = E + 2 * f->G * f->N; // convolved channels

    loader_recurrence(l, layer, f->H, f->N, f->P, 0);
    w->conv_state = loader_state(l, layer, (f->W - 1) * C);
    w->in = loader_tensor_2d(l, il, "ssm_in.weight", TENSOR_REQUIRED, D, E + C + f->H);
    w->in_bias = loader_tensor_1d(l, il, "ssm_in.bias", TENSOR_F32 | TENSOR_OPTIONAL, E + C + f->H);
    w->conv = loader_tensor_2d(l, il, "ssm_conv1d.weight", TENSOR_F32, f->W, C);
    w->conv_bias = loader_tensor_1d(l, il, "ssm_conv1d.bias", TENSOR_F32 | TENSOR_OPTIONAL, C);
    w->dt_bias = loader_tensor_1d(l, il, "ssm_dt.bias", TENSOR_F32, f->H);
    w->a = loader_tensor_2d(l, il, "ssm_a", TENSOR_F32 | TENSOR_DECAY, 1, f->H);
    w->d = loader_tensor_2d(l, il, "ssm_d", TENSOR_F32, 1, f->H);
    w->group_norm = loader_tensor_2d(l, il, "ssm_norm.weight",
            TENSOR_F32 | (l->model->family == &family_falcon_h1 ? TENSOR_OPTIONAL : 0), E / f->G,
            f->G);
    w->out = loader_tensor_2d(l, il, "ssm_out.weight", TENSOR_REQUIRED, E, D);
    w->out_bias = loader_tensor_1d(l, il, "ssm_out.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    return !l->failed;
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct mamba2 *       f = g->model->shared;
    const struct mamba2_layer * w = layer->weights;
    struct ggml_context *       c = g->ctx;
    const int64_t               E = f->H * f->P;
    const int64_t               GN = f->G * f->N;
    const int64_t               T = g->n_tokens;

    struct ggml_tensor * p = graph_linear(g, w->in, w->in_bias, x); // [2E + 2GN + H, T]
    struct ggml_tensor * z = columns(g, p, 0, E);                   // [E, T]
    struct ggml_tensor * uBC = columns(g, p, E, E + 2 * GN);        // [E + 2GN, T]
    struct ggml_tensor * dt = columns(g, p, 2 * E + 2 * GN, f->H);  // [H, T]

    uBC = graph_conv(g, w->conv_state, w->conv, w->conv_bias, GGML_SHORT_CONV_SILU, uBC);
    dt = ggml_softplus(c, ggml_add(c, dt, w->dt_bias));
    if (f->dt_min > 0.0f || f->dt_max < INFINITY) {
        dt = ggml_clamp(c, dt, f->dt_min, f->dt_max);
    }
    struct ggml_tensor * u = // [P, H, T]
            ggml_view_3d(c, uBC, f->P, f->H, T, (size_t) f->P * sizeof(float), uBC->nb[1], 0);

    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, columns(g, uBC, E + GN, GN), f->N, f->G, 1),
        .b = graph_heads(g, columns(g, uBC, E, GN), f->N, f->G, 1),
        .x = graph_heads(g, columns(g, uBC, 0, E), f->P, f->H, 1),
        .dt = graph_heads(g, dt, 1, f->H, 1),
        .A = ggml_reshape_3d(c, w->a, 1, 1, f->H),
        .form = g->model->is_signed ? GGML_SIGNED_SCAN_TWO_EXP_M1 : GGML_SIGNED_SCAN_EXP,
        .scale = 1.0f,
    };
    struct ggml_tensor * y = graph_signed_gate(g, args); // [P, H, T]

    y = ggml_reshape_2d(c, ggml_add(c, y, ggml_mul(c, u, w->d)), E, T); // [E, T]
    y = ggml_mul(c, y, ggml_silu(c, ggml_cont(c, z)));
    if (w->group_norm != NULL) {
        y = graph_rms_norm(g, ggml_reshape_3d(c, y, E / f->G, f->G, T), w->group_norm, f->eps);
        y = ggml_reshape_2d(c, y, E, T);
    }
    return graph_linear(g, w->out, w->out_bias, y);
}

const struct family family_mamba2 = {
    .name = "mamba2",
    .llama_cpp = "mamba2",
    .signed_form = true,
    .shared_size = sizeof(struct mamba2),
    .layer_size = sizeof(struct mamba2_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
    .no_mlp = true,
};
