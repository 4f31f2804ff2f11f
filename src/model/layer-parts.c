// The parts of a layer that several families share.

#include "model/families.h"

#include <stdio.h>

// ---- Projection with short convolution ----------------------------------------------------------

int64_t conv_width_load(struct loader * l) {
    const int64_t width = loader_int(l, "lrnn.conv_width", 0, 64);
    if (width == 1) {
        loader_fail(l, "key 'lrnn.conv_width' is 1; expected 0 or 2 to 64");
    }
    return width;
}

void heads_load(struct loader * l, int64_t * H, int64_t * K, int64_t * P) {
    *H = loader_int(l, "lrnn.head_count", 1, 4096);
    *K = loader_int(l, "lrnn.key_length", 1, 65536);
    *P = loader_int(l, "lrnn.value_length", 1, 65536);
}

bool conv_proj_load(struct loader * l, int32_t il, struct layer * layer, const char * weight,
        const char * name, int64_t width, int64_t channels, struct conv_proj * proj) {
    proj->proj = loader_tensor_2d(l, il, weight, TENSOR_REQUIRED, l->model->n_embd, channels);
    if (width > 0) {
        char conv[64];
        snprintf(conv, sizeof(conv), "ssm_conv1d_%s.weight", name);
        proj->conv = loader_tensor_2d(l, il, conv, TENSOR_F32, width, channels);
        snprintf(conv, sizeof(conv), "ssm_conv1d_%s.bias", name);
        proj->bias = loader_tensor_1d(l, il, conv, TENSOR_F32 | TENSOR_OPTIONAL, channels);
        proj->state = loader_state(l, layer, (width - 1) * channels);
    }
    return !l->failed;
}

void qkv_load(struct loader * l, int32_t il, struct layer * layer, int64_t width, int64_t n_q,
        int64_t n_k, int64_t n_v, struct qkv * qkv) {
    conv_proj_load(l, il, layer, "attn_q.weight", "q", width, n_q, &qkv->q);
    conv_proj_load(l, il, layer, "attn_k.weight", "k", width, n_k, &qkv->k);
    conv_proj_load(l, il, layer, "attn_v.weight", "v", width, n_v, &qkv->v);
}

struct ggml_tensor * conv_proj_build(struct graph * g, const struct conv_proj * proj,
        enum ggml_short_conv_activation activation, struct ggml_tensor * x) {
    return graph_conv(g, proj->state, proj->conv, proj->bias, activation,
            graph_linear(g, proj->proj, NULL, x));
}

void low_rank_load(struct loader * l, int32_t il, const char * down, const char * up,
        const char * bias, int64_t out, int need, struct low_rank * map) {
    map->down = loader_tensor_2d(l, il, down, need, l->model->n_embd, 0);
    map->up = loader_tensor_2d(l, il, up, need, map->down != NULL ? map->down->ne[1] : 0, out);
    if (bias != NULL) {
        map->bias = loader_tensor_1d(l, il, bias, TENSOR_F32 | need, out);
    }
}

struct ggml_tensor * low_rank_build(
        struct graph * g, const struct low_rank * map, struct ggml_tensor * x) {
    return map->up != NULL ? graph_linear(g, map->up, map->bias, graph_product(g, map->down, x))
                           : graph_linear(g, map->down, map->bias, x);
}

struct ggml_tensor * columns(struct graph * g, struct ggml_tensor * x, int64_t first, int64_t n) {
    return ggml_view_2d(g->ctx, x, n, x->ne[1], x->nb[1], (size_t) first * sizeof(float));
}

struct ggml_tensor * lerp(
        struct graph * g, struct ggml_tensor * h, struct ggml_tensor * d, struct ggml_tensor * mu) {
    return ggml_add(g->ctx, ggml_mul(g->ctx, d, mu), h);
}

// ---- Activation of q and k ----------------------------------------------------------------------

const char * const ACTIVATIONS[] = { "identity", "relu", "elu", "silu", NULL };

struct ggml_tensor * activation_build(
        struct graph * g, enum activation activation, struct ggml_tensor * x) {
    switch (activation) {
        case ACTIVATION_RELU: return ggml_relu(g->ctx, x);
        case ACTIVATION_ELU: return ggml_scale_bias(g->ctx, ggml_elu(g->ctx, x), 1.0f, 1.0f);
        case ACTIVATION_SILU: return ggml_silu(g->ctx, x);
        case ACTIVATION_IDENTITY: break;
    }
    return x;
}

// ---- Gate per head ------------------------------------------------------------------------------

void head_gate_load_parts(struct loader * l, int32_t il, int64_t n_head, struct head_gate * gate) {
    gate->a = loader_tensor_1d(l, il, "ssm_a", TENSOR_F32 | TENSOR_DECAY, n_head);
    gate->dt_bias = loader_tensor_1d(l, il, "ssm_dt.bias", TENSOR_F32, n_head);
}

void head_gate_load(struct loader * l, int32_t il, int64_t n_head, struct head_gate * gate) {
    const int64_t D = l->model->n_embd;
    gate->alpha = loader_tensor_2d(l, il, "ssm_alpha.weight", TENSOR_REQUIRED, D, n_head);
    head_gate_load_parts(l, il, n_head, gate);
}

struct ggml_tensor * head_gate_build(
        struct graph * g, const struct head_gate * gate, struct ggml_tensor * x) {
    x = gate->alpha != NULL ? graph_product(g, gate->alpha, x) : x; // [H, T]
    x = ggml_softplus(g->ctx, ggml_add(g->ctx, x, gate->dt_bias));
    return ggml_exp(g->ctx, ggml_mul(g->ctx, x, gate->a));
}

// ---- Readout ------------------------------------------------------------------------------------

const char * const OUTPUT_GATES[] = { "none", "silu", "sigmoid", NULL };

void readout_load(struct loader * l, int32_t il, int64_t n_head, int64_t d_v, int norm, float eps,
        enum output_gate gate, struct readout * r) {
    const int64_t D = l->model->n_embd;
    if (gate != OUTPUT_GATE_NONE) {
        r->gate = loader_tensor_2d(l, il, "attn_gate.weight", TENSOR_REQUIRED, D, n_head * d_v);
    }
    const int64_t width = n_head * d_v;
    r->norm = r->groups > 0 ? loader_tensor_2d(l, il, "ssm_norm.weight", TENSOR_F32 | norm,
                                      width / r->groups, r->groups)
                            : loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32 | norm, d_v);
    r->output = loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, n_head * d_v, D);
    r->eps = eps;
    r->activation = gate;
}

struct ggml_tensor * readout_build_gated(struct graph * g, const struct readout * r,
        struct ggml_tensor * o, struct ggml_tensor * gate) {
    const int64_t width = o->ne[0] * o->ne[1]; // P·H
    if (r->groups > 0) {
        o = ggml_swiglu_split(g->ctx, gate, ggml_reshape_2d(g->ctx, o, width, g->n_tokens));
        o = ggml_reshape_3d(g->ctx, o, width / r->groups, r->groups, g->n_tokens);
        o = graph_rms_norm(g, o, r->norm, r->eps);
        return graph_linear(g, r->output, NULL, ggml_reshape_2d(g->ctx, o, width, g->n_tokens));
    }
    o = ggml_reshape_2d(g->ctx, graph_rms_norm(g, o, r->norm, r->eps), width, g->n_tokens);
    switch (r->activation) {
        case OUTPUT_GATE_SILU: o = ggml_swiglu_split(g->ctx, gate, o); break;
        case OUTPUT_GATE_SIGMOID: o = ggml_mul(g->ctx, o, ggml_sigmoid(g->ctx, gate)); break;
        case OUTPUT_GATE_NONE: break;
    }
    return graph_linear(g, r->output, NULL, o);
}

struct ggml_tensor * readout_build(struct graph * g, const struct readout * r,
        struct ggml_tensor * o, struct ggml_tensor * x) {
    return readout_build_gated(g, r, o, r->gate != NULL ? graph_linear(g, r->gate, NULL, x) : NULL);
}
