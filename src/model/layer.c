// A layer is a mixer and an MLP with norms and residuals
//
//     x += mixer(norm x);   x += mlp(norm x)           mlp(x) = W_down (silu(W_gate x) ∘ W_up x)
//
// The mixer is that of the family, or attention. Mamba and RWKV build the whole layer themselves.

#include "model/families.h"

// Everything but the mixer.
struct frame {
    struct ggml_tensor * mixer_norm;    // [D]
    struct ggml_tensor * mlp_norm;      // [D]
    struct ggml_tensor * gate, *gate_b; // [D, F], [F] or NULL
    struct ggml_tensor * up, *up_b;     // [D, F], [F] or NULL
    struct ggml_tensor * down, *down_b; // [F, D], [D] or NULL
    bool                 post_norm;     // x += norm(mixer x);   x += norm(mlp x)
};

enum layer_style layer_style_load(struct loader * l) {
    static const char * const styles[] = { "pre", "olmo_hybrid", NULL };
    return (enum layer_style) loader_word_or(l, "lrnn.block_style", styles, LAYER_STYLE_PRE_NORM);
}

static bool frame_load(struct loader * l, int32_t il, bool post_norm, struct layer * layer) {
    const int64_t  D     = l->model->n_embd;
    const int64_t  F     = l->model->n_ff;
    struct frame * frame = loader_alloc(l, sizeof(*frame));
    if (frame == NULL) {
        return false;
    }
    if (F == 0) {
        return loader_fail(l, "key '%s' is missing", loader_key(l, "feed_forward_length"));
    }
    frame->post_norm  = post_norm;
    frame->mixer_norm = loader_tensor_1d(
            l, il, post_norm ? "attn_post_norm.weight" : "attn_norm.weight", TENSOR_F32, D);
    frame->mlp_norm = loader_tensor_1d(l, il,
            post_norm      ? "ffn_post_norm.weight"
            : l->llama_cpp ? "post_attention_norm.weight" // before the MLP, in spite of its name
                           : "ffn_norm.weight",
            TENSOR_F32, D);
    frame->gate     = loader_tensor_2d(l, il, "ffn_gate.weight", TENSOR_REQUIRED, D, F);
    frame->up       = loader_tensor_2d(l, il, "ffn_up.weight", TENSOR_REQUIRED, D, F);
    frame->down     = loader_tensor_2d(l, il, "ffn_down.weight", TENSOR_REQUIRED, F, D);
    frame->gate_b   = loader_tensor_1d(l, il, "ffn_gate.bias", TENSOR_F32 | TENSOR_OPTIONAL, F);
    frame->up_b     = loader_tensor_1d(l, il, "ffn_up.bias", TENSOR_F32 | TENSOR_OPTIONAL, F);
    frame->down_b   = loader_tensor_1d(l, il, "ffn_down.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    layer->frame    = frame;
    return !l->failed;
}

// W_down (silu(W_gate x) ∘ W_up x), x [D, T] → [D, T]
static struct ggml_tensor * mlp(
        struct graph * g, const struct frame * frame, struct ggml_tensor * x) {
    struct ggml_tensor * gate = graph_linear(g, frame->gate, frame->gate_b, x); // [F, T]
    struct ggml_tensor * up   = graph_linear(g, frame->up, frame->up_b, x);     // [F, T]
    return graph_linear(g, frame->down, frame->down_b, ggml_swiglu_split(g->ctx, gate, up));
}

static struct ggml_tensor * frame_build(
        struct graph * g, const struct layer * layer, build_function mix, struct ggml_tensor * x) {
    const struct frame * frame = layer->frame;
    const float          eps   = g->model->norm_eps;
    if (frame->post_norm) {
        x = ggml_add(g->ctx, x, graph_rms_norm(g, mix(g, layer, x), frame->mixer_norm, eps));
        return ggml_add(g->ctx, x, graph_rms_norm(g, mlp(g, frame, x), frame->mlp_norm, eps));
    }
    x = ggml_add(g->ctx, x, mix(g, layer, graph_rms_norm(g, x, frame->mixer_norm, eps)));
    return ggml_add(g->ctx, x, mlp(g, frame, graph_rms_norm(g, x, frame->mlp_norm, eps)));
}

bool layer_load(struct loader * l, int32_t il, struct layer * layer) {
    const struct family * family = l->model->family;
    if (layer->attention) {
        const bool post_norm = layer_style_load(l) == LAYER_STYLE_OLMO_HYBRID;
        return frame_load(l, il, post_norm, layer) && attention_load(l, il, layer);
    }
    layer->weights = loader_alloc(l, family->layer_size);
    return layer->weights != NULL && (family->mix == NULL || frame_load(l, il, false, layer)) &&
           family->load_layer(l, il, layer);
}

struct ggml_tensor * layer_build(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct family * family = g->model->family;
    if (layer->attention) {
        return frame_build(g, layer, attention_mix, x);
    }
    return family->mix != NULL ? frame_build(g, layer, family->mix, x)
                               : family->build_layer(g, layer, x);
}
