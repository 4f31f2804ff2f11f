// Attention with latent rows (MLA): the attention layers of Kimi-Linear and Ling
//
//     (c, k_r) = W_kva x;   c ← RMSNorm(c)                        [R], [r]: a row of the cache
//     (q_n, q_r) = W_q x, or W_qb RMSNorm(W_qa x)                 per head [A], [r]
//     k_h = (W_kb c, k_r),  v_h = W_vb c,  scores q·k / sqrt(A + r)
//     out = W_o (o [∘ σ(W_g x)_h])                                Ling: one gate for each head
//
// q_r and k_r have RoPE in Ling, on pairs of neighbors. Keys and values are never computed:
//
//     q_h·k_hs = (W_kbᵀ q_n, q_r)·(c_s, k_rs);   o_h = W_vb Σ_s p_s c_s
//
// That is attention of H queries of length R + r with one head of the cache, whose rows are also
// the values: their first R entries. The cache has R + r numbers for a token and layer.

#include "model/families.h"

#include <math.h>

// Of both norms. llama.cpp has that of the layers, which for Kimi-Linear is another one.
static const float LATENT_EPS = 1e-6f;

struct mla {
    int64_t              H, R, A, r, P;
    float                rope_theta;         // 0: no RoPE
    struct ggml_tensor * q;                  // [D, H·(A+r)], NULL: the next three
    struct ggml_tensor * q_a, *q_norm, *q_b; // [D, RQ], [RQ], [RQ, H·(A+r)]
    struct ggml_tensor * kv_a, *kv_norm;     // [D, R + r], [R]
    struct ggml_tensor * k_b, *v_b;          // [A, R, H], [R, P, H]
    struct ggml_tensor * gate;               // [D, H] or NULL
    struct ggml_tensor * output;             // [H·P, D]
};

static bool load_keys(struct loader * l, struct mla * w) {
    const char * length = loader_key(l, "attention.key_length_mla");
    const char * n_rot = loader_key(l, "rope.dimension_count");
    w->H = loader_int(l, loader_key(l, "attention.head_count"), 1, 4096);
    w->R = loader_int(l, loader_key(l, "attention.kv_lora_rank"), 1, 65536);
    w->r = loader_int(l, n_rot, 2, 65536);
    w->A = loader_int(l, length, 1, 65536) - w->r;
    if (!l->failed && (w->A < 1 || w->r % 2 != 0)) {
        return loader_fail(l, "key '%s' is %lld; expected an even number below %s = %lld", n_rot,
                (long long) w->r, length, (long long) (w->A + w->r));
    }
    w->P = loader_int(l, loader_key(l, "attention.value_length_mla"), 1, 65536);
    if (l->model->family->attention & ATTENTION_ROPE) {
        w->rope_theta = loader_float(l, loader_key(l, "rope.freq_base"), 1.0f, 1e12f);
    }
    return !l->failed;
}

static int64_t gcd(int64_t a, int64_t b) {
    return b == 0 ? a : gcd(b, a % b);
}

bool mla_load(struct loader * l, int32_t il, struct layer * layer) {
    struct mla *  w = layer->attention_weights = loader_alloc(l, sizeof(*w));
    const int64_t D = l->model->n_embd;
    if (w == NULL || !load_keys(l, w)) {
        return false;
    }
    const int64_t q = w->H * (w->A + w->r);
    const int64_t RQ = loader_int_or(l, loader_key(l, "attention.q_lora_rank"), 0, 65536, 0);
    if (RQ > 0) {
        w->q_a = loader_tensor_2d(l, il, "attn_q_a.weight", TENSOR_REQUIRED, D, RQ);
        w->q_norm = loader_tensor_1d(l, il, "attn_q_a_norm.weight", TENSOR_F32, RQ);
        w->q_b = loader_tensor_2d(l, il, "attn_q_b.weight", TENSOR_REQUIRED, RQ, q);
    } else {
        w->q = loader_tensor_2d(l, il, "attn_q.weight", TENSOR_REQUIRED, D, q);
    }
    w->kv_a = loader_tensor_2d(l, il, "attn_kv_a_mqa.weight", TENSOR_REQUIRED, D, w->R + w->r);
    w->kv_norm = loader_tensor_1d(l, il, "attn_kv_a_norm.weight", TENSOR_F32, w->R);
    w->k_b = loader_tensor_nd(
            l, il, "attn_k_b.weight", TENSOR_REQUIRED, 3, (const int64_t[3]) { w->A, w->R, w->H });
    w->v_b = loader_tensor_nd(
            l, il, "attn_v_b.weight", TENSOR_REQUIRED, 3, (const int64_t[3]) { w->R, w->P, w->H });
    if (l->model->family->attention & ATTENTION_GATE) {
        w->gate = loader_tensor_2d(l, il, "attn_gate.weight", TENSOR_REQUIRED, D, w->H);
    }
    w->output = loader_tensor_2d(l, il, "attn_output.weight", TENSOR_REQUIRED, w->H * w->P, D);
    layer->cache_k = w->R + w->r;
    layer->cache_head = gcd(w->R, w->r);
    return !l->failed;
}

// x [r, heads, T], a view
static struct ggml_tensor * rope(struct graph * g, const struct mla * w, struct ggml_tensor * x) {
    return w->rope_theta > 0.0f ? graph_rope(g, x, w->r, w->rope_theta, NULL, true) : x;
}

// Entries first .. first + n − 1 of each head of x [heads·length, T] → [n, heads, T], a view
static struct ggml_tensor * part(
        struct graph * g, struct ggml_tensor * x, int64_t heads, int64_t first, int64_t n) {
    return ggml_view_3d(g->ctx, x, n, heads, g->n_tokens, x->nb[1] / (size_t) heads, x->nb[1],
            (size_t) first * sizeof(float));
}

struct ggml_tensor * mla_mix(struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct mla *    w = layer->attention_weights;
    struct ggml_context * c = g->ctx;

    struct ggml_tensor * kv = graph_product(g, w->kv_a, x); // [R + r, T]
    struct ggml_tensor * row =
            ggml_concat(c, graph_rms_norm(g, part(g, kv, 1, 0, w->R), w->kv_norm, LATENT_EPS),
                    rope(g, w, part(g, kv, 1, w->R, w->r)), 0); // [R + r, 1, T]
    attention_store(g, g->cache_k, ggml_reshape_2d(c, row, w->R + w->r, g->n_tokens));

    struct ggml_tensor * q = // [H·(A+r), T]
            w->q != NULL ? graph_product(g, w->q, x)
                         : graph_product(g, w->q_b,
                                   graph_rms_norm(
                                           g, graph_product(g, w->q_a, x), w->q_norm, LATENT_EPS));
    q = ggml_concat(c, graph_product_heads(g, w->k_b, part(g, q, w->H, 0, w->A)),
            rope(g, w, part(g, q, w->H, w->A, w->r)), 0); // [R + r, H, T]

    struct ggml_tensor * o = // [H·R, T]
            attention_attend(g, q, 1, w->R, 1.0f / sqrtf((float) (w->A + w->r)));
    o = graph_product_heads(g, w->v_b, part(g, o, w->H, 0, w->R)); // [P, H, T]
    if (w->gate != NULL) {
        struct ggml_tensor * z = ggml_sigmoid(c, graph_product(g, w->gate, x)); // [H, T]
        o = ggml_mul(c, o, ggml_reshape_3d(c, z, 1, w->H, g->n_tokens));
    }
    return graph_product(g, w->output, ggml_reshape_2d(c, o, w->H * w->P, g->n_tokens));
}
