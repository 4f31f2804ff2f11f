// RWKV-7 "Goose": diagonal plus rank one. It has its own eigenvalue range: negative down to about
// −0.46, never −1.
//
//     time mix:     h = LN(x),  d = h_{t−1} − h
//                   h_i = h + d ∘ μ_i                                   i = r, w, k, v, a, g
//                   r, k, v = W h_r, W h_k, W h_v
//                   w = exp(−0.6065 σ(w0 + tanh(h_w W1) W2))
//                   a = σ(a0 + h_a A1 A2)
//                   g = σ(h_g G1) G2
//                   v += (v_first − v) ∘ σ(v0 + h_v V1 V2)              not in the first layer
//                   κ = k ∘ k_k / ‖·‖
//                   k = k ∘ (1 + (a − 1) ∘ k_a)
//                   S ← w ∘ S − (κ ∘ a)(Sᵀ κ)ᵀ + k vᵀ                   Sᵀ κ before the gate
//                   y = Sᵀ r
//                   x += W_o ((GroupNorm(y) + (Σ r k r_k) v) ∘ g)
//     channel mix:  h = LN(x),  d = h_{t−1} − h
//                   x += W_v relu(W_k (h + d ∘ μ_k))²
//
// ARWKV is a Qwen2.5 whose attention became this time mix, with RMSNorms and an MLP around it. It
// may lack the GroupNorm and g.

#include "model/families.h"

#include <stdio.h>

enum { PART_R, PART_W, PART_K, PART_V, PART_A, PART_G, PARTS }; // h_i

struct rwkv7 {
    int64_t H, K, P;
    float   eps;         // of the group norm
    float   key_epsilon; // under the root of ‖·‖; 0: ‖·‖ is clamped from below instead
};

struct time_mix {
    struct ggml_tensor * lerp; // [D, 1, 1, 6]  μ_i; without g [D, 1, 1, 5]
    struct low_rank      w, a; // out = H·K
    struct low_rank     v, g; // out = H·P; v not in the first layer, g without a bias, or without g
    struct ggml_tensor *k_k, *k_a, *r_k;  // [H·K]
    struct ggml_tensor *receptance, *key; // [D, H·K]
    struct ggml_tensor * value;           // [D, H·P]
    struct ggml_tensor * ln, *ln_b;       // [H·P] or NULL
    struct ggml_tensor * output;          // [H·P, D]
    int32_t              shift;
    bool                 is_first;
};

struct rwkv7_layer {
    struct time_mix      time_mix;
    struct ggml_tensor * ln1, *ln1_b, *ln2, *ln2_b; // [D]
    struct ggml_tensor * lerp_k;                    // [D]
    struct ggml_tensor * ffn_key, *ffn_value;       // [D, F], [F, D]
    int32_t              shift;
};

// A file of llama.cpp
static bool load_llama_cpp_keys(struct loader * l) {
    struct rwkv7 * f = l->model->shared;
    const char *   size = loader_key(l, "wkv.head_size");
    const int64_t  D = l->model->n_embd;
    f->K = f->P = loader_int(l, size, 1, 65536);
    loader_divisor(l, size, f->K, loader_key(l, "embedding_length"), D);
    f->H = l->failed ? 0 : D / f->K;
    f->eps = 64e-5f;
    return !l->failed;
}

static bool load(struct loader * l) {
    struct rwkv7 * f = l->model->shared;

    if (l->llama_cpp) {
        return load_llama_cpp_keys(l);
    }
    heads_load(l, &f->H, &f->K, &f->P);
    f->eps = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
    f->key_epsilon = loader_float(l, "lrnn.key_norm_epsilon", 0.0f, 1.0f);
    return !l->failed;
}

// A map of h_i, with an activation between; `letter` is that of its tensors. The gate has no bias.
static void load_map(
        struct loader * l, int32_t il, char letter, int64_t out, int need, struct low_rank * map) {
    char name[3][32];
    for (int i = 0; i < 3; ++i) {
        snprintf(name[i], sizeof(name[i]), "time_mix_%c%d.weight", letter, i);
    }
    low_rank_load(l, il, name[1], name[2], letter != 'g' ? name[0] : NULL, out, need, map);
}

// norm: TENSOR_REQUIRED or TENSOR_OPTIONAL, of the GroupNorm
static bool load_time_mix(struct loader * l, int32_t il, struct layer * layer, bool gated, int norm,
        struct time_mix * w) {
    const struct rwkv7 * f = l->model->shared;
    const int64_t        D = l->model->n_embd;
    const int64_t        HK = f->H * f->K, HP = f->H * f->P;

    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    w->shift = loader_state(l, layer, D);
    w->is_first = il == 0;

    w->lerp = loader_tensor_nd(l, il, "time_mix_lerp_fused.weight", TENSOR_F32, 4,
            (const int64_t[4]) { D, 1, 1, gated ? PARTS : PARTS - 1 });
    load_map(l, il, 'w', HK, TENSOR_REQUIRED, &w->w);
    load_map(l, il, 'a', HK, TENSOR_REQUIRED, &w->a);
    if (gated) {
        load_map(l, il, 'g', HP, TENSOR_REQUIRED, &w->g);
    }
    // unused in the first layer; files of llama.cpp have it nevertheless
    load_map(l, il, 'v', HP, il == 0 ? TENSOR_OPTIONAL : TENSOR_REQUIRED, &w->v);
    w->k_k = loader_tensor_1d(l, il, "time_mix_k_k.weight", TENSOR_F32, HK);
    w->k_a = loader_tensor_1d(l, il, "time_mix_k_a.weight", TENSOR_F32, HK);
    w->r_k = loader_tensor_1d(l, il, "time_mix_r_k.weight", TENSOR_F32, HK);
    w->receptance = loader_tensor_2d(l, il, "time_mix_receptance.weight", TENSOR_REQUIRED, D, HK);
    w->key = loader_tensor_2d(l, il, "time_mix_key.weight", TENSOR_REQUIRED, D, HK);
    w->value = loader_tensor_2d(l, il, "time_mix_value.weight", TENSOR_REQUIRED, D, HP);
    w->ln = loader_tensor_1d(l, il, "time_mix_ln.weight", TENSOR_F32 | norm, HP);
    w->ln_b = loader_tensor_1d(
            l, il, "time_mix_ln.bias", TENSOR_F32 | (w->ln != NULL ? TENSOR_REQUIRED : norm), HP);
    w->output = loader_tensor_2d(l, il, "time_mix_output.weight", TENSOR_REQUIRED, HP, D);
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    struct rwkv7_layer * w = layer->weights;
    const int64_t        D = l->model->n_embd;
    const int64_t        F = layer->n_ff;

    if (!load_time_mix(l, il, layer, true, TENSOR_REQUIRED, &w->time_mix)) {
        return false;
    }
    w->shift = loader_state(l, layer, D);
    w->ln1 = loader_tensor_1d(l, il, "attn_norm.weight", TENSOR_F32, D);
    w->ln1_b = loader_tensor_1d(l, il, "attn_norm.bias", TENSOR_F32, D);
    w->ln2 = loader_tensor_1d(l, il, "attn_norm_2.weight", TENSOR_F32, D);
    w->ln2_b = loader_tensor_1d(l, il, "attn_norm_2.bias", TENSOR_F32, D);
    w->lerp_k = loader_tensor_1d(l, il, "channel_mix_lerp_k.weight", TENSOR_F32, D);
    w->ffn_key = loader_tensor_2d(l, il, "channel_mix_key.weight", TENSOR_REQUIRED, D, F);
    w->ffn_value = loader_tensor_2d(l, il, "channel_mix_value.weight", TENSOR_REQUIRED, F, D);
    return !l->failed;
}

// h_i = h + d ∘ μ_i, each [D, T]. For a single token this is one product and one sum for all six: a
// node costs more than its arithmetic there.
static void mix_parts(struct graph * g, const struct time_mix * w, struct ggml_tensor * h,
        struct ggml_tensor * hi[PARTS]) {
    struct ggml_context * c = g->ctx;
    struct ggml_tensor *  mu = w->lerp;
    const int64_t         D = h->ne[0];
    const int             n = (int) mu->ne[3];

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift, h), h); // [D, T]
    struct ggml_tensor * all = NULL;                                      // [D, n]
    if (g->n_tokens == 1) {
        all = ggml_add(c, ggml_mul(c, ggml_reshape_2d(c, mu, D, n), d), h);
    }
    for (int i = 0; i < n; ++i) {
        const size_t at = (size_t) i;
        hi[i] = all != NULL ? ggml_view_2d(c, all, D, 1, all->nb[1], at * all->nb[1])
                            : lerp(g, h, d, ggml_view_1d(c, mu, D, at * mu->nb[3]));
    }
}

// κ = k ∘ k_k / ‖·‖, [H·K, T] → [K, H, T]
static struct ggml_tensor * normalize_key(
        struct graph * g, const struct time_mix * w, struct ggml_tensor * k) {
    const struct rwkv7 * f = g->model->shared;
    k = ggml_reshape_3d(g->ctx, ggml_mul(g->ctx, k, w->k_k), f->K, f->H, g->n_tokens);
    return f->key_epsilon > 0.0f ? graph_l2_norm(g, k, f->key_epsilon)
                                 : ggml_l2_norm(g->ctx, k, 1e-12f);
}

static struct ggml_tensor * time_mix(
        struct graph * g, const struct time_mix * w, struct ggml_tensor * h) {
    const struct rwkv7 *  f = g->model->shared;
    struct ggml_context * c = g->ctx;
    const int64_t         T = g->n_tokens;
    struct ggml_tensor *  hi[PARTS];
    mix_parts(g, w, h, hi);

    struct ggml_tensor * r = graph_linear(g, w->receptance, NULL, hi[PART_R]); // [H·K, T]
    struct ggml_tensor * k = graph_linear(g, w->key, NULL, hi[PART_K]);        // [H·K, T]
    struct ggml_tensor * v = graph_linear(g, w->value, NULL, hi[PART_V]);      // [H·P, T]

    // low-rank maps
    struct ggml_tensor * decay = graph_linear(g, w->w.down, NULL, hi[PART_W]); // [r, T]
    struct ggml_tensor * a = graph_linear(g, w->a.down, NULL, hi[PART_A]);
    struct ggml_tensor * share = w->is_first ? a : graph_linear(g, w->v.down, NULL, hi[PART_V]);
    const bool           gated = w->g.down != NULL;
    struct ggml_tensor * gate = gated ? graph_linear(g, w->g.down, NULL, hi[PART_G]) : decay;
    graph_group(g, 7, (struct ggml_tensor *[]) { r, k, v, decay, gate, a, share });

    gate = gated ? ggml_sigmoid(c, gate) : NULL;
    decay = ggml_tanh(c, decay);
    graph_group(g, 2, (struct ggml_tensor *[]) { decay, gated ? gate : decay });

    decay = graph_linear(g, w->w.up, NULL, decay);                   // [H·K, T]
    gate = gated ? graph_linear(g, w->g.up, NULL, gate) : decay;     // [H·P, T]
    a = graph_linear(g, w->a.up, NULL, a);                           // [H·K, T]
    share = w->is_first ? a : graph_linear(g, w->v.up, NULL, share); // [H·P, T]
    graph_group(g, 4, (struct ggml_tensor *[]) { decay, gate, a, share });

    decay = ggml_sigmoid(c, ggml_add(c, decay, w->w.bias));
    decay = ggml_exp(c, ggml_scale(c, decay, -0.6065306597126334f));
    a = ggml_sigmoid(c, ggml_add(c, a, w->a.bias));
    if (w->is_first) {
        g->carry = v; // v_first
    } else {
        share = ggml_sigmoid(c, ggml_add(c, share, w->v.bias));
        v = ggml_add(c, v, ggml_mul(c, ggml_sub(c, g->carry, v), share));
    }
    struct ggml_tensor * kappa = normalize_key(g, w, k); // [K, H, T]
    struct ggml_tensor * kappa_a =
            ggml_mul(c, kappa, ggml_reshape_3d(c, a, f->K, f->H, T)); // [K, H, T]

    k = ggml_add(
            c, k, ggml_mul(c, ggml_sub(c, ggml_mul(c, k, a), k), w->k_a)); // k (1 + (a − 1) k_a)

    const struct ggml_householder_scan_args args = {
        .q = graph_heads(g, r, f->K, f->H, 1),
        .k = graph_heads(g, k, f->K, f->H, 1),
        .v = graph_heads(g, v, f->P, f->H, 1),
        .gate = graph_heads(g, decay, f->K, f->H, 1),
        .r = ggml_reshape_4d(c, kappa, f->K, f->H, 1, T),
        .w = ggml_reshape_4d(c, kappa_a, f->K, f->H, 1, T),
        .scale = 1.0f,
    };
    struct ggml_tensor * y = graph_householder(g, args); // [P, H, T]

    if (w->ln == NULL) {
        y = ggml_reshape_2d(c, y, f->H * f->P, T); // [H·P, T]
    } else {
        y = ggml_reshape_2d(c, graph_layer_norm(g, y, NULL, NULL, f->eps), f->H * f->P, T);
        y = ggml_add(c, ggml_mul(c, y, w->ln), w->ln_b);
    }

    struct ggml_tensor * rk = ggml_mul(c, ggml_mul(c, r, k), w->r_k);                 // [H·K, T]
    rk = ggml_sum_rows(c, ggml_reshape_3d(c, rk, f->K, f->H, T));                     // [1, H, T]
    struct ggml_tensor * rkv = ggml_mul(c, ggml_reshape_3d(c, v, f->P, f->H, T), rk); // [P, H, T]
    y = ggml_add(c, y, ggml_reshape_2d(c, rkv, f->H * f->P, T));
    return graph_linear(g, w->output, NULL, gated ? ggml_mul(c, y, gate) : y);
}

static struct ggml_tensor * channel_mix(
        struct graph * g, const struct rwkv7_layer * w, struct ggml_tensor * h) {
    struct ggml_context * c = g->ctx;

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift, h), h);                 // [D, T]
    struct ggml_tensor * k = graph_linear(g, w->ffn_key, NULL, lerp(g, h, d, w->lerp_k)); // [F, T]
    return graph_linear(g, w->ffn_value, NULL, ggml_sqr(c, ggml_relu(c, k)));
}

static struct ggml_tensor * build_layer(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct rwkv7_layer * w = layer->weights;
    const float                eps = g->model->norm_eps;
    x = ggml_add(
            g->ctx, x, time_mix(g, &w->time_mix, graph_layer_norm(g, x, w->ln1, w->ln1_b, eps)));
    return ggml_add(g->ctx, x, channel_mix(g, w, graph_layer_norm(g, x, w->ln2, w->ln2_b, eps)));
}

const struct family family_rwkv7 = {
    .name = "rwkv7",
    .llama_cpp = "rwkv7",
    .own_range = true,
    .shared_size = sizeof(struct rwkv7),
    .layer_size = sizeof(struct rwkv7_layer),
    .load = load,
    .load_layer = load_layer,
    .build_layer = build_layer,
};

// ---- ARWKV --------------------------------------------------------------------------------------

static bool load_arwkv_layer(struct loader * l, int32_t il, struct layer * layer) {
    char gate[64];
    snprintf(gate, sizeof(gate), "blk.%d.time_mix_g1.weight", il);
    const bool gated = model_file_find_tensor(l->file, gate) != NULL;
    return load_time_mix(l, il, layer, gated, TENSOR_OPTIONAL, layer->weights);
}

static struct ggml_tensor * mix_arwkv(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    return time_mix(g, layer->weights, x);
}

const struct family family_arwkv7 = {
    .name = "arwkv7",
    .llama_cpp = "arwkv7",
    .own_range = true,
    .shared_size = sizeof(struct rwkv7),
    .layer_size = sizeof(struct time_mix),
    .load = load_llama_cpp_keys,
    .load_layer = load_arwkv_layer,
    .mix = mix_arwkv,
};
