// RWKV-7 "Goose": diagonal plus rank one. Its eigenvalues are its own: negative down to about
// −0.46, never −1.
//
//     time mix:     h = LN(x),  d = h_{t−1} − h,  h_i = h + d ∘ μ_i                                    i = r, w, k, v, a, g
//                   w = exp(−0.6065 σ(w0 + tanh(h_w W1) W2)),  a = σ(a0 + h_a A1 A2),  g = σ(h_g G1) G2
//                   v += (v_first − v) ∘ σ(v0 + h_v V1 V2)                                             but in the first layer
//                   κ = k ∘ k_k / ‖·‖,   k = k ∘ (1 + (a − 1) ∘ k_a)
//                   S ← w ∘ S − (κ ∘ a)(Sᵀ κ)ᵀ + k vᵀ;   y = Sᵀ r                                       Sᵀκ before the gate
//                   x += W_o ( (GroupNorm(y) + (Σ r k r_k) v) ∘ g )
//     channel mix:  h = LN(x),  d = h_{t−1} − h;   x += W_v relu(W_k (h + d ∘ μ_k))²

#include "models/models.h"

#include <stdio.h>
#include <string.h>

enum { PARTS = 6 }; // of the lerp: r, w, k, v, a, g

struct rwkv7 {
    int64_t H, K, P;
    float   eps;         // of the group norm
    float   key_epsilon; // inside the root; 0: the length is clamped from below instead
};

struct rwkv7_layer {
    struct ggml_tensor * ln1, *ln1_b, *ln2, *ln2_b; // [D]
    struct ggml_tensor * lerp;                      // [D, 1, 1, 6]
    struct ggml_tensor * w0, *w1, *w2;              // [H·K], [D, r], [r, H·K]
    struct ggml_tensor * a0, *a1, *a2;
    struct ggml_tensor * v0, *v1, *v2; // [H·P] …, NULL in the first layer
    struct ggml_tensor * g1, *g2;
    struct ggml_tensor * k_k, *k_a, *r_k;  // [H·K]
    struct ggml_tensor * receptance, *key; // [D, H·K]
    struct ggml_tensor * value;            // [D, H·P]
    struct ggml_tensor * ln, *ln_b;        // [H·P]
    struct ggml_tensor * output;           // [H·P, D]
    struct ggml_tensor * lerp_k;           // [D]
    struct ggml_tensor * ffn_key, *ffn_value;
    int32_t              shift1, shift2;
    bool                 is_first;
};

static bool load(struct loader * l) {
    struct rwkv7 * f = l->model->shared = loader_alloc(l, sizeof(*f));
    if (f == NULL) {
        return false;
    }
    if (!l->llama_cpp) {
        f->H           = loader_int(l, "lrnn.head_count", 1, 65536);
        f->K           = loader_int(l, "lrnn.key_length", 1, 65536);
        f->P           = loader_int(l, "lrnn.value_length", 1, 65536);
        f->eps         = loader_float(l, "lrnn.output_norm_epsilon", 1e-12f, 1.0f);
        f->key_epsilon = loader_float(l, "lrnn.key_norm_epsilon", 0.0f, 1.0f);
    } else {
        f->K = f->P = loader_int(l, "rwkv7.wkv.head_size", 1, 65536);
        f->H        = l->failed ? 0 : l->model->n_embd / f->K;
        f->eps      = 64e-5f;
        loader_divisor(l, "rwkv7.wkv.head_size", f->K, "rwkv7.embedding_length", l->model->n_embd);
    }
    return !l->failed;
}

// A low-rank map [D, r], [r, out] with its offset [out].
static void load_lora(struct loader * l, int32_t il, const char * letter, int64_t D, int64_t out,
        bool optional, struct ggml_tensor ** zero, struct ggml_tensor ** one,
        struct ggml_tensor ** two) {
    char      name[64];
    const int need = optional ? TENSOR_OPTIONAL : TENSOR_REQUIRED;
    if (zero != NULL) {
        snprintf(name, sizeof(name), "time_mix_%s0.weight", letter);
        *zero = loader_tensor_1d(l, il, name, TENSOR_F32 | need, out);
    }
    snprintf(name, sizeof(name), "time_mix_%s1.weight", letter);
    *one = loader_tensor_2d(l, il, name, need, D, 0);
    snprintf(name, sizeof(name), "time_mix_%s2.weight", letter);
    *two = loader_tensor_2d(l, il, name, need, *one != NULL ? (*one)->ne[1] : 0, out);
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct rwkv7 * f = l->model->shared;
    struct rwkv7_layer * w = layer->weights = loader_alloc(l, sizeof(*w));
    const int64_t        D                  = l->model->n_embd;
    const int64_t        F                  = l->model->n_ff;
    if (w == NULL) {
        return false;
    }
    loader_recurrence(l, layer, f->H, f->K, f->P, 0);
    w->shift1   = loader_state(l, layer, D);
    w->shift2   = loader_state(l, layer, D);
    w->is_first = il == 0;

    w->ln1   = loader_tensor_1d(l, il, "attn_norm.weight", TENSOR_F32, D);
    w->ln1_b = loader_tensor_1d(l, il, "attn_norm.bias", TENSOR_F32, D);
    w->ln2   = loader_tensor_1d(l, il, "attn_norm_2.weight", TENSOR_F32, D);
    w->ln2_b = loader_tensor_1d(l, il, "attn_norm_2.bias", TENSOR_F32, D);
    w->lerp  = loader_tensor_nd(l, il, "time_mix_lerp_fused.weight", TENSOR_F32, 4,
             (const int64_t[4]) { D, 1, 1, PARTS });
    load_lora(l, il, "w", D, f->H * f->K, false, &w->w0, &w->w1, &w->w2);
    load_lora(l, il, "a", D, f->H * f->K, false, &w->a0, &w->a1, &w->a2);
    load_lora(l, il, "v", D, f->H * f->P, il == 0, &w->v0, &w->v1,
            &w->v2); // llama.cpp's files have dummies in the first layer
    load_lora(l, il, "g", D, f->H * f->P, false, NULL, &w->g1, &w->g2);
    w->k_k = loader_tensor_1d(l, il, "time_mix_k_k.weight", TENSOR_F32, f->H * f->K);
    w->k_a = loader_tensor_1d(l, il, "time_mix_k_a.weight", TENSOR_F32, f->H * f->K);
    w->r_k = loader_tensor_1d(l, il, "time_mix_r_k.weight", TENSOR_F32, f->H * f->K);
    w->receptance =
            loader_tensor_2d(l, il, "time_mix_receptance.weight", TENSOR_REQUIRED, D, f->H * f->K);
    w->key     = loader_tensor_2d(l, il, "time_mix_key.weight", TENSOR_REQUIRED, D, f->H * f->K);
    w->value   = loader_tensor_2d(l, il, "time_mix_value.weight", TENSOR_REQUIRED, D, f->H * f->P);
    w->ln      = loader_tensor_1d(l, il, "time_mix_ln.weight", TENSOR_F32, f->H * f->P);
    w->ln_b    = loader_tensor_1d(l, il, "time_mix_ln.bias", TENSOR_F32, f->H * f->P);
    w->output  = loader_tensor_2d(l, il, "time_mix_output.weight", TENSOR_REQUIRED, f->H * f->P, D);
    w->lerp_k  = loader_tensor_1d(l, il, "channel_mix_lerp_k.weight", TENSOR_F32, D);
    w->ffn_key = loader_tensor_2d(l, il, "channel_mix_key.weight", TENSOR_REQUIRED, D, F);
    w->ffn_value = loader_tensor_2d(l, il, "channel_mix_value.weight", TENSOR_REQUIRED, F, D);
    return !l->failed;
}

static struct ggml_tensor * low_rank(struct graph * g, struct ggml_tensor * one,
        struct ggml_tensor * two, struct ggml_tensor * x) {
    return graph_linear(g, two, NULL, graph_linear(g, one, NULL, x));
}

// h_i = h + d ∘ μ_i. For a single token all six are one product and one sum: there a node costs
// more than what it computes.
static void lerp(struct graph * g, struct ggml_tensor * mu, struct ggml_tensor * d,
        struct ggml_tensor * h, struct ggml_tensor * hi[PARTS]) {
    struct ggml_context * c   = g->ctx;
    const int64_t         D   = h->ne[0];
    struct ggml_tensor *  all = NULL; // [D, 6]
    if (g->n_tokens == 1) {
        all = ggml_add(c, ggml_mul(c, ggml_reshape_2d(c, mu, D, PARTS), d), h);
    }
    for (int i = 0; i < PARTS; ++i) {
        hi[i] = all != NULL
                        ? ggml_view_2d(c, all, D, 1, all->nb[1], (size_t) i * all->nb[1])
                        : ggml_add(c,
                                  ggml_mul(c, d, ggml_view_1d(c, mu, D, (size_t) i * mu->nb[3])),
                                  h); // [D, T]
    }
}

static struct ggml_tensor * time_mix(
        struct graph * g, const struct rwkv7_layer * w, struct ggml_tensor * h) {
    const struct rwkv7 *  f = g->model->shared;
    struct ggml_context * c = g->ctx;
    const int64_t         T = g->n_tokens;

    struct ggml_tensor * d = ggml_sub(c, graph_shift(g, w->shift1, h), h); // [D, T]
    struct ggml_tensor * hi[PARTS];
    lerp(g, w->lerp, d, h, hi);
    struct ggml_tensor * r = graph_linear(g, w->receptance, NULL, hi[0]); // [H·K, T]
    struct ggml_tensor * k = graph_linear(g, w->key, NULL, hi[2]);        // [H·K, T]
    struct ggml_tensor * v = graph_linear(g, w->value, NULL, hi[3]);      // [H·P, T]

    struct ggml_tensor * decay =
            graph_linear(g, w->w2, NULL, ggml_tanh(c, graph_linear(g, w->w1, NULL, hi[1])));
    decay = ggml_exp(c, ggml_scale(c, ggml_sigmoid(c, ggml_add(c, decay, w->w0)),
                                -0.6065306597126334f)); // [H·K, T]
    struct ggml_tensor * a =
            ggml_sigmoid(c, ggml_add(c, low_rank(g, w->a1, w->a2, hi[4]), w->a0)); // [H·K, T]
    struct ggml_tensor * gate = graph_linear(
            g, w->g2, NULL, ggml_sigmoid(c, graph_linear(g, w->g1, NULL, hi[5]))); // [H·P, T]
    if (w->is_first) {
        g->carry = v;
    } else {
        struct ggml_tensor * mix =
                ggml_sigmoid(c, ggml_add(c, low_rank(g, w->v1, w->v2, hi[3]), w->v0));
        v = ggml_add(c, v, ggml_mul(c, ggml_sub(c, g->carry, v), mix));
    }
    struct ggml_tensor * kk =
            ggml_reshape_3d(c, ggml_mul(c, k, w->k_k), f->K, f->H, T); // [K, H, T]
    kk = f->key_epsilon > 0.0f ? graph_l2_norm(g, kk, f->key_epsilon) : ggml_l2_norm(c, kk, 1e-12f);
    k  = ggml_add(
            c, k, ggml_mul(c, ggml_sub(c, ggml_mul(c, k, a), k), w->k_a)); // k (1 + (a − 1) k_a)

    struct ggml_tensor * kka = ggml_mul(c, kk, ggml_reshape_3d(c, a, f->K, f->H, T));
    const struct ggml_householder_scan_args args = {
        .q     = graph_heads(g, r, f->K, f->H, 1),
        .k     = graph_heads(g, k, f->K, f->H, 1),
        .v     = graph_heads(g, v, f->P, f->H, 1),
        .gate  = graph_heads(g, decay, f->K, f->H, 1),
        .r     = ggml_reshape_4d(c, kk, f->K, f->H, 1, T),
        .w     = ggml_reshape_4d(c, kka, f->K, f->H, 1, T),
        .scale = 1.0f,
    };
    struct ggml_tensor * y = graph_householder(g, args); // [P, H, T]
    y = ggml_reshape_2d(c, graph_layer_norm(g, y, NULL, NULL, f->eps), f->H * f->P, T);
    y = ggml_add(c, ggml_mul(c, y, w->ln), w->ln_b);

    struct ggml_tensor * rk =
            ggml_reshape_3d(c, ggml_mul(c, ggml_mul(c, r, k), w->r_k), f->K, f->H, T);
    struct ggml_tensor * rv =
            ggml_mul(c, ggml_reshape_3d(c, v, f->P, f->H, T), ggml_sum_rows(c, rk)); // [P, H, T]
    y = ggml_add(c, y, ggml_reshape_2d(c, rv, f->H * f->P, T));
    return graph_linear(g, w->output, NULL, ggml_mul(c, y, gate));
}

static struct ggml_tensor * channel_mix(
        struct graph * g, const struct rwkv7_layer * w, struct ggml_tensor * h) {
    struct ggml_context * c = g->ctx;
    struct ggml_tensor *  d = ggml_sub(c, graph_shift(g, w->shift2, h), h); // [D, T]
    struct ggml_tensor *  k =
            graph_linear(g, w->ffn_key, NULL, ggml_add(c, ggml_mul(c, d, w->lerp_k), h)); // [F, T]
    return graph_linear(g, w->ffn_value, NULL, ggml_sqr(c, ggml_relu(c, k)));
}

static struct ggml_tensor * build_layer(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct rwkv7_layer * w   = layer->weights;
    const float                eps = g->model->norm_eps;
    x = ggml_add(g->ctx, x, time_mix(g, w, graph_layer_norm(g, x, w->ln1, w->ln1_b, eps)));
    return ggml_add(g->ctx, x, channel_mix(g, w, graph_layer_norm(g, x, w->ln2, w->ln2_b, eps)));
}

const struct family family_rwkv7 = {
    .name        = "rwkv7",
    .llama_cpp   = true,
    .own_range   = true,
    .load        = load,
    .load_layer  = load_layer,
    .build_layer = build_layer,
};
