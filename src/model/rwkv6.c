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

#include "model/families.h"

enum { PART_W, PART_K, PART_V, PART_R, PART_G, PARTS }; // h_i

struct rwkv6 {
    int64_t H, K, P;
    float   eps;           // of the group norm
    int64_t rescale_every; // x is halved after every such number of layers; 0: never
};

struct rwkv6_layer {
    struct ggml_tensor * ln1, *ln1_b, *ln2, *ln2_b; // [D]
    struct ggml_tensor * lerp_x;                    // [D]           μ_x
    struct ggml_tensor * lerp;                      // [D, 1, 1, 5]  μ_i
    struct ggml_tensor * w1, *w2;                   // [D, 5r], [r, D, 5]
    struct low_rank      decay;                     // r = r2, out = H·K; tanh between
    struct ggml_tensor * first;                     // [K, H]        u
    struct ggml_tensor * receptance, *key;          // [D, H·K]
    struct ggml_tensor * value, *gate;              // [D, H·P]
    struct ggml_tensor * ln, *ln_b;                 // [H·P]
    struct ggml_tensor * output;                    // [H·P, D]
    struct ggml_tensor * lerp_k, *lerp_r;           // [D]
    struct ggml_tensor * ffn_key, *ffn_value;       // [D, F], [F, D]
    struct ggml_tensor * ffn_receptance;            // [D, D]
    int32_t              shift1, shift2;
    bool                 halve; // x, after this layer
};

static bool load(struct loader * l) {
    struct rwkv6 * f = l->model->shared;

    if (!l->llama_cpp) {
        f->H = loader_int(l, "lrnn.head_count", 1, 65536);
        f->K = loader_int(l, "lrnn.key_length", 1, 65536);
        f->P = loader_int(l, "lrnn.value_length", 1, 65536);
        f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    } else {
        f->K = f->P = loader_int(l, "rwkv6.wkv.head_size", 1, 65536);
        f->H = l->failed ? 0 : l->model->n_embd / f->K;
        f->eps = 64e-5f;
        f->rescale_every = loader_int_or(l, "rwkv6.rescale_every_n_layers", 0, 4096, 0);
        loader_divisor(l, "rwkv6.wkv.head_size", f->K, "rwkv6.embedding_length", l->model->n_embd);
    }
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct rwkv6 * f = l->model->shared;
    struct rwkv6_layer * w = layer->weights;
    const int64_t        D = l->model->n_embd;
    const int64_t        F = layer->n_ff;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    w->shift1 = loader_state(l, layer, D);
    w->shift2 = loader_state(l, layer, D);
    w->halve = f->rescale_every > 0 && (il + 1) % f->rescale_every == 0;

    w->ln1 = loader_tensor_1d(l, il, "attn_norm.weight", TENSOR_F32, D);
    w->ln1_b = loader_tensor_1d(l, il, "attn_norm.bias", TENSOR_F32, D);
    w->ln2 = loader_tensor_1d(l, il, "attn_norm_2.weight", TENSOR_F32, D);
    w->ln2_b = loader_tensor_1d(l, il, "attn_norm_2.bias", TENSOR_F32, D);
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
    low_rank_load(l, il, "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", NULL, f->H * f->K,
            TENSOR_REQUIRED, &w->decay);
    w->decay.bias = loader_tensor_1d(l, il, "time_mix_decay.weight", TENSOR_F32, f->H * f->K);
    w->first = loader_tensor_2d(l, il, "time_mix_first.weight", TENSOR_F32, f->K, f->H);
    w->receptance =
            loader_tensor_2d(l, il, "time_mix_receptance.weight", TENSOR_REQUIRED, D, f->H * f->K);
    w->key = loader_tensor_2d(l, il, "time_mix_key.weight", TENSOR_REQUIRED, D, f->H * f->K);
    w->value = loader_tensor_2d(l, il, "time_mix_value.weight", TENSOR_REQUIRED, D, f->H * f->P);
    w->gate = loader_tensor_2d(l, il, "time_mix_gate.weight", TENSOR_REQUIRED, D, f->H * f->P);
    w->ln = loader_tensor_1d(l, il, "time_mix_ln.weight", TENSOR_F32, f->H * f->P);
    w->ln_b = loader_tensor_1d(l, il, "time_mix_ln.bias", TENSOR_F32, f->H * f->P);
    w->output = loader_tensor_2d(l, il, "time_mix_output.weight", TENSOR_REQUIRED, f->H * f->P, D);
    w->lerp_k = loader_tensor_1d(l, il, "channel_mix_lerp_k.weight", TENSOR_F32, D);
    w->lerp_r = loader_tensor_1d(l, il, "channel_mix_lerp_r.weight", TENSOR_F32, D);
    w->ffn_key = loader_tensor_2d(l, il, "channel_mix_key.weight", TENSOR_REQUIRED, D, F);
    w->ffn_value = loader_tensor_2d(l, il, "channel_mix_value.weight", TENSOR_REQUIRED, F, D);
    w->ffn_receptance =
            loader_tensor_2d(l, il, "channel_mix_receptance.weight", TENSOR_REQUIRED, D, D);
    return !l->failed;
}

// h_i = h + d ∘ (μ_i + m_i W2_i), each [D, T]
static void mix_parts(struct graph * g, const struct rwkv6_layer * w, struct ggml_tensor * h,
        struct ggml_tensor * hi[PARTS]) {
    struct ggml_context * c = g->ctx;
    const int64_t         D = h->ne[0];
    const int64_t         r = w->w1->ne[1] / PARTS;

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift1, h), h); // [D, T]
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

static struct ggml_tensor * time_mix(
        struct graph * g, const struct rwkv6_layer * w, struct ggml_tensor * h) {
    const struct rwkv6 *  f = g->model->shared;
    struct ggml_context * c = g->ctx;
    struct ggml_tensor *  hi[PARTS];
    mix_parts(g, w, h, hi);

    struct ggml_tensor * r = graph_linear(g, w->receptance, NULL, hi[PART_R]);     // [H·K, T]
    struct ggml_tensor * k = graph_linear(g, w->key, NULL, hi[PART_K]);            // [H·K, T]
    struct ggml_tensor * v = graph_linear(g, w->value, NULL, hi[PART_V]);          // [H·P, T]
    struct ggml_tensor * gate = graph_linear(g, w->gate, NULL, hi[PART_G]);        // [H·P, T]
    struct ggml_tensor * decay = graph_linear(g, w->decay.down, NULL, hi[PART_W]); // [r2, T]

    decay = graph_linear(g, w->decay.up, w->decay.bias, ggml_tanh(c, decay)); // [H·K, T]
    decay = ggml_exp(c, ggml_neg(c, ggml_exp(c, decay)));

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
    y = ggml_add(c, ggml_mul(c, y, w->ln), w->ln_b);
    return graph_linear(g, w->output, NULL, ggml_mul(c, y, ggml_silu(c, gate)));
}

static struct ggml_tensor * channel_mix(
        struct graph * g, const struct rwkv6_layer * w, struct ggml_tensor * h) {
    struct ggml_context * c = g->ctx;

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift2, h), h);                // [D, T]
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
    x = ggml_add(g->ctx, x, time_mix(g, w, graph_layer_norm(g, x, w->ln1, w->ln1_b, eps)));
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
