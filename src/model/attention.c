// Softmax attention: the mixer of the attention layers of hybrids and of the Transformer
//
//     q, k, v = W x + b;   q, k [normalized] [RoPE]
//     o_t = Σ_s softmax_s(c q_t·k_s) v_s               over the s ≤ t inside the window
//     c = L^-1/2, in Granite a constant
//     out = W_o o + b;   in Qwen3.5: out = W_o (o ∘ σ(z)), with (q, z) = W_q x per head
//
// There are H heads of q and HK heads of k and v, each of length L. A cache holds k and v of all
// tokens so far, [HK·L, tokens, sequences], in F16, F32 or Q8_0. Each sequence of the batch is
// computed separately, on the visible rows of its cache: all its tokens and a few masked rows of
// zeros after them, so that the shape of the graph does not change with every token.

#include "model/families.h"

#include <math.h>

enum attention_norm { ATTENTION_NORM_NONE, ATTENTION_NORM_HEAD, ATTENTION_NORM_ALL };

static const char * const QK_NORMS[] = { "none", "head", "all", NULL };

struct attention {
    int64_t              H, HK, L;
    float                rope_theta; // 0: no RoPE
    int64_t              n_rot;      // RoPE turns the first n_rot entries of a head
    bool                 neighbors;  // in the pairs (2d, 2d + 1); otherwise (d, d + n_rot/2)
    float                scale;      // of the scores
    bool                 gated;      // heads of W_q have rows of q and of the gate z
    enum attention_norm  norm;
    float                norm_eps;
    struct ggml_tensor * q, *q_b;           // [D, H·L], [H·L] or NULL; gated: [D, H·2L]
    struct ggml_tensor * k, *k_b;           // [D, HK·L], [HK·L] or NULL
    struct ggml_tensor * v, *v_b;           // [D, HK·L], [HK·L] or NULL
    struct ggml_tensor * q_norm;            // [L], [H·L] or NULL
    struct ggml_tensor * k_norm;            // [L], [HK·L] or NULL
    struct ggml_tensor * output, *output_b; // [H·L, D], [D] or NULL
};

// A file of llama.cpp. The number of key heads may differ from layer to layer.
static bool load_llama_cpp_keys(struct loader * l, int32_t il, struct attention * w) {
    const int    features = l->model->family->attention;
    const char * heads = loader_key(l, "attention.head_count");
    const char * kv_heads = loader_key(l, "attention.head_count_kv");

    w->gated = features & ATTENTION_GATE;
    w->H = loader_int_at(l, heads, (size_t) il, 1, 4096, 0);
    w->HK = loader_int_at(l, kv_heads, (size_t) il, 1, 4096, 0);
    loader_divisor(l, kv_heads, w->HK, heads, w->H);

    const char *  length = loader_key(l, "attention.key_length");
    const int64_t default_length = l->model->n_embd / w->H;
    w->L = loader_int_or(l, length, 1, 65536, default_length > 0 ? default_length : 1);

    const char *  value_length = loader_key(l, "attention.value_length");
    const int64_t LV = loader_int_or(l, value_length, 1, 65536, w->L);
    if (!l->failed && LV != w->L) {
        return loader_fail(l, "key '%s' is %lld; expected %lld", value_length, (long long) LV,
                (long long) w->L);
    }
    w->scale = loader_float_or(l, loader_key(l, "attention.scale"), 0.0f, 1e6f, 0.0f);
    if (features & ATTENTION_QK_NORM) {
        w->norm = ATTENTION_NORM_HEAD;
        w->norm_eps = l->model->norm_eps;
    }
    w->neighbors = features & ATTENTION_ROPE_FINETUNED;
    if (features & ATTENTION_ROPE ||
            (w->neighbors && loader_bool_or(l, loader_key(l, "rope.scaling.finetuned"), true))) {
        const char * n_rot = loader_key(l, "rope.dimension_count");
        w->n_rot = loader_int_or(l, n_rot, 2, 65536, w->L);
        w->rope_theta = loader_float(l, loader_key(l, "rope.freq_base"), 1.0f, 1e12f);
        if (!l->failed && (w->n_rot % 2 != 0 || w->n_rot > w->L)) {
            return loader_fail(l, "key '%s' is %lld; expected an even number up to %lld", n_rot,
                    (long long) w->n_rot, (long long) w->L);
        }
    }
    return !l->failed;
}

static bool load_keys(struct loader * l, int32_t il, struct attention * w) {
    if (l->llama_cpp) {
        return load_llama_cpp_keys(l, il, w);
    }
    w->H = loader_int(l, "lrnn.attention.head_count", 1, 4096);
    w->HK = loader_int(l, "lrnn.attention.head_count_kv", 1, 4096);
    w->L = loader_int(l, "lrnn.attention.key_length", 1, 65536);
    l->model->attention_window = loader_int_or(l, "lrnn.attention.window", 1, INT64_MAX, 0);
    w->rope_theta = loader_float_or(l, "lrnn.rope_theta", 1.0f, 1e12f, 0.0f);
    w->norm = (enum attention_norm) loader_word_or(
            l, "lrnn.attention.qk_norm", QK_NORMS, ATTENTION_NORM_NONE);
    if (w->norm != ATTENTION_NORM_NONE) {
        w->norm_eps = loader_float(l, "lrnn.attention.qk_norm_epsilon", 1e-12f, 1.0f);
    }
    w->n_rot = w->L;
    loader_divisor(l, "lrnn.attention.head_count_kv", w->HK, "lrnn.attention.head_count", w->H);
    if (!l->failed && w->rope_theta > 0.0f && w->L % 2 != 0) {
        return loader_fail(l,
                "key 'lrnn.attention.key_length' is %lld; expected an even number, for RoPE",
                (long long) w->L);
    }
    return !l->failed;
}

bool attention_load(struct loader * l, int32_t il, struct layer * layer) {
    struct attention * w = layer->attention_weights = loader_alloc(l, sizeof(*w));
    const int64_t      D = l->model->n_embd;
    if (w == NULL || !load_keys(l, il, w)) {
        return false;
    }
    if (w->scale == 0.0f) {
        w->scale = 1.0f / sqrtf((float) w->L);
    }
    if (w->rope_theta > 0.0f && l->model->rope_factors == NULL) { // one tensor for all layers
        l->model->rope_factors = loader_tensor_1d(
                l, -1, "rope_freqs.weight", TENSOR_F32 | TENSOR_OPTIONAL, w->L / 2);
    }
    const int64_t q = w->H * w->L;
    const int64_t kv = w->HK * w->L;
    w->q = loader_tensor_2d(l, il, "attn_q.weight", TENSOR_REQUIRED, D, w->gated ? 2 * q : q);
    w->k = loader_tensor_2d(l, il, "attn_k.weight", TENSOR_REQUIRED, D, kv);
    w->v = loader_tensor_2d(l, il, "attn_v.weight", TENSOR_REQUIRED, D, kv);
    w->q_b = loader_tensor_1d(l, il, "attn_q.bias", TENSOR_F32 | TENSOR_OPTIONAL, q);
    w->k_b = loader_tensor_1d(l, il, "attn_k.bias", TENSOR_F32 | TENSOR_OPTIONAL, kv);
    w->v_b = loader_tensor_1d(l, il, "attn_v.bias", TENSOR_F32 | TENSOR_OPTIONAL, kv);
    w->output = loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, q, D);
    w->output_b = loader_tensor_1d(l, il, "attn_output.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    if (w->norm != ATTENTION_NORM_NONE) {
        const bool all = w->norm == ATTENTION_NORM_ALL;
        w->q_norm = loader_tensor_1d(l, il, "attn_q_norm.weight", TENSOR_F32, all ? q : w->L);
        w->k_norm = loader_tensor_1d(l, il, "attn_k_norm.weight", TENSOR_F32, all ? kv : w->L);
    }
    layer->cache_k = layer->cache_v = kv;
    layer->cache_head = w->L;
    return !l->failed;
}

// Rows first .. first + L − 1 of each head of a projection x [heads·length, T] → [L, heads, T]
static struct ggml_tensor * head_rows(struct graph * g, const struct attention * w,
        struct ggml_tensor * x, int64_t heads, int64_t first) {
    const size_t length = (size_t) (x->ne[0] / heads);
    return ggml_view_3d(g->ctx, x, w->L, heads, g->n_tokens, length * sizeof(float), x->nb[1],
            (size_t) first * sizeof(float));
}

// q or k, [heads·L, T] → [L, heads, T]; gated: q is in the first half of each head
static struct ggml_tensor * prepare(struct graph * g, const struct attention * w,
        struct ggml_tensor * x, struct ggml_tensor * norm, int64_t heads) {
    if (w->norm == ATTENTION_NORM_ALL) {
        x = graph_rms_norm(g, x, norm, w->norm_eps);
    }
    x = head_rows(g, w, x, heads, 0);
    if (w->norm == ATTENTION_NORM_HEAD) {
        x = graph_rms_norm(g, x, norm, w->norm_eps);
    }
    return w->rope_theta > 0.0f
                   ? graph_rope(g, x, w->n_rot, w->rope_theta, g->model->rope_factors, w->neighbors)
                   : x;
}

void attention_store(struct graph * g, struct ggml_tensor * cache, struct ggml_tensor * x) {
    cache = ggml_reshape_2d(g->ctx, cache, cache->ne[0],
            cache->ne[1] * cache->ne[2]); // [width, n_cache·sequences]
    ggml_build_forward_expand(g->gf, ggml_set_rows(g->ctx, cache, x, g->inputs->rows));
}

// The visible rows of the cache of one sequence, [length, visible, HK]
static struct ggml_tensor * visible(struct graph * g, const struct graph_seq * seq,
        struct ggml_tensor * cache, int64_t length, int64_t HK) {
    return ggml_view_3d(g->ctx, cache, length, seq->visible, HK, cache->nb[1],
            ggml_row_size(cache->type, length), (size_t) seq->seq * cache->nb[2]);
}

// The n tokens of one sequence: q [L, H, T] against its cache → [H·P, n]
static struct ggml_tensor * attend_seq(struct graph * g, const struct graph_seq * seq,
        struct ggml_tensor * mask, struct ggml_tensor * q, int64_t HK, int64_t P, float scale) {
    struct ggml_context * c = g->ctx;
    const int64_t         L = q->ne[0], H = q->ne[1], n = seq->count;

    q = ggml_view_3d(c, q, L, H, n, q->nb[1], q->nb[2], (size_t) seq->first * q->nb[2]);
    struct ggml_tensor * o = ggml_flash_attn_ext(c, ggml_permute(c, q, 0, 2, 1, 3),
            visible(g, seq, g->cache_k, L, HK),
            visible(g, seq, g->cache_v != NULL ? g->cache_v : g->cache_k, P, HK), mask, scale, 0.0f,
            0.0f); // [P, H, n]
    ggml_prec_set_acc(o, GGML_PREC_F32);
    return ggml_reshape_2d(c, o, H * P, n);
}

struct ggml_tensor * attention_attend(
        struct graph * g, struct ggml_tensor * q, int64_t HK, int64_t P, float scale) {
    struct ggml_tensor * o = NULL; // [H·P, T]
    for (int32_t i = 0; i < g->n_seqs; ++i) {
        struct ggml_tensor * part =
                attend_seq(g, &g->seqs[i], g->inputs->masks[i], q, HK, P, scale);
        o = o == NULL ? part : ggml_concat(g->ctx, o, part, 1);
    }
    return o;
}

void attention_remember(struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct attention * w = layer->attention_weights;

    struct ggml_tensor * k =
            prepare(g, w, graph_linear(g, w->k, w->k_b, x), w->k_norm, w->HK); // [L, HK, T]
    struct ggml_tensor * v = graph_linear(g, w->v, w->v_b, x);                 // [HK·L, T]
    attention_store(g, g->cache_k, ggml_reshape_2d(g->ctx, k, w->HK * w->L, g->n_tokens));
    attention_store(g, g->cache_v, v);
}

struct ggml_tensor * attention_mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct attention * w = layer->attention_weights;

    struct ggml_tensor * qz = graph_linear(g, w->q, w->q_b, x);  // [H·L, T] or [H·2L, T]
    struct ggml_tensor * q = prepare(g, w, qz, w->q_norm, w->H); // [L, H, T]
    attention_remember(g, layer, x);

    struct ggml_tensor * o = attention_attend(g, q, w->HK, w->L, w->scale); // [H·L, T]
    if (w->gated) {
        struct ggml_tensor * z = ggml_cont(g->ctx, head_rows(g, w, qz, w->H, w->L)); // [L, H, T]
        z = ggml_reshape_2d(g->ctx, z, w->H * w->L, g->n_tokens);
        o = ggml_mul(g->ctx, o, ggml_sigmoid(g->ctx, z));
    }
    return graph_linear(g, w->output, w->output_b, o);
}
