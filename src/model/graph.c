#include "model/graph.h"

#include "base/error.h"

#include <math.h>

// Where an op reports why it is rejected: only the first reason counts.
static struct lrnn_error * first_error(const struct graph * g) {
    return g->failed ? NULL : g->err;
}

static struct ggml_tensor * checked(
        struct graph * g, struct ggml_tensor * op, const char * what, int64_t ne0, int64_t ne1) {
    if (op != NULL) {
        return op;
    }
    error_prefix(first_error(g), "%s", what);
    g->failed = true;
    return ggml_new_tensor_3d(g->ctx, GGML_TYPE_F32, ne0, ne1, g->n_tokens);
}

struct ggml_tensor * graph_product(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * x) {
    const bool by_column = g->path == GGML_SCAN_PATH_STEP;
    if (g->model->is_quantized && !ggml_is_quantized(w->type) && x->ne[1] > 1 &&
            (x->ne[1] <= GRAPH_FEW_TOKENS || by_column) && x->ne[2] == 1) {
        // T products with one column instead of one product with T columns. ggml sums F32 and F16
        // rows in a different order for one column than for several, but quantized rows always in
        // the same order. In a quantized model the F32 matrices (gates, short rows) must not make
        // a sequence depend on the others in its batch. Prompts do without, unless the session asks
        // for exact cuts.
        struct ggml_tensor * y = ggml_mul_mat(g->ctx, w,
                ggml_view_3d(
                        g->ctx, x, x->ne[0], 1, x->ne[1], x->nb[1], x->nb[1], 0)); // [out, 1, T]
        return ggml_reshape_2d(g->ctx, y, w->ne[1], x->ne[1]);
    }
    struct ggml_tensor * y = ggml_mul_mat(g->ctx, w, x);
    y->op_params[LRNN_OP_PARAM_BATCH_INVARIANT] = by_column;
    return y;
}

struct ggml_tensor * graph_linear(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * b, struct ggml_tensor * x) {
    struct ggml_tensor * y = graph_product(g, w, x);
    return b != NULL ? ggml_add(g->ctx, y, b) : y;
}

struct ggml_tensor * graph_product_heads(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * x) {
    struct ggml_context * c = g->ctx;
    const int64_t         out = w->ne[1], H = w->ne[2], T = x->ne[2];
    if (T <= GRAPH_FEW_TOKENS || g->path == GGML_SCAN_PATH_STEP) { // column by column, as above
        x = ggml_view_4d(c, x, x->ne[0], 1, H, T, x->nb[1], x->nb[1], x->nb[2], 0);
        return ggml_reshape_3d(c, ggml_mul_mat(c, w, x), out, H, T);
    }
    struct ggml_tensor * y = ggml_mul_mat(c, w, ggml_permute(c, x, 0, 2, 1, 3)); // [out, T, H]
    return ggml_cont(c, ggml_permute(c, y, 0, 2, 1, 3));
}

void graph_group(struct graph * g, int n, struct ggml_tensor * const nodes[]) {
    for (int i = 0; i < n && g->n_tokens <= GRAPH_FEW_TOKENS; ++i) {
        ggml_build_forward_expand(g->gf, nodes[i]);
    }
}

struct ggml_tensor * graph_rms_norm(
        struct graph * g, struct ggml_tensor * x, struct ggml_tensor * w, float eps) {
    struct ggml_tensor * y = ggml_rms_norm(g->ctx, x, eps);
    return w != NULL ? ggml_mul(g->ctx, y, w) : y;
}

struct ggml_tensor * graph_layer_norm(struct graph * g, struct ggml_tensor * x,
        struct ggml_tensor * w, struct ggml_tensor * b, float eps) {
    struct ggml_tensor * y = ggml_norm(g->ctx, x, eps);
    y = w != NULL ? ggml_mul(g->ctx, y, w) : y;
    return b != NULL ? ggml_add(g->ctx, y, b) : y;
}

struct ggml_tensor * graph_l2_norm(struct graph * g, struct ggml_tensor * x, float eps) {
    // ggml_l2_norm divides by max(‖x‖, eps); with the eps inside the root, n = ne[0]:
    //     x / sqrt(Σx² + eps) = n^-1/2 · x / sqrt(mean(x²) + eps/n)
    const float n = (float) x->ne[0];
    return ggml_scale(g->ctx, ggml_rms_norm(g->ctx, x, eps / n), 1.0f / sqrtf(n));
}

struct ggml_tensor * graph_scale(struct graph * g, struct ggml_tensor * x, float scale) {
    return scale > 0.0f ? ggml_scale(g->ctx, x, scale) : x;
}

struct ggml_tensor * graph_soft_cap(struct graph * g, struct ggml_tensor * x, float cap) {
    return cap > 0.0f
                   ? ggml_scale(g->ctx, ggml_tanh(g->ctx, ggml_scale(g->ctx, x, 1.0f / cap)), cap)
                   : x;
}

struct ggml_tensor * graph_rope(struct graph * g, struct ggml_tensor * x, int64_t n, float theta,
        struct ggml_tensor * factors, bool neighbors) {
    return ggml_rope_ext(g->ctx, x, g->inputs->positions, factors, (int) n,
            neighbors ? GGML_ROPE_TYPE_NORMAL : GGML_ROPE_TYPE_NEOX, 0, theta, 1.0f, 0.0f, 1.0f,
            0.0f, 0.0f);
}

struct ggml_tensor * graph_conv(struct graph * g, int32_t state, struct ggml_tensor * weight,
        struct ggml_tensor * bias, enum ggml_short_conv_activation activation,
        struct ggml_tensor * x) {
    if (weight == NULL) {
        return activation == GGML_SHORT_CONV_SILU ? ggml_silu(g->ctx, x) : x;
    }
    const struct ggml_short_conv_args args = {
        .state = g->states[state],
        .ids = g->inputs->ids,
        .x = x,
        .weight = weight,
        .bias = bias,
        .activation = activation,
    };
    struct ggml_tensor * y = ggml_short_conv(g->ctx, &args, first_error(g));
    return checked(g, y, "short convolution", x->ne[0], 1);
}

struct ggml_tensor * graph_shift(struct graph * g, int32_t state, struct ggml_tensor * x) {
    const struct ggml_short_conv_args args = {
        .state = g->states[state], .ids = g->inputs->ids, .x = x
    };
    struct ggml_tensor * y = ggml_short_conv(g->ctx, &args, first_error(g));
    return checked(g, y, "token shift", x->ne[0], 1);
}

struct ggml_tensor * graph_householder(struct graph * g, struct ggml_householder_scan_args args) {
    args.state = g->states[0];
    args.ids = g->inputs->ids;
    args.path = g->path;
    struct ggml_tensor * o = ggml_householder_scan(g->ctx, &args, first_error(g));
    return checked(g, o, "Householder scan", args.v->ne[0], args.v->ne[1]);
}

struct ggml_tensor * graph_signed_gate(struct graph * g, struct ggml_signed_scan_args args) {
    args.state = g->states[0];
    args.ids = g->inputs->ids;
    args.path = g->path;
    struct ggml_tensor * y = ggml_signed_scan(g->ctx, &args, first_error(g));
    return checked(g, y, "signed-gate scan", args.x->ne[0], args.x->ne[1]);
}

struct ggml_tensor * graph_mlstm(struct graph * g, struct ggml_tensor * q, struct ggml_tensor * k,
        struct ggml_tensor * v, struct ggml_tensor * log_i, struct ggml_tensor * f, float epsilon) {
    const int64_t H = f->ne[0], K = q->ne[0] / H, P = v->ne[0] / H;

    // log σ(f) = −softplus(−f)
    struct ggml_tensor * log_f =
            ggml_neg(g->ctx, ggml_softplus(g->ctx, ggml_neg(g->ctx, f))); // [H, T]
    const struct ggml_signed_scan_args args = {
        .c = graph_heads(g, q, K, H, 1),
        .b = graph_heads(g, k, K, H, 1),
        .x = graph_heads(g, v, P, H, 1),
        .log_f = graph_heads(g, log_f, 1, H, 1),
        .log_i = graph_heads(g, log_i, 1, H, 1),
        .scale = 1.0f / sqrtf((float) K),
        .eps = epsilon,
    };
    return graph_signed_gate(g, args);
}

struct ggml_tensor * graph_lstm(struct graph * g, struct ggml_lstm_scan_args args) {
    args.state = g->states[0];
    args.ids = g->inputs->ids;
    struct ggml_tensor * y = ggml_lstm_scan(g->ctx, &args, first_error(g));
    return checked(g, y, "LSTM scan", args.x->ne[0], args.x->ne[1]);
}

struct ggml_tensor * graph_heads(
        struct graph * g, struct ggml_tensor * x, int64_t width, int64_t heads, int64_t factors) {
    // A view: rows of x may be strided, so part of a fused projection needs no copy.
    return ggml_view_4d(g->ctx, x, width, heads, factors, g->n_tokens,
            (size_t) width * sizeof(float), (size_t) (width * heads) * sizeof(float), x->nb[1], 0);
}

struct ggml_tensor * graph_beta(struct graph * g, struct ggml_tensor * x) {
    struct ggml_tensor * beta = ggml_sigmoid(g->ctx, x);
    return g->model->is_signed ? ggml_scale(g->ctx, beta, 2.0f) : beta;
}
