// What the blocks of most families share.

#include "models/models.h"

#include <stdio.h>

bool block_load(struct loader * l, int32_t il, bool post, struct block * block) {
    const int64_t D = l->model->n_embd;
    const int64_t F = l->model->n_ff;
    if (F == 0) {
        return loader_fail(l, "key '%s' is missing", loader_key(l, "feed_forward_length"));
    }
    block->post      = post;
    block->attn_norm = loader_tensor_1d(
            l, il, post ? "attn_post_norm.weight" : "attn_norm.weight", TENSOR_F32, D);
    block->ffn_norm = loader_tensor_1d(
            l, il, post ? "ffn_post_norm.weight" : "ffn_norm.weight", TENSOR_F32, D);
    block->ffn_gate = loader_tensor_2d(l, il, "ffn_gate.weight", TENSOR_REQUIRED, D, F);
    block->ffn_up   = loader_tensor_2d(l, il, "ffn_up.weight", TENSOR_REQUIRED, D, F);
    block->ffn_down = loader_tensor_2d(l, il, "ffn_down.weight", TENSOR_REQUIRED, F, D);

    block->ffn_gate_b = loader_tensor_1d(l, il, "ffn_gate.bias", TENSOR_F32 | TENSOR_OPTIONAL, F);
    block->ffn_up_b   = loader_tensor_1d(l, il, "ffn_up.bias", TENSOR_F32 | TENSOR_OPTIONAL, F);
    block->ffn_down_b = loader_tensor_1d(l, il, "ffn_down.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    return !l->failed;
}

// down( silu(gate x) ∘ up x )
static struct ggml_tensor * swiglu(
        struct graph * g, const struct block * block, struct ggml_tensor * x) {
    struct ggml_tensor * gate = graph_linear(g, block->ffn_gate, block->ffn_gate_b, x); // [F, T]
    struct ggml_tensor * up   = graph_linear(g, block->ffn_up, block->ffn_up_b, x);
    return graph_linear(g, block->ffn_down, block->ffn_down_b, ggml_swiglu_split(g->ctx, gate, up));
}

struct ggml_tensor * block_build(struct graph * g, const struct block * block,
        const struct layer * layer, mixer mix, struct ggml_tensor * x) {
    const float eps = g->model->norm_eps;
    if (block->post) {
        x = ggml_add(g->ctx, x, graph_rms_norm(g, mix(g, layer, x), block->attn_norm, eps));
        return ggml_add(g->ctx, x, graph_rms_norm(g, swiglu(g, block, x), block->ffn_norm, eps));
    }
    x = ggml_add(g->ctx, x, mix(g, layer, graph_rms_norm(g, x, block->attn_norm, eps)));
    return ggml_add(g->ctx, x, swiglu(g, block, graph_rms_norm(g, x, block->ffn_norm, eps)));
}

void block_norm_load(struct loader * l, int32_t il, struct block_norm * norm) {
    norm->weight = loader_tensor_1d(l, il, "attn_norm.weight", TENSOR_F32, l->model->n_embd);
    norm->bias   = loader_tensor_1d(
            l, il, "attn_norm.bias", TENSOR_F32 | TENSOR_OPTIONAL, l->model->n_embd);
}

struct ggml_tensor * block_norm_build(
        struct graph * g, const struct block_norm * norm, struct ggml_tensor * x) {
    const float eps = g->model->norm_eps;
    return norm->bias != NULL ? graph_layer_norm(g, x, norm->weight, norm->bias, eps)
                              : graph_rms_norm(g, x, norm->weight, eps);
}

int64_t conv_width_load(struct loader * l) {
    const int64_t width = loader_int(l, "lrnn.conv_width", 0, 64);
    if (width == 1) {
        loader_fail(l, "lrnn.conv_width is 1; expected 0 or at least 2");
    }
    return width;
}

bool conv_proj_load(struct loader * l, int32_t il, struct layer * layer, const char * name,
        int64_t width, int64_t channels, struct conv_proj * proj) {
    char text[64];
    snprintf(text, sizeof(text), "attn_%s.weight", name);
    proj->proj = loader_tensor_2d(l, il, text, TENSOR_REQUIRED, l->model->n_embd, channels);
    if (width > 0) {
        snprintf(text, sizeof(text), "ssm_conv1d_%s.weight", name);
        proj->conv = loader_tensor_2d(l, il, text, TENSOR_F32, width, channels);
        snprintf(text, sizeof(text), "ssm_conv1d_%s.bias", name);
        proj->bias  = loader_tensor_1d(l, il, text, TENSOR_F32 | TENSOR_OPTIONAL, channels);
        proj->state = loader_state(l, layer, (width - 1) * channels);
    }
    return !l->failed;
}

struct ggml_tensor * conv_proj_build(struct graph * g, const struct conv_proj * proj,
        enum ggml_short_conv_activation activation, struct ggml_tensor * x) {
    return graph_conv(g, proj->state, proj->conv, proj->bias, activation,
            graph_linear(g, proj->proj, NULL, x));
}

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

const char * const OUTPUT_GATES[] = { "none", "silu", "sigmoid", NULL };

struct ggml_tensor * readout_build(struct graph * g, const struct readout * r,
        struct ggml_tensor * o, struct ggml_tensor * gate) {
    const int64_t width = o->ne[0] * o->ne[1];
    o = ggml_reshape_2d(g->ctx, graph_rms_norm(g, o, r->norm, r->eps), width, g->n_tokens);
    switch (r->gate) {
        case OUTPUT_GATE_SILU: o = ggml_swiglu_split(g->ctx, gate, o); break;
        case OUTPUT_GATE_SIGMOID: o = ggml_mul(g->ctx, o, ggml_sigmoid(g->ctx, gate)); break;
        case OUTPUT_GATE_NONE: break;
    }
    return graph_linear(g, r->output, NULL, o);
}
