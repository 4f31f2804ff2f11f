// Cases of the signed-gate scan.

#include "bench-case.h"

#include <math.h>

// Inputs that a family does not use are NULL.
static struct op_output signed_scan(
        const struct op_build * b, struct ggml_tensor * A, float scale) {
    const struct op_inputs *           in = b->in;
    const bool                         is_raw = in->dt != NULL && !b->c->negative;
    const struct ggml_signed_scan_args args = {
        .state = b->state,
        .ids = in->ids,
        .c = in->c,
        .b = in->b,
        .x = in->x,
        .gate = in->gate,
        .bonus = in->bonus,
        .dt = is_raw ? ggml_softplus(b->ctx, in->dt) : in->dt,
        .A = A,
        .log_f = in->log_f,
        .log_i = in->log_i,
        .form = A != NULL && b->c->negative ? GGML_SIGNED_SCAN_TWO_EXP_M1 : GGML_SIGNED_SCAN_EXP,
        .scale = scale,
        .eps = in->log_f != NULL ? 1e-6f : 0.0f,
        .path = b->path,
    };
    return (struct op_output) {
        .tensor = ggml_signed_scan(b->ctx, &args, b->err),
        .stride = b->s->d_v * b->s->heads,
    };
}

//
// A gate per key channel: GLA; with a bonus for the current token: RWKV-6
//
//     GLA      S ← g ∘ S + b xᵀ;   y = Sᵀc / √d_k
//     RWKV-6   y = (S + (u ∘ b) xᵀ)ᵀ c;   S ← g ∘ S + b xᵀ
//

static void gla_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    const int64_t T = s->tokens * s->seqs;
    const float   low = c->negative ? -1.0f : 0.9f;

    in->c = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->b = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->x = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, 1, T);
    in->gate = op_input(in, OP_FILL_UNIFORM, low, 1.0f, s->d_k, s->heads, 1, T);
}

static void rwkv6_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    gla_inputs(c, s, in);
    in->bonus = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, 1);
}

static struct op_output gla_ours(const struct op_build * b) {
    return signed_scan(b, NULL, b->in->bonus != NULL ? 1.0f : 1.0f / sqrtf((float) b->s->d_k));
}

static struct op_output gla_stock(const struct op_build * b) {
    const struct op_shape *  s = b->s;
    const struct op_inputs * in = b->in;
    struct ggml_context *    ctx = b->ctx;
    const int64_t            T = s->tokens * s->seqs;
    struct ggml_tensor *     q = ggml_reshape_3d(ctx, in->c, s->d_k, s->heads, T);
    struct ggml_tensor *     k = ggml_reshape_3d(ctx, in->b, s->d_k, s->heads, T);
    struct ggml_tensor *     v = ggml_reshape_3d(ctx, in->x, s->d_v, s->heads, T);
    struct ggml_tensor *     g = ggml_reshape_3d(ctx, in->gate, s->d_k, s->heads, T);

    return op_stock_output(b, in->bonus != NULL
                                      ? ggml_rwkv_wkv6(ctx, k, v, q, in->bonus, g, b->state)
                                      : ggml_gated_linear_attn(ctx, k, v, q, g, b->state,
                                                1.0f / sqrtf((float) s->d_k)));
}

static const char * gla_limit(const struct op_shape * s) {
    return s->d_k != s->d_v ? "ggml_gated_linear_attn and ggml_rwkv_wkv6 want d_k = d_v" : NULL;
}

// Per element of the state: gate 1, update 2, read-out 2. The bonus of RWKV-6 is one number per
// token.
static double gla_flops(const struct bench_case * c, const struct op_shape * s) {
    (void) c;
    return 5.0 * (double) (s->d_k * s->d_v * s->heads);
}

//
// Mamba: a gate per element, from Δ and A
//
//     S[i][j] ← exp(Δ[j] A[i][j]) S[i][j] + b[i] Δ[j] x[j];   y = Sᵀc         Δ = softplus(dt)
//     signed: 2 exp(·) − 1 in place of exp(·)
//
// d_k = d_state, d_v = d_inner, one head; the stock op treats every channel of d_inner as a head.
//
// Mamba-2: a gate per head
//
//     S ← exp(Δ A) S + b (Δ x)ᵀ;   y = Sᵀc         Δ = softplus(dt);   signed: 2 exp(·) − 1
//
// d_k = d_state, d_v = the width of a head; all heads share b and c.
//
// No stock op computes the signed forms. Their input is Δ, so that only the op is timed.
//

// - width: of dt, per head
static void ssm_inputs(const struct bench_case * c, const struct op_shape * s,
        struct op_inputs * in, int64_t width) {
    const int64_t T = s->tokens * s->seqs;

    in->c = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, 1, 1, T);
    in->b = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, 1, 1, T);
    in->x = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, 1, T);
    // softplus maps [−7, −2] to [0.001, 0.13]
    in->dt = c->negative ? op_input(in, OP_FILL_UNIFORM, 0.001f, 0.1f, width, s->heads, 1, T)
                         : op_input(in, OP_FILL_UNIFORM, -7.0f, -2.0f, width, s->heads, 1, T);
}

// - width, heads: as the stock op sees them
static struct op_output ssm_stock(const struct op_build * b, int64_t width, int64_t heads) {
    const struct op_inputs * in = b->in;
    struct ggml_context *    ctx = b->ctx;
    const int64_t            N = b->s->d_k, T = b->s->tokens, n = b->s->seqs;

    return op_stock_output(b, ggml_ssm_scan(ctx, ggml_reshape_4d(ctx, b->state, N, width, heads, n),
                                      ggml_reshape_4d(ctx, in->x, width, heads, T, n),
                                      ggml_reshape_3d(ctx, in->dt, heads, T, n), in->A,
                                      ggml_reshape_4d(ctx, in->b, N, 1, T, n),
                                      ggml_reshape_4d(ctx, in->c, N, 1, T, n), in->stock_ids, 1));
}

static void mamba_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    const int64_t width = s->d_v * s->heads;

    ssm_inputs(c, s, in, s->d_v);
    in->A = op_input(in, OP_FILL_UNIFORM, -(float) s->d_k, -1.0f, s->d_k, width, 1, 1);
}

static struct op_output mamba_ours(const struct op_build * b) {
    const struct op_shape * s = b->s;
    const size_t            row = (size_t) s->d_k * sizeof(float);
    struct ggml_tensor *    view =
            ggml_view_3d(b->ctx, b->in->A, s->d_k, s->d_v, s->heads, row, row * (size_t) s->d_v, 0);

    return signed_scan(b, ggml_permute(b->ctx, view, 1, 0, 2, 3), 1.0f);
}

static struct op_output mamba_stock(const struct op_build * b) {
    return ssm_stock(b, 1, b->s->d_v * b->s->heads);
}

// Per element of the state: Δ A 1, exp counted as 1, 2 e − 1 as 2, then 5 as in gla_flops.
static double mamba_flops(const struct bench_case * c, const struct op_shape * s) {
    return (c->negative ? 9.0 : 7.0) * (double) (s->d_k * s->d_v * s->heads);
}

static void mamba2_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    ssm_inputs(c, s, in, 1);
    in->A = op_input(in, OP_FILL_UNIFORM, -16.0f, -1.0f, 1, s->heads, 1, 1);
}

static struct op_output mamba2_ours(const struct op_build * b) {
    return signed_scan(b, ggml_reshape_3d(b->ctx, b->in->A, 1, 1, b->s->heads), 1.0f);
}

static struct op_output mamba2_stock(const struct op_build * b) {
    return ssm_stock(b, b->s->d_v, b->s->heads);
}

//
// mLSTM: exponential gates, with a normalizer n and a running maximum m beside S; see lrnn-ops.h
//
// Keys and queries are positive, which keeps n·c away from zero. Near zero the quotient magnifies
// the rounding errors of both sides, and comparing them would be meaningless.
//

static void mlstm_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    (void) c;
    const int64_t T = s->tokens * s->seqs;

    in->c = op_input(in, OP_FILL_UNIFORM, 0.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->b = op_input(in, OP_FILL_UNIFORM, 0.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->x = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, 1, T);
    in->log_f = op_input(in, OP_FILL_UNIFORM, -0.1f, 0.0f, 1, s->heads, 1, T);
    in->log_i = op_input(in, OP_FILL_UNIFORM, -3.0f, 3.0f, 1, s->heads, 1, T);
}

static int64_t mlstm_state(const struct op_shape * s) {
    return (s->d_k * s->d_v + s->d_k + 1) * s->heads;
}

static struct op_output mlstm_ours(const struct op_build * b) {
    return signed_scan(b, NULL, 1.0f / sqrtf((float) b->s->d_k));
}

//
// Table
//

#define GLA_OURS .inputs = gla_inputs, .ours = gla_ours, .flops = gla_flops
#define GLA_STOCK \
    .stock_name = "ggml_gated_linear_attn, cpy", .stock = gla_stock, .limit = gla_limit
#define RWKV6                                                     \
    .inputs = rwkv6_inputs, .ours = gla_ours, .flops = gla_flops, \
    .stock_name = "ggml_rwkv_wkv6, cpy", .stock = gla_stock, .limit = gla_limit
#define MAMBA        .inputs = mamba_inputs, .ours = mamba_ours, .flops = mamba_flops
#define MAMBA_STOCK  .stock_name = "ggml_ssm_scan, cpy", .stock = mamba_stock, .transposed = true
#define MAMBA2       .inputs = mamba2_inputs, .ours = mamba2_ours, .flops = gla_flops
#define MAMBA2_STOCK .stock_name = "ggml_ssm_scan, cpy", .stock = mamba2_stock, .transposed = true

//                d_k  d_v heads n_h T  seqs layers
#define SHAPE(...)   .shape = { __VA_ARGS__ }

const struct bench_case cases_signed_gate[] = {
    { SHAPE(64, 64, 32, 1, 512, 1, 1), .goal = 3.0, GLA_OURS, GLA_STOCK, .name = "gla",
            .what = "GLA" },
    { SHAPE(16, 1536, 1, 1, 512, 1, 1), .goal = 3.0, MAMBA, MAMBA_STOCK, .name = "mamba",
            .what = "Mamba; ours with a softplus node, which stock fuses" },
    { SHAPE(128, 64, 24, 1, 512, 1, 1), .goal = 3.0, MAMBA2, MAMBA2_STOCK, .name = "mamba2",
            .what = "Mamba-2; ours with a softplus node, which stock fuses" },
    { SHAPE(64, 64, 32, 1, 512, 1, 1), RWKV6, .name = "rwkv6", .what = "RWKV-6" },
    { SHAPE(64, 64, 32, 1, 512, 1, 1), .negative = true, GLA_OURS, GLA_STOCK, .name = "gla-signed",
            .what = "GLA, gates in [-1, 1]" },
    { SHAPE(256, 512, 4, 1, 512, 1, 1), GLA_OURS, GLA_STOCK, .name = "gla-256x512",
            .what = "GLA, heads of fla's default" },
    { SHAPE(16, 1536, 1, 1, 512, 1, 1), .negative = true, MAMBA, .name = "mamba-signed",
            .what = "Mamba, 2 exp(dt A) - 1" },
    { SHAPE(128, 64, 24, 1, 512, 1, 1), .negative = true, MAMBA2, .name = "mamba2-signed",
            .what = "Mamba-2, 2 exp(dt A) - 1" },
    { SHAPE(256, 512, 8, 1, 512, 1, 1), .inputs = mlstm_inputs, .ours = mlstm_ours,
            .flops = gla_flops, .state = mlstm_state, .name = "mlstm",
            .what = "mLSTM, heads of xLSTM-7B" },
    { SHAPE(64, 64, 32, 1, 1, 1, 24), GLA_OURS, GLA_STOCK, .name = "gla-decode",
            .what = "GLA, one token" },
    { SHAPE(16, 1536, 1, 1, 1, 1, 24), MAMBA, MAMBA_STOCK, .name = "mamba-decode",
            .what = "Mamba, one token" },
    { SHAPE(128, 64, 24, 1, 1, 1, 24), MAMBA2, MAMBA2_STOCK, .name = "mamba2-decode",
            .what = "Mamba-2, one token" },
    { .name = NULL },
};
