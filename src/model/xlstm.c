// The original xLSTM: layers with an mLSTM or an sLSTM
//
// mLSTM, without an MLP:
//
//     (u, z) = W_up x                                c = silu(conv(u))
//     q, k = B_q c, B_k c                            v = B_v u
//     log i = W_i (q, k, v) + b_i                    log f = log σ(W_f (q, k, v) + b_f)
//     y = mLSTM(q, k, v, log i, log f)               out = W_down ((norm y + s ∘ c) ∘ silu(z))
//
// sLSTM, with an MLP after it. NOT linear: y of the token before enters the gates, by R.
//
//     c = silu(conv(x)), or x without a convolution
//     y = sLSTM(B_i c, B_f c, B_z x, B_o x, each + b; R)                out = norm y
//
// B are block-diagonal. The norms of y are LayerNorm, per head. The recurrences are in lrnn-ops.h.

#include "model/families.h"

struct xlstm_layer {
    int64_t H, K; // K: length of a head

    // both
    struct ggml_tensor * conv, *conv_b; // [W, H·K], [H·K]; NULL: none
    int32_t              conv_state;
    struct ggml_tensor * norm; // [H·K]

    // mLSTM, E = H·K
    struct ggml_tensor * up;              // [D, 2·E]; NULL: an sLSTM
    struct ggml_tensor * q, *k, *v;       // [b, b, E/b]
    struct ggml_tensor * igate, *igate_b; // [3·E, H], [H]
    struct ggml_tensor * fgate, *fgate_b; // [3·E, H], [H]
    struct ggml_tensor * skip;            // [E]
    struct ggml_tensor * down;            // [E, D]
    float                epsilon;

    // sLSTM, D = H·K
    struct ggml_tensor *     gates[4]; // i, f, z, o: [K, K, H]
    struct ggml_tensor *     gates_b;  // [4·D]
    struct ggml_tensor *     R;        // [4·K, K, H]
    enum ggml_lstm_scan_form form;
};

static bool is_slstm(struct loader * l, int32_t il) {
    return loader_int_at(l, "lrnn.slstm", (size_t) il, 0, 1, 0) == 1;
}

static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    layer->ffn = is_slstm(l, il) ? FFN_GEGLU : FFN_NONE;
}

static void load_conv(
        struct loader * l, int32_t il, struct layer * layer, const char * key, int64_t channels) {
    struct xlstm_layer * w = layer->weights;
    const int64_t        width = loader_int(l, key, 0, 64);
    if (width > 0) {
        w->conv = loader_tensor_2d(l, il, "ssm_conv1d.weight", TENSOR_F32, width, channels);
        w->conv_b = loader_tensor_1d(l, il, "ssm_conv1d.bias", TENSOR_F32, channels);
        w->conv_state = loader_state(l, layer, (width - 1) * channels);
    }
}

static struct ggml_tensor * load_blocks(
        struct loader * l, int32_t il, const char * name, int64_t size, int64_t n) {
    return loader_tensor_nd(l, il, name, TENSOR_F32, 3, (int64_t[]) { size, size, n });
}

static bool load_mlstm(struct loader * l, int32_t il, struct layer * layer) {
    struct xlstm_layer * w = layer->weights;
    const int64_t        D = l->model->n_embd;

    w->H = loader_int(l, "lrnn.head_count", 1, 4096);
    w->K = loader_int(l, "lrnn.key_length", 1, 65536);
    w->epsilon = loader_float(l, "lrnn.mlstm_epsilon", 0.0f, 1.0f);
    const int64_t E = w->H * w->K;
    const int64_t b = loader_int(l, "lrnn.qkv_block_length", 1, 65536);
    if (!l->failed && E % b != 0) {
        return loader_fail(l,
                "key 'lrnn.qkv_block_length' is %d; expected a divisor of %d, "
                "head_count times key_length",
                (int) b, (int) E);
    }
    if (l->failed) {
        return false;
    }
    loader_recurrence(l, layer, w->H, w->K, w->K, w->K + 1); // + n and m
    load_conv(l, il, layer, "lrnn.conv_width", E);
    w->up = loader_tensor_2d(l, il, "ssm_in.weight", TENSOR_REQUIRED, D, 2 * E);
    w->q = load_blocks(l, il, "mlstm_q.weight", b, E / b);
    w->k = load_blocks(l, il, "mlstm_k.weight", b, E / b);
    w->v = load_blocks(l, il, "mlstm_v.weight", b, E / b);
    w->igate = loader_tensor_2d(l, il, "ssm_igate.weight", TENSOR_REQUIRED, 3 * E, w->H);
    w->igate_b = loader_tensor_1d(l, il, "ssm_igate.bias", TENSOR_F32, w->H);
    w->fgate = loader_tensor_2d(l, il, "ssm_fgate.weight", TENSOR_REQUIRED, 3 * E, w->H);
    w->fgate_b = loader_tensor_1d(l, il, "ssm_fgate.bias", TENSOR_F32, w->H);
    w->norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, E);
    w->skip = loader_tensor_1d(l, il, "ssm_skip.weight", TENSOR_F32, E);
    w->down = loader_tensor_2d(l, il, "ssm_out.weight", TENSOR_REQUIRED, E, D);
    return !l->failed;
}

static bool load_slstm(struct loader * l, int32_t il, struct layer * layer) {
    static const char * const forms[] = { "lstm", "slstm", NULL };
    static const char * const names[] = { "slstm_i.weight", "slstm_f.weight", "slstm_z.weight",
        "slstm_o.weight" };
    struct xlstm_layer *      w = layer->weights;
    const int64_t             D = l->model->n_embd;

    w->H = loader_int(l, "lrnn.slstm_head_count", 1, 4096);
    w->form = (enum ggml_lstm_scan_form) loader_word(l, "lrnn.slstm_function", forms);
    if (!l->failed && D % w->H != 0) {
        return loader_fail(l, "key 'lrnn.slstm_head_count' is %d; expected a divisor of %d",
                (int) w->H, (int) D);
    }
    if (l->failed) {
        return false;
    }
    w->K = D / w->H;
    loader_recurrence(l, layer, w->H, w->form == GGML_LSTM_SCAN_SLSTM ? 4 : 2, w->K, 0);
    load_conv(l, il, layer, "lrnn.slstm_conv_width", D);
    for (int i = 0; i < 4; ++i) {
        w->gates[i] = load_blocks(l, il, names[i], w->K, w->H);
    }
    w->gates_b = loader_tensor_1d(l, il, "slstm.bias", TENSOR_F32, 4 * D);
    w->R = loader_tensor_nd(
            l, il, "slstm_r.weight", TENSOR_F32, 3, (int64_t[]) { 4 * w->K, w->K, w->H });
    w->norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, D);
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    return is_slstm(l, il) ? load_slstm(l, il, layer) : load_mlstm(l, il, layer);
}

// The product of a block-diagonal matrix B [b, b, n] and x [b·n, T], column by column: a column
// does not depend on the others.
static struct ggml_tensor * build_blocks(
        struct graph * g, struct ggml_tensor * B, struct ggml_tensor * x) {
    const int64_t        b = B->ne[0], n = B->ne[2];
    struct ggml_tensor * y = ggml_mul_mat(g->ctx, B, // [b, 1, n, T]
            ggml_view_4d(g->ctx, x, b, 1, n, g->n_tokens, x->nb[1], (size_t) b * sizeof(float),
                    x->nb[1], 0));
    return ggml_reshape_2d(g->ctx, y, b * n, g->n_tokens);
}

// norm y, y [K, H, T] → [H·K, T]
static struct ggml_tensor * build_norm(
        struct graph * g, const struct xlstm_layer * w, struct ggml_tensor * y) {
    y = graph_layer_norm(g, y, NULL, NULL, g->model->norm_eps);
    return ggml_mul(g->ctx, ggml_reshape_2d(g->ctx, y, w->H * w->K, g->n_tokens), w->norm);
}

static struct ggml_tensor * mix_mlstm(
        struct graph * g, const struct xlstm_layer * w, struct ggml_tensor * x) {
    struct ggml_context * c = g->ctx;
    const int64_t         E = w->H * w->K;

    struct ggml_tensor * uz = graph_linear(g, w->up, NULL, x); // [2·E, T]
    struct ggml_tensor * u = columns(g, uz, 0, E);             // [E, T]
    struct ggml_tensor * conv =
            graph_conv(g, w->conv_state, w->conv, w->conv_b, GGML_SHORT_CONV_SILU, u);
    struct ggml_tensor * q = build_blocks(g, w->q, conv);                     // [E, T]
    struct ggml_tensor * k = build_blocks(g, w->k, conv);                     // [E, T]
    struct ggml_tensor * v = build_blocks(g, w->v, u);                        // [E, T]
    struct ggml_tensor * qkv = ggml_concat(c, ggml_concat(c, q, k, 0), v, 0); // [3·E, T]
    struct ggml_tensor * log_i = graph_linear(g, w->igate, w->igate_b, qkv);  // [H, T]
    struct ggml_tensor * f = graph_linear(g, w->fgate, w->fgate_b, qkv);      // [H, T]
    struct ggml_tensor * y =
            build_norm(g, w, graph_mlstm(g, q, k, v, log_i, f, w->epsilon)); // [E, T]
    y = ggml_add(c, y, ggml_mul(c, conv, w->skip));
    return graph_linear(g, w->down, NULL, ggml_swiglu_split(c, columns(g, uz, E, E), y));
}

static struct ggml_tensor * mix_slstm(
        struct graph * g, const struct xlstm_layer * w, struct ggml_tensor * x) {
    struct ggml_context * c = g->ctx;
    struct ggml_tensor *  conv = x; // [D, T]
    if (w->conv != NULL) {
        conv = graph_conv(g, w->conv_state, w->conv, w->conv_b, GGML_SHORT_CONV_SILU, x);
    }
    struct ggml_tensor * gates = NULL; // [4·D, T]: i, f, z, o
    for (int i = 0; i < 4; ++i) {
        struct ggml_tensor * gate = build_blocks(g, w->gates[i], i < 2 ? conv : x);
        gates = gates == NULL ? gate : ggml_concat(c, gates, gate, 0);
    }
    gates = ggml_add(c, gates, w->gates_b);
    const struct ggml_lstm_scan_args args = {
        .x = graph_heads(g, gates, w->K, w->H, 4), .R = w->R, .form = w->form
    };
    return build_norm(g, w, graph_lstm(g, args));
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct xlstm_layer * w = layer->weights;
    return (w->up != NULL ? mix_mlstm : mix_slstm)(g, w, x);
}

const struct family family_xlstm = {
    .name = "xlstm",
    .own_range = true,
    .layer_norm = true,
    .layer_size = sizeof(struct xlstm_layer),
    .load_layer = load_layer,
    .layer_kind = layer_kind,
    .mix = mix,
};
