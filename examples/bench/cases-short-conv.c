// Cases of the short convolution. d_k is the number of taps, d_v the number of channels.

#include "bench-case.h"

static int64_t conv_state(const struct op_shape * s) {
    return (s->d_k - 1) * s->d_v;
}

//
// Causal depthwise convolution and SiLU
//
//     y_t[c] = silu( Σ_w weight[w][c] x_{t − (d_k − 1) + w}[c] )
//

static void conv_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    (void) c;
    in->x = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->tokens * s->seqs, 1, 1);
    in->weight = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->d_v, 1, 1);
}

static struct op_output conv_ours(const struct op_build * b) {
    const struct ggml_short_conv_args args = {
        .state = b->state,
        .ids = b->in->ids,
        .x = b->in->x,
        .weight = b->in->weight, // NULL for token shift
        .activation = b->in->weight != NULL ? GGML_SHORT_CONV_SILU : GGML_SHORT_CONV_NONE,
    };
    return (struct op_output) {
        .tensor = ggml_short_conv(b->ctx, &args, b->err),
        .stride = b->s->d_v,
    };
}

static struct op_output conv_stock(const struct op_build * b) {
    const struct op_shape * s = b->s;
    struct ggml_context *   ctx = b->ctx;
    const int64_t           tail = s->d_k - 1;

    struct ggml_tensor * x = ggml_reshape_3d(ctx, b->in->x, s->d_v, s->tokens, s->seqs);
    struct ggml_tensor * old = ggml_reshape_3d(ctx, b->state, tail, s->d_v, s->seqs);
    struct ggml_tensor * sx = ggml_concat(ctx, old, ggml_transpose(ctx, x), 0);
    struct ggml_tensor * new = ggml_view_3d(
            ctx, sx, tail, s->d_v, s->seqs, sx->nb[1], sx->nb[2], (size_t) s->tokens * sx->nb[0]);

    return (struct op_output) {
        // [channels, T, seqs]
        .tensor = ggml_silu(ctx, ggml_ssm_conv(ctx, sx, b->in->weight)),
        .store = ggml_cpy(ctx, new, old),
        .stride = s->d_v,
    };
}

// A multiply-add per tap, and 4 for SiLU: negation, exp, sum, quotient.
static double conv_flops(const struct bench_case * c, const struct op_shape * s) {
    (void) c;
    return (2.0 * (double) s->d_k + 4.0) * (double) s->d_v;
}

//
// Token shift
//
//     y_t = x_{t − 1}
//

static void shift_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    (void) c;
    in->x = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->tokens * s->seqs, 1, 1);
}

static struct op_output shift_stock(const struct op_build * b) {
    const struct op_shape * s = b->s;
    struct ggml_context *   ctx = b->ctx;

    struct ggml_tensor * x = ggml_reshape_3d(ctx, b->in->x, s->d_v, s->tokens, s->seqs);
    struct ggml_tensor * old = ggml_reshape_3d(ctx, b->state, s->d_v, 1, s->seqs);
    struct ggml_tensor * most =
            ggml_view_3d(ctx, x, s->d_v, s->tokens - 1, s->seqs, x->nb[1], x->nb[2], 0);
    struct ggml_tensor * last = ggml_view_3d(
            ctx, x, s->d_v, 1, s->seqs, x->nb[1], x->nb[2], (size_t) (s->tokens - 1) * x->nb[1]);

    return (struct op_output) {
        // [channels, T, seqs]
        .tensor = ggml_concat(ctx, old, most, 1),
        .store = ggml_cpy(ctx, last, old),
        .stride = s->d_v,
    };
}

static const char * shift_limit(const struct op_shape * s) {
    return s->tokens < 2 ? "one token needs no concat" : NULL;
}

static double shift_flops(const struct bench_case * c, const struct op_shape * s) {
    (void) c;
    (void) s;
    return 0.0;
}

//
// Table
//

#define CONV                                                                            \
    .inputs = conv_inputs, .ours = conv_ours, .flops = conv_flops, .state = conv_state, \
    .stock_name = "ggml_concat, ggml_ssm_conv, ggml_silu, cpy", .stock = conv_stock,    \
    .transposed = true

//               taps channels  n_h T  seqs layers
#define SHAPE(...) .shape = { __VA_ARGS__ }

const struct bench_case cases_short_conv[] = {
    { SHAPE(4, 2048, 1, 1, 512, 1, 1), .goal = 2.0, CONV, .name = "conv",
            .what = "short convolution, SiLU" },
    { SHAPE(4, 2048, 1, 1, 1, 1, 24), CONV, .name = "conv-decode",
            .what = "short convolution, SiLU, one token" },
    { SHAPE(2, 2048, 1, 1, 512, 1, 1), .inputs = shift_inputs, .ours = conv_ours,
            .flops = shift_flops, .state = conv_state, .stock_name = "ggml_concat, cpy",
            .stock = shift_stock, .limit = shift_limit, .name = "token-shift",
            .what = "token shift" },
    { .name = NULL },
};
