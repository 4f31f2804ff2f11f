// A layer is a mixer and a feed-forward part, each with its norm and residual:
//
//     x += r · mixer(norm x);   x += r · ffn(norm x)
//
// Either may be missing. The mixer is that of the family, attention, or both side by side: their
// outputs are added. The feed-forward part is an MLP or a mixture of them. r is 1 in all models but
// Granite. RWKV builds the whole layer itself.

#include "model/families.h"

#include <stdlib.h>

// Everything but the mixer.
struct shell {
    struct ggml_tensor * mixer_norm;   // [D], NULL: no mixer
    struct ggml_tensor * mixer_norm_b; // [D] or NULL
    struct ggml_tensor * ffn_norm;     // [D], NULL: no feed-forward part
    struct mlp           mlp;
    struct moe *         moe;       // NULL: mlp
    bool                 post_norm; // x += norm(mixer x);   x += norm(mlp x)
};

// ---- Kinds --------------------------------------------------------------------------------------

// lrnn.layer_kinds, for the layers that are not the default of the family.
static bool load_listed_kinds(struct loader * l) {
    const struct lrnn_model * model = l->model;
    const bool                single = layer_style_load(l) == LAYER_STYLE_SINGLE;
    size_t                    n;
    struct slice *            kinds = loader_strings(l, "lrnn.layer_kinds", &n);
    if (kinds == NULL) {
        return !l->failed;
    }
    if (n != (size_t) model->n_layer) {
        loader_fail(l, "key 'lrnn.layer_kinds' has %zu elements; expected %d", n, model->n_layer);
    }
    for (int32_t il = 0; il < model->n_layer && !l->failed; ++il) {
        struct layer * layer = &model->layers[il];
        const bool     attention = slice_is(kinds[il], "attention");
        const bool     mlp = single && slice_is(kinds[il], "mlp");
        char           quoted[80];
        if (!attention && !mlp && !slice_is(kinds[il], "recurrent")) {
            loader_fail(l, "key 'lrnn.layer_kinds' has element %d = %s; expected %s", il,
                    slice_quote(quoted, sizeof(quoted), kinds[il]),
                    single ? "'recurrent', 'attention' or 'mlp'" : "'recurrent' or 'attention'");
        } else if (model->family->attention_only && !attention) {
            loader_fail(l,
                    "key 'lrnn.layer_kinds' has element %d = 'recurrent'; "
                    "expected 'attention' for family %s",
                    il, model->family->name);
        }
        if (attention || mlp) {
            layer->recurrent = false;
            layer->attention = attention;
            layer->ffn = FFN_SWIGLU;
        }
        if (single) {
            layer->ffn = mlp ? FFN_RELU2 : FFN_NONE;
        }
    }
    free(kinds);
    return !l->failed;
}

void layer_kind_by_heads(struct loader * l, int32_t il, struct layer * layer) {
    const char *  heads = loader_key(l, "attention.head_count_kv");
    const char *  dense = loader_key(l, "leading_dense_block_count");
    const int64_t experts = loader_int_or(l, loader_key(l, "expert_count"), 0, 65536, 0);
    layer->attention = loader_int_at(l, heads, (size_t) il, 0, 4096, -1) > 0;
    layer->recurrent = !layer->attention;
    layer->ffn = experts > 0 && il >= loader_int_or(l, dense, 0, 4096, 0) ? FFN_SWIGLU_EXPERTS
                                                                          : FFN_SWIGLU;
}

bool layer_kinds_load(struct loader * l) {
    const struct family * family = l->model->family;
    const struct family * mixer = family_mixer(family);
    const bool            mlp = family->attention_only || (mixer->mix != NULL && !mixer->no_mlp);
    const int32_t         n = l->model->n_layer;
    for (int32_t il = 0; il < n + (l->model->draft != NULL) && !l->failed; ++il) {
        struct layer * layer = &l->model->layers[il];
        layer->recurrent = !family->attention_only;
        layer->attention = family->attention_only;
        layer->ffn = mlp ? FFN_SWIGLU : FFN_NONE;
        layer->n_ff =
                loader_int_at(l, loader_key(l, "feed_forward_length"), (size_t) il, 0, 1 << 24, 0);
        if (family->layer_kind != NULL && !l->failed) {
            family->layer_kind(l, il, layer);
        }
        if (il == n) { // the draft block
            layer->recurrent = false;
            layer->attention = true;
        }
    }
    return !l->failed && (l->llama_cpp || load_listed_kinds(l));
}

// ---- Loading ------------------------------------------------------------------------------------

enum layer_style layer_style_load(struct loader * l) {
    static const char * const styles[] = { "pre", "olmo_hybrid", "single", NULL };
    return (enum layer_style) loader_word_or(l, "lrnn.block_style", styles, LAYER_STYLE_PRE_NORM);
}

static bool shell_load(struct loader * l, int32_t il, struct layer * layer) {
    const struct family * family = l->model->family;
    const bool            mixer = layer->recurrent || layer->attention;
    const int64_t         D = l->model->n_embd;
    struct shell *        shell = loader_alloc(l, sizeof(*shell));
    if (shell == NULL) {
        return false;
    }
    layer->shell = shell;
    shell->post_norm = !layer->recurrent && layer_style_load(l) == LAYER_STYLE_OLMO_HYBRID;
    if (mixer) {
        shell->mixer_norm = loader_tensor_1d(l, il,
                shell->post_norm ? "attn_post_norm.weight" : "attn_norm.weight", TENSOR_F32, D);
        shell->mixer_norm_b =
                loader_tensor_1d(l, il, "attn_norm.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    }
    if (layer->ffn == FFN_NONE) {
        return !l->failed;
    }
    shell->ffn_norm = loader_tensor_1d(l, il,
            shell->post_norm           ? "ffn_post_norm.weight"
            : !mixer                   ? "attn_norm.weight" // the only norm of the layer
            : family->ffn_norm != NULL ? family->ffn_norm
                                       : "ffn_norm.weight",
            TENSOR_F32, D);
    if (layer->ffn == FFN_SWIGLU_EXPERTS || layer->ffn == FFN_RELU2_EXPERTS) {
        shell->moe = moe_load(l, il, layer, layer->ffn == FFN_SWIGLU_EXPERTS);
        return shell->moe != NULL;
    }
    return mlp_load(l, il, layer, &shell->mlp);
}

static bool is_latent(const struct lrnn_model * model) {
    return model->family->attention & ATTENTION_LATENT;
}

bool layer_load(struct loader * l, int32_t il, struct layer * layer) {
    const struct family * mixer = family_mixer(l->model->family);
    if ((!layer->recurrent || mixer->mix != NULL) && !shell_load(l, il, layer)) {
        return false;
    }
    if (layer->recurrent) {
        layer->weights = loader_alloc(l, mixer->layer_size);
        if (layer->weights == NULL || !mixer->load_layer(l, il, layer)) {
            return false;
        }
    }
    if (!layer->attention) {
        return true;
    }
    return is_latent(l->model) ? mla_load(l, il, layer) : attention_load(l, il, layer);
}

// ---- Graph --------------------------------------------------------------------------------------

// x + r·y
static struct ggml_tensor * residual(
        struct graph * g, struct ggml_tensor * x, struct ggml_tensor * y) {
    return ggml_add(g->ctx, x, graph_scale(g, y, g->model->residual_scale));
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const build_function recurrent = family_mixer(g->model->family)->mix;
    if (!layer->attention) {
        return recurrent(g, layer, x);
    }
    struct ggml_tensor * y =
            is_latent(g->model) ? mla_mix(g, layer, x) : attention_mix(g, layer, x);
    return layer->recurrent ? ggml_add(g->ctx, recurrent(g, layer, x), y) : y;
}

struct ggml_tensor * layer_norm(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * b, struct ggml_tensor * x) {
    const float eps = g->model->norm_eps;
    const bool  centered = b != NULL || g->model->family->layer_norm;
    return centered ? graph_layer_norm(g, x, w, b, eps) : graph_rms_norm(g, x, w, eps);
}

void layer_store(struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct shell * s = layer->shell;
    attention_remember(g, layer, layer_norm(g, s->mixer_norm, s->mixer_norm_b, x));
}

struct ggml_tensor * layer_build(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct shell * s = layer->shell;
    if (s == NULL) {
        return g->model->family->build_layer(g, layer, x);
    }
    if (s->post_norm) {
        x = residual(g, x, layer_norm(g, s->mixer_norm, s->mixer_norm_b, mix(g, layer, x)));
        return residual(g, x, layer_norm(g, s->ffn_norm, NULL, mlp_build(g, &s->mlp, x)));
    }
    if (s->mixer_norm != NULL) {
        x = residual(g, x, mix(g, layer, layer_norm(g, s->mixer_norm, s->mixer_norm_b, x)));
    }
    if (s->ffn_norm != NULL) {
        struct ggml_tensor * h = layer_norm(g, s->ffn_norm, NULL, x);
        x = residual(g, x, s->moe != NULL ? moe_build(g, s->moe, h) : mlp_build(g, &s->mlp, h));
    }
    return x;
}
