// A layer is a mixer and an MLP with norms and residuals
//
//     x += mixer(norm x);   x += mlp(norm x)
//
// The mixer is that of the family, or attention. Mamba and RWKV build the whole layer themselves.

#include "model/families.h"

// Everything but the mixer.
struct shell {
    struct ggml_tensor * mixer_norm; // [D]
    struct ggml_tensor * mlp_norm;   // [D]
    struct mlp           mlp;
    bool                 post_norm; // x += norm(mixer x);   x += norm(mlp x)
};

enum layer_style layer_style_load(struct loader * l) {
    static const char * const styles[] = { "pre", "olmo_hybrid", NULL };
    return (enum layer_style) loader_word_or(l, "lrnn.block_style", styles, LAYER_STYLE_PRE_NORM);
}

static bool shell_load(struct loader * l, int32_t il, bool post_norm, struct layer * layer) {
    const int64_t  D     = l->model->n_embd;
    struct shell * shell = loader_alloc(l, sizeof(*shell));
    if (shell == NULL) {
        return false;
    }
    shell->post_norm  = post_norm;
    shell->mixer_norm = loader_tensor_1d(
            l, il, post_norm ? "attn_post_norm.weight" : "attn_norm.weight", TENSOR_F32, D);
    shell->mlp_norm = loader_tensor_1d(l, il,
            post_norm      ? "ffn_post_norm.weight"
            : l->llama_cpp ? "post_attention_norm.weight" // before the MLP, in spite of its name
                           : "ffn_norm.weight",
            TENSOR_F32, D);
    layer->shell    = shell;
    return mlp_load(l, il, &shell->mlp);
}

static struct ggml_tensor * shell_build(
        struct graph * g, const struct layer * layer, build_function mix, struct ggml_tensor * x) {
    const struct shell * s   = layer->shell;
    const float          eps = g->model->norm_eps;
    if (s->post_norm) {
        x = ggml_add(g->ctx, x, graph_rms_norm(g, mix(g, layer, x), s->mixer_norm, eps));
        return ggml_add(g->ctx, x, graph_rms_norm(g, mlp_build(g, &s->mlp, x), s->mlp_norm, eps));
    }
    x = ggml_add(g->ctx, x, mix(g, layer, graph_rms_norm(g, x, s->mixer_norm, eps)));
    return ggml_add(g->ctx, x, mlp_build(g, &s->mlp, graph_rms_norm(g, x, s->mlp_norm, eps)));
}

bool layer_load(struct loader * l, int32_t il, struct layer * layer) {
    const struct family * family = l->model->family;
    if (layer->attention) {
        const bool post_norm = layer_style_load(l) == LAYER_STYLE_OLMO_HYBRID;
        return shell_load(l, il, post_norm, layer) && attention_load(l, il, layer);
    }
    layer->weights = loader_alloc(l, family->layer_size);
    return layer->weights != NULL && (family->mix == NULL || shell_load(l, il, false, layer)) &&
           family->load_layer(l, il, layer);
}

struct ggml_tensor * layer_build(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct family * family = g->model->family;
    if (layer->attention) {
        return shell_build(g, layer, attention_mix, x);
    }
    return family->mix != NULL ? shell_build(g, layer, family->mix, x)
                               : family->build_layer(g, layer, x);
}
