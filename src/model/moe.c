// A mixture of experts: k of X MLPs for each token, and one for all
//
//     l = W_r x;   s = softmax(l) or σ(l)          [X]
//     e_1 … e_k = the k largest of s + b           b only chooses; with groups, see below
//     w_i = s[e_i];   w /= Σ w + 1e-20 [if normalized];   w *= scale
//     y = Σ_i w_i · expert[e_i](x)  +  [σ(w_sᵀ x) ·] shared(x)
//
// In Nemotron-3 Super the experts have a smaller width R: U Σ_i w_i · expert[e_i](L x), with one L
// and U for all. All chosen σ may underflow to 0; the constant makes their weights 0, not NaN.
//
// An expert is an MLP as in mlp.c, with SwiGLU or ReLU². Groups are consecutive experts: only those
// of the best groups can be chosen, and the score of a group is the sum of its two largest s + b.

#include "model/families.h"

#include <math.h>

struct moe {
    int64_t X, k;                  // experts, and how many a token uses
    int64_t n_groups, used_groups; // 1: no groups
    bool    sigmoid;               // σ(l) instead of softmax(l)
    bool    normalized;
    float   scale; // 0: none
    float   limit; // of SwiGLU in the experts; 0: none

    struct ggml_tensor * router;      // [D, X]
    struct ggml_tensor * bias;        // [X] or NULL
    struct ggml_tensor * latent_down; // [D, R] or NULL: R = D
    struct ggml_tensor * latent_up;   // [R, D] or NULL
    struct ggml_tensor * gate;        // [R, F, X], NULL: ReLU²
    struct ggml_tensor * up;          // [R, F, X]
    struct ggml_tensor * gate_up;     // [R, 2F, X] instead of the two, or NULL
    struct ggml_tensor * down;        // [F, R, X]
    struct mlp           shared;      // up NULL: none
    struct ggml_tensor * shared_gate; // [D] or NULL
};

static void load_keys(struct loader * l, int32_t il, struct moe * w) {
    const size_t i = (size_t) il;
    const char * experts = loader_key(l, "expert_count");
    const char * used = loader_key(l, "expert_used_count");
    w->X = loader_int(l, experts, 1, 65536);
    w->k = loader_int_at(l, used, i, 1, 1024, 0);
    if (!l->failed && w->k > w->X) {
        loader_fail(l, "key '%s' is %lld; expected at most %s = %lld", used, (long long) w->k,
                experts, (long long) w->X);
    }
    const char * groups = loader_key(l, "expert_group_count");
    const char * best = loader_key(l, "expert_group_used_count");
    w->n_groups = loader_int_or(l, groups, 0, 65536, 1);
    w->n_groups = w->n_groups > 0 ? w->n_groups : 1;
    w->used_groups = loader_int_or(l, best, 0, w->n_groups, w->n_groups);
    w->used_groups = w->used_groups > 0 ? w->used_groups : w->n_groups;
    loader_divisor(l, groups, w->n_groups, experts, w->X);
    if (!l->failed && w->used_groups < w->n_groups) {
        const int64_t size = w->X / w->n_groups;
        if (size < 2 || w->used_groups * size < w->k) {
            loader_fail(l,
                    "key '%s' is %lld with groups of %lld experts; expected at least 2 in a group "
                    "and %lld in all used groups",
                    best, (long long) w->used_groups, (long long) size, (long long) w->k);
        }
    }
    enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };
    const int router = l->model->family->router;
    w->sigmoid =
            loader_int_or(l, loader_key(l, "expert_gating_func"), GATING_SOFTMAX, GATING_SIGMOID,
                    router & ROUTER_SIGMOID ? GATING_SIGMOID : GATING_SOFTMAX) == GATING_SIGMOID;
    w->normalized = loader_bool_or(
            l, loader_key(l, "expert_weights_norm"), !(router & ROUTER_UNNORMALIZED));
    w->scale = loader_float_or(l, loader_key(l, "expert_weights_scale"), 0.0f, 1e6f, 0.0f);
}

struct moe * moe_load(struct loader * l, int32_t il, const struct layer * layer, bool gated) {
    struct moe *  w = loader_alloc(l, sizeof(*w));
    const int64_t D = l->model->n_embd;
    if (w == NULL) {
        return NULL;
    }
    load_keys(l, il, w);
    w->limit = layer->glu_limit_experts;
    w->shared.limit = layer->glu_limit;
    const int64_t X = w->X;
    const int64_t F = loader_int_at(l, loader_key(l, "expert_feed_forward_length"), (size_t) il, 1,
            1 << 24, layer->n_ff > 0 ? layer->n_ff : 0);
    const int64_t n_shared = loader_int_or(l, loader_key(l, "expert_shared_count"), 0, 1024, 0);
    const int64_t FS = loader_int_or(
            l, loader_key(l, "expert_shared_feed_forward_length"), 0, 1 << 24, n_shared * F);
    const int64_t latent = loader_int_or(l, loader_key(l, "moe_latent_size"), 0, 1 << 24, 0);
    const int64_t R = latent > 0 ? latent : D;
    const int64_t in[3] = { R, F, X }, both[3] = { R, 2 * F, X }, out[3] = { F, R, X };

    w->router = loader_tensor_2d(l, il, "ffn_gate_inp.weight", TENSOR_F32, D, X);
    w->bias = loader_tensor_1d(l, il, "exp_probs_b.bias", TENSOR_F32 | TENSOR_OPTIONAL, X);
    if (latent > 0) {
        w->latent_down = loader_tensor_2d(l, il, "ffn_latent_down.weight", TENSOR_REQUIRED, D, R);
        w->latent_up = loader_tensor_2d(l, il, "ffn_latent_up.weight", TENSOR_REQUIRED, R, D);
    }
    if (gated) {
        w->gate_up = loader_tensor_nd(l, il, "ffn_gate_up_exps.weight", TENSOR_OPTIONAL, 3, both);
    }
    if (w->gate_up == NULL) {
        w->up = loader_tensor_nd(l, il, "ffn_up_exps.weight", TENSOR_REQUIRED, 3, in);
        if (gated) {
            w->gate = loader_tensor_nd(l, il, "ffn_gate_exps.weight", TENSOR_REQUIRED, 3, in);
        }
    }
    w->down = loader_tensor_nd(l, il, "ffn_down_exps.weight", TENSOR_REQUIRED, 3, out);
    if (FS > 0) {
        if (gated) {
            w->shared.gate =
                    loader_tensor_2d(l, il, "ffn_gate_shexp.weight", TENSOR_REQUIRED, D, FS);
        }
        w->shared.up = loader_tensor_2d(l, il, "ffn_up_shexp.weight", TENSOR_REQUIRED, D, FS);
        w->shared.down = loader_tensor_2d(l, il, "ffn_down_shexp.weight", TENSOR_REQUIRED, FS, D);
        w->shared_gate = loader_tensor_1d(
                l, il, "ffn_gate_inp_shexp.weight", TENSOR_F32 | TENSOR_OPTIONAL, D);
    }
    if (w->k > l->model->n_expert_used) {
        l->model->n_expert_used = w->k;
    }
    return l->failed ? NULL : w;
}

// The scores c [X, T] with −∞ in all but the best groups
static struct ggml_tensor * keep_best_groups(
        struct graph * g, const struct moe * w, struct ggml_tensor * c) {
    struct ggml_context * x = g->ctx;
    const int64_t         T = c->ne[1];
    const int64_t         size = w->X / w->n_groups;

    struct ggml_tensor * grouped = ggml_reshape_4d(x, c, 1, size, w->n_groups, T);
    struct ggml_tensor * two =
            ggml_argsort_top_k(x, ggml_reshape_3d(x, c, size, w->n_groups, T), 2); // [2, groups, T]
    struct ggml_tensor * sum = ggml_get_rows(x, grouped, two);          // [1, 2, groups, T]
    sum = ggml_sum_rows(x, ggml_reshape_3d(x, sum, 2, w->n_groups, T)); // [1, groups, T]
    sum = ggml_reshape_2d(x, sum, w->n_groups, T);
    struct ggml_tensor * best = ggml_argsort_top_k(x, sum, (int) w->used_groups); // [used, T]

    c = ggml_reshape_3d(x, c, size, w->n_groups, T);
    struct ggml_tensor * kept = ggml_get_rows(x, c, best); // [size, used, T]
    struct ggml_tensor * none = ggml_fill(x, c, -INFINITY);
    c = ggml_set_rows(x, none, kept, best);
    return ggml_reshape_2d(x, c, w->X, T);
}

// SwiGLU of both halves of the rows of h [2F, k, T] → [F, k, T]
static struct ggml_tensor * limited_swiglu(struct graph * g, struct ggml_tensor * h, float limit) {
    struct ggml_tensor * half[2]; // gate, up
    for (int i = 0; i < 2; ++i) {
        half[i] = ggml_cont(g->ctx, ggml_view_3d(g->ctx, h, h->ne[0] / 2, h->ne[1], h->ne[2],
                                            h->nb[1], h->nb[2], (size_t) i * h->nb[1] / 2));
    }
    return swiglu_build(g, half[0], half[1], limit);
}

// y[i, t] = expert[ids[i, t]](x[t]): x [R, T], ids [k, T] → [R, k, T]
static struct ggml_tensor * run_experts(
        struct graph * g, const struct moe * w, struct ggml_tensor * x, struct ggml_tensor * ids) {
    struct ggml_context * c = g->ctx;
    struct ggml_tensor *  h; // [F, k, T]
    x = ggml_reshape_3d(c, x, x->ne[0], 1, x->ne[1]);
    if (w->gate_up != NULL) {
        h = ggml_mul_mat_id(c, w->gate_up, x, ids);
        h = w->limit == 0.0f ? ggml_swiglu(c, h) : limited_swiglu(g, h, w->limit);
    } else if (w->gate != NULL) {
        h = swiglu_build(g, ggml_mul_mat_id(c, w->gate, x, ids), ggml_mul_mat_id(c, w->up, x, ids),
                w->limit);
    } else {
        h = ggml_sqr(c, ggml_relu(c, ggml_mul_mat_id(c, w->up, x, ids)));
    }
    return ggml_mul_mat_id(c, w->down, h, ids);
}

struct ggml_tensor * moe_build(struct graph * g, const struct moe * w, struct ggml_tensor * x) {
    struct ggml_context * c = g->ctx;
    const int64_t         T = x->ne[1];

    struct ggml_tensor * s = graph_product(g, w->router, x); // [X, T]
    s = w->sigmoid ? ggml_sigmoid(c, s) : ggml_soft_max(c, s);
    struct ggml_tensor * chosen = w->bias != NULL ? ggml_add(c, s, w->bias) : s;
    if (w->used_groups < w->n_groups) {
        chosen = keep_best_groups(g, w, chosen);
    }
    struct ggml_tensor * ids = ggml_argsort_top_k(c, chosen, (int) w->k);              // [k, T]
    struct ggml_tensor * v = ggml_get_rows(c, ggml_reshape_3d(c, s, 1, w->X, T), ids); // [1, k, T]
    if (w->normalized) {
        v = ggml_reshape_2d(c, v, w->k, T);
        v = ggml_div(c, v, ggml_scale_bias(c, ggml_sum_rows(c, v), 1.0f, 1e-20f));
        v = ggml_reshape_3d(c, v, 1, w->k, T);
    }
    v = graph_scale(g, v, w->scale);

    struct ggml_tensor * h = w->latent_down != NULL ? graph_product(g, w->latent_down, x) : x;
    struct ggml_tensor * parts = ggml_mul(c, run_experts(g, w, h, ids), v); // [R, k, T]
    struct ggml_tensor * y = NULL;
    for (int64_t i = 0; i < w->k; ++i) { // in the order of the scores, which is the token's own
        struct ggml_tensor * part = ggml_view_2d(
                c, parts, parts->ne[0], T, parts->nb[2], (size_t) i * parts->nb[1]); // [R, T]
        y = y == NULL ? part : ggml_add(c, y, part);
    }
    y = w->k == 1 ? ggml_cont(c, y) : y;
    y = w->latent_up != NULL ? graph_product(g, w->latent_up, y) : y;
    if (w->shared.up == NULL) {
        return y;
    }
    struct ggml_tensor * shared = mlp_build(g, &w->shared, x); // [D, T]
    if (w->shared_gate != NULL) {
        struct ggml_tensor * gate = ggml_reshape_2d(c, w->shared_gate, x->ne[0], 1);
        shared = ggml_mul(c, shared, ggml_sigmoid(c, graph_product(g, gate, x)));
    }
    return ggml_add(c, y, shared);
}
