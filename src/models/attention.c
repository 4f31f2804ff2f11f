// Softmax attention: the attention layers of hybrids, and of the Transformer baseline
//
//     q, k, v = W x + b;  q, k [normalised] [RoPE]
//     o_t = Σ_s softmax_s(hd^-1/2 q_t·k_s) v_s          over the s ≤ t that the window lets it see
//     out = W_o o + b
//
// k and v of all tokens so far lie in a cache, [heads·length, tokens, sequences]. Each sequence of
// the call is attended to on its own, with as much of its cache as is visible: all its tokens and,
// behind the mask, a few rows of zeros, so that the shapes do not change with every token.

#include "models/models.h"

#include <math.h>

static const char * const QK_NORMS[]     = { "none", "head", "all", NULL };
static const char * const BLOCK_STYLES[] = { "pre", "olmo_hybrid", NULL };

enum attention_norm { ATTENTION_NORM_NONE, ATTENTION_NORM_HEAD, ATTENTION_NORM_ALL };

struct attention {
    struct block         block;
    int64_t              H, HK, length;
    int64_t              window;     // 0: none
    float                rope_theta; // 0: none
    enum attention_norm  norm;
    float                norm_eps;
    struct ggml_tensor * q, *q_b; // [D, H·length], [H·length] or NULL
    struct ggml_tensor * k, *k_b; // [D, HK·length], …
    struct ggml_tensor * v, *v_b;
    struct ggml_tensor * q_norm; // [length] or [H·length]
    struct ggml_tensor * k_norm;
    struct ggml_tensor * output, *output_b; // [H·length, D], [D] or NULL
};

bool attention_load_layer(struct loader * l, int32_t il, struct layer * layer) {
    struct attention * w = layer->weights = loader_alloc(l, sizeof(*w));
    const int64_t      D                  = l->model->n_embd;
    if (w == NULL || !block_load(l, il, loader_word_or(l, "lrnn.block_style", BLOCK_STYLES, 0) == 1,
                             &w->block)) {
        return false;
    }
    w->H          = loader_int(l, "lrnn.attention.head_count", 1, 4096);
    w->HK         = loader_int(l, "lrnn.attention.head_count_kv", 1, 4096);
    w->length     = loader_int(l, "lrnn.attention.key_length", 1, 65536);
    w->window     = loader_int_or(l, "lrnn.attention.window", 1, INT64_MAX, 0);
    w->rope_theta = loader_float_or(l, "lrnn.rope_theta", 1.0f, 1e12f, 0.0f);
    w->norm       = (enum attention_norm) loader_word_or(
            l, "lrnn.attention.qk_norm", QK_NORMS, ATTENTION_NORM_NONE);
    w->norm_eps = w->norm != ATTENTION_NORM_NONE
                          ? loader_float(l, "lrnn.attention.qk_norm_epsilon", 1e-12f, 1.0f)
                          : 0.0f;
    if (!l->failed && w->H % w->HK != 0) {
        return loader_fail(l,
                "lrnn.attention.head_count_kv is %lld; expected a divisor of lrnn.attention.head_count = %lld",
                (long long) w->HK, (long long) w->H);
    }
    if (!l->failed && w->rope_theta > 0.0f && w->length % 2 != 0) {
        return loader_fail(l,
                "lrnn.attention.key_length is %lld; expected an even number, for RoPE",
                (long long) w->length);
    }
    if (w->rope_theta > 0.0f &&
            l->model->rope_factors == NULL) { // the first attention layer reads them for all
        l->model->rope_factors = loader_tensor_1d(
                l, -1, "rope_freqs.weight", TENSOR_F32 | TENSOR_OPTIONAL, w->length / 2);
    }
    const bool all = w->norm == ATTENTION_NORM_ALL;
    w->q           = loader_tensor_2d(l, il, "attn_q.weight", TENSOR_REQUIRED, D, w->H * w->length);
    w->k   = loader_tensor_2d(l, il, "attn_k.weight", TENSOR_REQUIRED, D, w->HK * w->length);
    w->v   = loader_tensor_2d(l, il, "attn_v.weight", TENSOR_REQUIRED, D, w->HK * w->length);
    w->q_b = loader_tensor_1d(l, il, "attn_q.bias", TENSOR_F32 | TENSOR_OPTIONAL, w->H * w->length);
    w->k_b =
            loader_tensor_1d(l, il, "attn_k.bias", TENSOR_F32 | TENSOR_OPTIONAL, w->HK * w->length);
    w->v_b =
            loader_tensor_1d(l, il, "attn_v.bias", TENSOR_F32 | TENSOR_OPTIONAL, w->HK * w->length);
    w->output = loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, w->H * w->length, D);
    w->output_b = loader_tensor_1d(l, il, "attn_output.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    if (w->norm != ATTENTION_NORM_NONE) {
        w->q_norm = loader_tensor_1d(
                l, il, "attn_q_norm.weight", TENSOR_F32, all ? w->H * w->length : w->length);
        w->k_norm = loader_tensor_1d(
                l, il, "attn_k_norm.weight", TENSOR_F32, all ? w->HK * w->length : w->length);
    }
    layer->cache_size = w->HK * w->length;
    return !l->failed;
}

// q or k, [heads·length, T] → [length, heads, T]
static struct ggml_tensor * prepare(struct graph * g, const struct attention * w,
        struct ggml_tensor * x, struct ggml_tensor * norm, int64_t heads) {
    if (w->norm == ATTENTION_NORM_ALL) {
        x = graph_rms_norm(g, x, norm, w->norm_eps);
    }
    x = ggml_reshape_3d(g->ctx, x, w->length, heads, g->n_tokens);
    if (w->norm == ATTENTION_NORM_HEAD) {
        x = graph_rms_norm(g, x, norm, w->norm_eps);
    }
    return w->rope_theta > 0.0f ? graph_rope(g, x, w->rope_theta, g->model->rope_factors) : x;
}

// The rows of all tokens of the call, x [HK·length, T], into the cache of their sequences: before
// anything reads it
static void store(struct graph * g, struct ggml_tensor * cache, struct ggml_tensor * x) {
    cache = ggml_reshape_2d(g->ctx, cache, cache->ne[0],
            cache->ne[1] * cache->ne[2]); // [HK·length, n_cache·sequences]
    ggml_build_forward_expand(g->gf, ggml_set_rows(g->ctx, cache, x, g->rows));
}

// What sequence `seq` sees of a cache, [length, visible, HK]
static struct ggml_tensor * recall(struct graph * g, const struct attention * w,
        const struct graph_seq * seq, struct ggml_tensor * cache) {
    return ggml_view_3d(g->ctx, cache, w->length, seq->visible, w->HK, cache->nb[1],
            (size_t) w->length * sizeof(float), (size_t) seq->seq * cache->nb[2]);
}

// The n tokens of one sequence: q [length, H, T] against its cache → [H·length, n]
static struct ggml_tensor * attend(struct graph * g, const struct attention * w,
        const struct graph_seq * seq, struct ggml_tensor * mask, struct ggml_tensor * q) {
    struct ggml_context * c = g->ctx;
    const int64_t         n = seq->count;
    struct ggml_tensor *  k = recall(g, w, seq, g->cache_k);
    struct ggml_tensor *  v = recall(g, w, seq, g->cache_v);

    q = ggml_view_3d(c, q, w->length, w->H, n, q->nb[1], q->nb[2], (size_t) seq->first * q->nb[2]);
    struct ggml_tensor * p = ggml_mul_mat(c, k, ggml_permute(c, q, 0, 2, 1, 3)); // [visible, n, H]
    p                      = ggml_soft_max_ext(c, p, mask, 1.0f / sqrtf((float) w->length), 0.0f);

    if (n == 1) { // one column: not worth turning v over, which is the whole cache
        struct ggml_tensor * o =
                ggml_out_prod(c, v, ggml_permute(c, p, 1, 0, 2, 3)); // [length, 1, H]
        return ggml_reshape_2d(c, o, w->H * w->length, 1);
    }
    v                      = ggml_cont(c, ggml_permute(c, v, 1, 0, 2, 3)); // [visible, length, HK]
    struct ggml_tensor * o = ggml_mul_mat(c, v, p);                        // [length, n, H]
    return ggml_reshape_2d(c, ggml_cont(c, ggml_permute(c, o, 0, 2, 1, 3)), w->H * w->length, n);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct attention * w = layer->weights;

    struct ggml_tensor * q = prepare(g, w, graph_linear(g, w->q, w->q_b, x), w->q_norm, w->H);
    struct ggml_tensor * k = prepare(g, w, graph_linear(g, w->k, w->k_b, x), w->k_norm, w->HK);
    struct ggml_tensor * v = graph_linear(g, w->v, w->v_b, x);
    store(g, g->cache_k, ggml_reshape_2d(g->ctx, k, w->HK * w->length, g->n_tokens));
    store(g, g->cache_v, v);

    struct ggml_tensor * o = NULL;
    for (int32_t i = 0; i < g->n_seqs; ++i) {
        struct ggml_tensor * part = attend(g, w, &g->seqs[i], graph_mask(g, i, w->window), q);
        o                         = o == NULL ? part : ggml_concat(g->ctx, o, part, 1);
    }
    return graph_linear(g, w->output, w->output_b, o);
}

struct ggml_tensor * attention_block(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct attention * w = layer->weights;
    return block_build(g, &w->block, layer, mix, x);
}

const struct family family_transformer = {
    .name       = "transformer",
    .own_range  = true,
    .load_layer = attention_load_layer,
    .block      = attention_block,
};
