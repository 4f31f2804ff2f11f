// RWKV-6 "Finch"
//
//     time mix:     h = LN(x),  d = h_{t−1} − h
//                   (m_w, m_k, m_v, m_r, m_g) = tanh((h + d ∘ μ_x) W1)
//                   h_i = h + d ∘ (μ_i + m_i W2_i)                      i = w, k, v, r, g
//                   r, k, v = W h_r, W h_k, W h_v
//                   w = exp(−exp(w0 + tanh(h_w D1) D2))
//                   y = (S + (u ∘ k) vᵀ)ᵀ r                             read before write
//                   S ← w ∘ S + k vᵀ
//                   x += W_o (GroupNorm(y) ∘ silu(W_g h_g))
//     channel mix:  h = LN(x),  d = h_{t−1} − h
//                   x += σ(W_r (h + d ∘ μ_r)) ∘ W_v relu(W_k (h + d ∘ μ_k))²
//
// QRWKV-6 is a Qwen2.5 whose attention became this time mix, with RMSNorms and an MLP around it:
//
//                   r, k, v = W h_i + b,  HK heads of k and v for H heads of r
//                   S ← w ∘ S + ((1 − w) ∘ k) vᵀ,   y = K^-1/2 Sᵀ r     read after write
//                   out = W_o (y ∘ σ(W_g h_g))

#include "model/families.h"

#include <math.h>

enum { PART_W, PART_K, PART_V, PART_R, PART_G, PARTS }; // h_i

struct rwkv6 {
    int64_t H, HK, K, P;   // HK = H but in QRWKV-6
    float   eps;           // of the group norm
    int64_t rescale_every; // x is halved after every such number of layers; 0: never
};

struct time_mix {
    struct ggml_tensor * lerp_x;                   // [D]           μ_x
    struct ggml_tensor * lerp;                     // [D, 1, 1, 5]  μ_i
    struct ggml_tensor * w1, *w2;                  // [D, 5r], [r, D, 5]
    struct low_rank      decay;                    // r = r2, out = H·K; tanh between
    struct ggml_tensor * receptance, *key, *value; // [D, H·K], [D, HK·K], [D, HK·P]
    struct ggml_tensor * gate;                     // [D, H·P]
    struct ggml_tensor * output;                   // [H·P, D]
    int32_t              shift;

    struct ggml_tensor * first;                          // [K, H]        u; NULL: QRWKV-6
    struct ggml_tensor * ln, *ln_b;                      // [H·P]         not in QRWKV-6
    struct ggml_tensor * receptance_b, *key_b, *value_b; // [H·K], [HK·K], [HK·P] or NULL
};

struct rwkv6_layer {
    struct time_mix      time_mix;
    struct ggml_tensor * ln1, *ln1_b, *ln2, *ln2_b; // [D]
    struct ggml_tensor * lerp_k, *lerp_r;           // [D]
    struct ggml_tensor * ffn_key, *ffn_value;       // [D, F], [F, D]
    struct ggml_tensor * ffn_receptance;            // [D, D]
    int32_t              shift;
    bool                 halve; // x, after this layer
};

// A file of llama.cpp
static void load_llama_cpp_keys(struct loader * l, struct rwkv6 * f) {
    const char *  size = loader_key(l, "wkv.head_size");
    const int64_t D = l->model->n_embd;
    f->K = f->P = loader_int(l, size, 1, 65536);
    loader_divisor(l, size, f->K, loader_key(l, "embedding_length"), D);
    f->H = f->HK = l->failed ? 0 : D / f->K;
    f->eps = 64e-5f;
    f->rescale_every = loader_int_or(l, loader_key(l, "rescale_every_n_layers"), 0, 4096, 0);
}

static bool load(struct loader * l) {
    struct rwkv6 * f = l->model->shared;

    if (l->llama_cpp) {
        load_llama_cpp_keys(l, f);
    } else {
        heads_load(l, &f->H, &f->K, &f->P);
        f->HK = f->H;
        f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    }
    return !l->failed;
}

static bool load_time_mix(
        struct loader * l, int32_t il, struct layer * layer, struct time_mix * w) {
    const struct rwkv6 * f = l->model->shared;
    const int64_t        D = l->model->n_embd;
    const int64_t        out = f->H * f->K;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    w->shift = loader_state(l, layer, D);

    w->lerp_x = loader_tensor_1d(l, il, "time_mix_lerp_x.weight", TENSOR_F32, D);
    w->lerp = loader_tensor_nd(l, il, "time_mix_lerp_fused.weight", TENSOR_F32, 4,
            (const int64_t[4]) { D, 1, 1, PARTS });
    w->w1 = loader_tensor_2d(l, il, "time_mix_w1.weight", TENSOR_REQUIRED, D, 0);
    if (!l->failed && w->w1->ne[1] % PARTS != 0) {
        return loader_fail(l,
                "tensor blk.%d.time_mix_w1.weight has %lld rows; expected a multiple of 5", il,
                (long long) w->w1->ne[1]);
    }
    w->w2 = loader_tensor_nd(l, il, "time_mix_w2.weight", TENSOR_REQUIRED, 3,
            (const int64_t[3]) { l->failed ? 0 : w->w1->ne[1] / PARTS, D, PARTS });
    low_rank_load(l, il, "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", NULL, out,
            TENSOR_REQUIRED, &w->decay);
    w->decay.bias = loader_tensor_1d(l, il, "time_mix_decay.weight", TENSOR_F32, out);
    w->receptance = loader_tensor_2d(l, il, "time_mix_receptance.weight", TENSOR_REQUIRED, D, out);
    w->key = loader_tensor_2d(l, il, "time_mix_key.weight", TENSOR_REQUIRED, D, f->HK * f->K);
    w->value = loader_tensor_2d(l, il, "time_mix_value.weight", TENSOR_REQUIRED, D, f->HK * f->P);
    w->gate = loader_tensor_2d(l, il, "time_mix_gate.weight", TENSOR_REQUIRED, D, f->H * f->P);
    w->output = loader_tensor_2d(l, il, "time_mix_output.weight", TENSOR_REQUIRED, f->H * f->P, D);
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct rwkv6 * f = l->model->shared;
    struct rwkv6_layer * w = layer->weights;
    struct time_mix *    mix = &w->time_mix;
    const int64_t        D = l->model->n_embd;
    const int64_t        F = layer->n_ff;

    if (!load_time_mix(l, il, layer, mix)) {
        return false;
    }
    mix->first = loader_tensor_2d(l, il, "time_mix_first.weight", TENSOR_F32, f->K, f->H);
    mix->ln = loader_tensor_1d(l, il, "time_mix_ln.weight", TENSOR_F32, f->H * f->P);
    mix->ln_b = loader_tensor_1d(l, il, "time_mix_ln.bias", TENSOR_F32, f->H * f->P);

    w->shift = loader_state(l, layer, D);
    w->halve = f->rescale_every > 0 && (il + 1) % f->rescale_every == 0;
    w->ln1 = loader_tensor_1d(l, il, "attn_norm.weight", TENSOR_F32, D);
    w->ln1_b = loader_tensor_1d(l, il, "attn_norm.bias", TENSOR_F32, D);
    w->ln2 = loader_tensor_1d(l, il, "attn_norm_2.weight", TENSOR_F32, D);
    w->ln2_b = loader_tensor_1d(l, il, "attn_norm_2.bias", TENSOR_F32, D);
    w->lerp_k = loader_tensor_1d(l, il, "channel_mix_lerp_k.weight", TENSOR_F32, D);
    w->lerp_r = loader_tensor_1d(l, il, "channel_mix_lerp_r.weight", TENSOR_F32, D);
    w->ffn_key = loader_tensor_2d(l, il, "channel_mix_key.weight", TENSOR_REQUIRED, D, F);
    w->ffn_value = loader_tensor_2d(l, il, "channel_mix_value.weight", TENSOR_REQUIRED, F, D);
    w->ffn_receptance =
            loader_tensor_2d(l, il, "channel_mix_receptance.weight", TENSOR_REQUIRED, D, D);
    return !l->failed;
}

// h_i = h + d ∘ (μ_i + m_i W2_i), each [D, T]
static void mix_parts(struct graph * g, const struct time_mix * w, struct ggml_tensor * h,
        struct ggml_tensor * hi[PARTS]) {
    struct ggml_context * c = g->ctx;
    const int64_t         D = h->ne[0];
    const int64_t         r = w->w1->ne[1] / PARTS;

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift, h), h); // [D, T]
    struct ggml_tensor * m = graph_linear(g, w->w1, NULL, lerp(g, h, d, w->lerp_x));
    m = ggml_tanh(c, m); // [5r, T]
    for (int i = 0; i < PARTS; ++i) {
        const size_t         at = (size_t) i;
        struct ggml_tensor * m_i = ggml_cont(c, columns(g, m, i * r, r)); // [r, T]
        struct ggml_tensor * w2_i =
                ggml_view_2d(c, w->w2, r, D, w->w2->nb[1], at * w->w2->nb[2]);        // [r, D]
        struct ggml_tensor * mu_i = ggml_view_1d(c, w->lerp, D, at * w->lerp->nb[3]); // [D]
        hi[i] = lerp(g, h, d, ggml_add(c, graph_linear(g, w2_i, NULL, m_i), mu_i));
    }
}

// y = (S + (u ∘ k) vᵀ)ᵀ r, normalized per head; r, k, decay [H·K, T], v [H·P, T] → [H·P, T]
static struct ggml_tensor * read_before_write(struct graph * g, const struct time_mix * w,
        struct ggml_tensor * r, struct ggml_tensor * k, struct ggml_tensor * v,
        struct ggml_tensor * decay) {
    const struct rwkv6 *  f = g->model->shared;
    struct ggml_context * c = g->ctx;

    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, r, f->K, f->H, 1),
        .b = graph_heads(g, k, f->K, f->H, 1),
        .x = graph_heads(g, v, f->P, f->H, 1),
        .gate = graph_heads(g, decay, f->K, f->H, 1),
        .bonus = w->first,
        .scale = 1.0f,
    };
    struct ggml_tensor * y = graph_signed_gate(g, args); // [P, H, T]

    y = graph_layer_norm(g, y, NULL, NULL, f->eps);
    y = ggml_reshape_2d(c, y, f->H * f->P, g->n_tokens); // [H·P, T]
    return ggml_add(c, ggml_mul(c, y, w->ln), w->ln_b);
}

// QRWKV-6: y = K^-1/2 Sᵀ r with (1 − w) ∘ k for k; r [H·K, T], k [HK·K, T], v [HK·P, T],
// decay [H·K, T] → [H·P, T]
static struct ggml_tensor * read_after_write(struct graph * g, struct ggml_tensor * r,
        struct ggml_tensor * k, struct ggml_tensor * v, struct ggml_tensor * decay) {
    const struct rwkv6 *  f = g->model->shared;
    struct ggml_context * c = g->ctx;
    const int64_t         T = g->n_tokens;

    struct ggml_tensor * share = ggml_scale_bias(c, decay, -1.0f, 1.0f); // 1 − w
    share = ggml_reshape_4d(c, share, f->K, f->H / f->HK, f->HK, T);
    k = ggml_mul(c, share, ggml_reshape_4d(c, k, f->K, 1, f->HK, T)); // [K, H/HK, HK, T]

    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, r, f->K, f->H, 1),
        .b = ggml_reshape_4d(c, k, f->K, f->H, 1, T),
        .x = graph_heads(g, v, f->P, f->HK, 1),
        .gate = graph_heads(g, decay, f->K, f->H, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    return ggml_reshape_2d(c, graph_signed_gate(g, args), f->H * f->P, T);
}

static struct ggml_tensor * time_mix(
        struct graph * g, const struct time_mix * w, struct ggml_tensor * h) {
    struct ggml_context * c = g->ctx;
    struct ggml_tensor *  hi[PARTS];
    mix_parts(g, w, h, hi);

    struct ggml_tensor * r =
            graph_linear(g, w->receptance, w->receptance_b, hi[PART_R]);           // [H·K, T]
    struct ggml_tensor * k = graph_linear(g, w->key, w->key_b, hi[PART_K]);        // [HK·K, T]
    struct ggml_tensor * v = graph_linear(g, w->value, w->value_b, hi[PART_V]);    // [HK·P, T]
    struct ggml_tensor * gate = graph_linear(g, w->gate, NULL, hi[PART_G]);        // [H·P, T]
    struct ggml_tensor * decay = graph_linear(g, w->decay.down, NULL, hi[PART_W]); // [r2, T]

    decay = graph_linear(g, w->decay.up, w->decay.bias, ggml_tanh(c, decay)); // [H·K, T]
    decay = ggml_exp(c, ggml_neg(c, ggml_exp(c, decay)));

    const bool           qwen = w->first == NULL;
    struct ggml_tensor * y = qwen ? read_after_write(g, r, k, v, decay)
                                  : read_before_write(g, w, r, k, v, decay); // [H·P, T]
    gate = qwen ? ggml_sigmoid(c, gate) : ggml_silu(c, gate);
    return graph_linear(g, w->output, NULL, ggml_mul(c, y, gate));
}

static struct ggml_tensor * channel_mix(
        struct graph * g, const struct rwkv6_layer * w, struct ggml_tensor * h) {
    struct ggml_context * c = g->ctx;

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift, h), h);                 // [D, T]
    struct ggml_tensor * k = graph_linear(g, w->ffn_key, NULL, lerp(g, h, d, w->lerp_k)); // [F, T]
    struct ggml_tensor * r =
            graph_linear(g, w->ffn_receptance, NULL, lerp(g, h, d, w->lerp_r)); // [D, T]
    struct ggml_tensor * v =
            graph_linear(g, w->ffn_value, NULL, ggml_sqr(c, ggml_relu(c, k))); // [D, T]
    return ggml_mul(c, ggml_sigmoid(c, r), v);
}

static struct ggml_tensor * build_layer(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct rwkv6_layer * w = layer->weights;
    const float                eps = g->model->norm_eps;
    x = ggml_add(
            g->ctx, x, time_mix(g, &w->time_mix, graph_layer_norm(g, x, w->ln1, w->ln1_b, eps)));
    x = ggml_add(g->ctx, x, channel_mix(g, w, graph_layer_norm(g, x, w->ln2, w->ln2_b, eps)));
    return w->halve ? ggml_scale(g->ctx, x, 0.5f) : x;
}

const struct family family_rwkv6 = {
    .name = "rwkv6",
    .llama_cpp = "rwkv6",
    .shared_size = sizeof(struct rwkv6),
    .layer_size = sizeof(struct rwkv6_layer),
    .load = load,
    .load_layer = load_layer,
    .build_layer = build_layer,
};

// ---- QRWKV-6 ------------------------------------------------------------------------------------

static bool load_qwen(struct loader * l) {
    struct rwkv6 * f = l->model->shared;
    load_llama_cpp_keys(l, f);
    const char *  kv = loader_key(l, "attention.head_count_kv");
    const int64_t HK = loader_int_or(l, kv, 0, 65536, 0); // 0: all heads
    f->HK = HK > 0 ? HK : f->H;
    return loader_divisor(l, kv, f->HK, "the number of heads", f->H);
}

static bool load_qwen_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct rwkv6 * f = l->model->shared;
    struct time_mix *    w = layer->weights;
    const int            bias = TENSOR_F32 | TENSOR_OPTIONAL;

    load_time_mix(l, il, layer, w);
    w->receptance_b = loader_tensor_1d(l, il, "time_mix_receptance.bias", bias, f->H * f->K);
    w->key_b = loader_tensor_1d(l, il, "time_mix_key.bias", bias, f->HK * f->K);
    w->value_b = loader_tensor_1d(l, il, "time_mix_value.bias", bias, f->HK * f->P);
    return !l->failed;
}

static struct ggml_tensor * mix_qwen(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    return time_mix(g, layer->weights, x);
}

const struct family family_rwkv6qwen2 = {
    .name = "rwkv6qwen2",
    .llama_cpp = "rwkv6qwen2",
    .shared_size = sizeof(struct rwkv6),
    .layer_size = sizeof(struct time_mix),
    .load = load_qwen,
    .load_layer = load_qwen_layer,
    .mix = mix_qwen,
};
