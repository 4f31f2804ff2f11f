// Cases of the Householder scan.

#include "bench-case.h"

#include <math.h>

// Inputs that a family does not use are NULL.
static struct op_output householder_scan(
        const struct op_build * b, struct ggml_tensor * gate, float scale) {
    const struct op_inputs *                in = b->in;
    const struct ggml_householder_scan_args args = {
        .state = b->state,
        .ids = in->ids,
        .q = in->q,
        .k = in->k,
        .v = in->v,
        .beta = in->beta,
        .gate = gate,
        .r = in->r,
        .w = in->w,
        .scale = scale,
        .path = b->path,
    };
    return (struct op_output) {
        .tensor = ggml_householder_scan(b->ctx, &args, b->err),
        .stride = b->s->d_v * b->s->heads,
    };
}

//
// Delta rule, gated or not, with n_h factors per token
//
//     S ← g ∘ S;   n_h times  S ← S + β k (v − Sᵀk)ᵀ;   o = Sᵀq / √d_k
//

static void delta_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    const int64_t T = s->tokens * s->seqs;
    const int64_t gate_width = c->gate == OP_GATE_CHANNEL ? s->d_k : 1;

    in->q = in->stock_q = op_input(in, OP_FILL_UNIT, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    if (s->n_h > 1) {
        in->stock_q = op_input(in, OP_FILL_LAST, 0.0f, 0.0f, s->d_k, s->heads, s->n_h, T);
    }
    in->k = op_input(in, OP_FILL_UNIT, -1.0f, 1.0f, s->d_k, s->heads, s->n_h, T);
    in->v = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, s->n_h, T);
    in->beta = op_input(in, OP_FILL_UNIFORM, 0.0f, 2.0f, 1, s->heads, s->n_h, T);

    if (c->negative) {
        in->gate = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, gate_width, s->heads, 1, T);
        return;
    }
    // the stock op multiplies by exp(log-gate) even without a gate
    const float lowest = c->gate == OP_GATE_NONE ? 0.0f : -0.1f;
    in->log_gate = in->stock_log_gate =
            op_input(in, OP_FILL_UNIFORM, lowest, 0.0f, gate_width, s->heads, 1, T);
    if (s->n_h > 1) {
        in->stock_log_gate =
                op_input(in, OP_FILL_FIRST, 0.0f, 0.0f, gate_width, s->heads, s->n_h, T);
    }
}

static struct op_output delta_ours(const struct op_build * b) {
    const float scale = 1.0f / sqrtf((float) b->s->d_k);
    return householder_scan(b,
            b->c->gate == OP_GATE_NONE ? NULL
            : b->c->negative           ? b->in->gate
                                       : ggml_exp(b->ctx, b->in->log_gate),
            scale);
}

// Every factor becomes a token: the gate is 1 except on the first, the query 0 except on the last.
static struct op_output delta_stock(const struct op_build * b) {
    const struct op_inputs * in = b->in;
    struct ggml_context *    ctx = b->ctx;
    struct ggml_tensor *     gate = in->stock_log_gate;
    const int64_t            d_k = b->s->d_k, d_v = b->s->d_v, H = b->s->heads, n = b->s->seqs;
    const int64_t            T = b->s->tokens * b->s->n_h;

    return op_stock_output(
            b, ggml_gated_delta_net(ctx, ggml_reshape_4d(ctx, in->stock_q, d_k, H, T, n),
                       ggml_reshape_4d(ctx, in->k, d_k, H, T, n),
                       ggml_reshape_4d(ctx, in->v, d_v, H, T, n),
                       ggml_reshape_4d(ctx, gate, gate->ne[0], H, T, n),
                       ggml_reshape_4d(ctx, in->beta, 1, H, T, n),
                       ggml_reshape_4d(ctx, b->state, d_k, d_v, H, n), 1));
}

static const char * delta_limit(const struct op_shape * s) {
    return s->d_k != s->d_v ? "ggml_gated_delta_net wants d_k = d_v" : NULL;
}

// Per element of the state: gate 1, each factor 4 (Sᵀk and the update), read-out 2. These are the
// operations of the equations; the chunk path computes the same with a different number.
static double delta_flops(const struct bench_case * c, const struct op_shape * s) {
    const double per_element = (c->gate != OP_GATE_NONE) + 4.0 * (double) s->n_h + 2.0;

    return per_element * (double) (s->d_k * s->d_v * s->heads);
}

//
// RWKV-7: diagonal plus rank one
//
//     u = Sᵀr;   S ← g ∘ S − w uᵀ + k vᵀ;   o = Sᵀq
//
// r = κ̂ of norm 1, w = κ̂ ∘ a, a in (0, 1), g = exp(−e^{−1/2} σ(·)) in (0.545, 1)
//

static void rwkv7_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    (void) c;
    const int64_t T = s->tokens * s->seqs;

    in->q = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->k = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->v = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, 1, T);
    in->gate = op_input(in, OP_FILL_UNIFORM, 0.545f, 1.0f, s->d_k, s->heads, 1, T);
    in->r = op_input(in, OP_FILL_UNIT, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->w = op_input(in, OP_FILL_TIMES, 0.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->neg_w = op_input(in, OP_FILL_TIMES, -1.0f, -1.0f, s->d_k, s->heads, 1, T);
}

static struct op_output rwkv7_ours(const struct op_build * b) {
    return householder_scan(b, b->in->gate, 1.0f);
}

// S ← S ∘ w + v kᵀ + (S a) bᵀ with S transposed: a = r, b = −w
static struct op_output rwkv7_stock(const struct op_build * b) {
    const struct op_inputs * in = b->in;
    struct ggml_tensor *     src[] = { in->q, in->gate, in->k, in->v, in->r, in->neg_w };

    for (int i = 0; i < 6; ++i) {
        src[i] = ggml_reshape_3d(b->ctx, src[i], b->s->d_k, b->s->heads, b->s->tokens * b->s->seqs);
    }
    return op_stock_output(
            b, ggml_rwkv_wkv7(b->ctx, src[0], src[1], src[2], src[3], src[4], src[5], b->state));
}

// ggml's vector code omits the end of rows that are not a multiple of 64 floats (AVX-512) or 32
// (AVX2).
static const char * rwkv7_limit(const struct op_shape * s) {
    return s->d_k != s->d_v || s->d_k % 64 != 0 ? "ggml_rwkv_wkv7 wants d_k = d_v, a multiple of 64"
                                                : NULL;
}

// Per element of the state: u 2, gate 1, two rank-one terms 2 each, read-out 2.
static double rwkv7_flops(const struct bench_case * c, const struct op_shape * s) {
    (void) c;
    return 9.0 * (double) (s->d_k * s->d_v * s->heads);
}

//
// Table
//

#define DELTA_OURS \
    .inputs = delta_inputs, .ours = delta_ours, .flops = delta_flops, .products = true
#define DELTA_STOCK                                                                        \
    .stock_name = "ggml_gated_delta_net, cpy", .stock = delta_stock, .limit = delta_limit, \
    .transposed = true
#define RWKV7                                                                        \
    .inputs = rwkv7_inputs, .ours = rwkv7_ours, .flops = rwkv7_flops,                \
    .stock_name = "ggml_rwkv_wkv7, cpy", .stock = rwkv7_stock, .limit = rwkv7_limit, \
    .transposed = true

//                d_k  d_v heads n_h T  seqs layers
#define SHAPE(...) .shape = { __VA_ARGS__ }

const struct bench_case cases_householder[] = {
    { SHAPE(128, 128, 16, 1, 512, 1, 1), .goal = 4.0, DELTA_OURS, DELTA_STOCK, .name = "delta",
            .what = "delta rule" },
    { SHAPE(128, 128, 16, 1, 1, 1, 24), .goal = 1.5, DELTA_OURS, DELTA_STOCK,
            .name = "delta-decode", .what = "delta rule, one token" },
    { SHAPE(128, 128, 16, 3, 512, 1, 1), .goal = 5.0, DELTA_OURS, DELTA_STOCK,
            .name = "deltaproduct", .what = "DeltaProduct; stock gets n_h sub-tokens per token" },
    { SHAPE(64, 64, 32, 1, 512, 1, 1), .goal = 2.0, RWKV7, .name = "rwkv7", .what = "RWKV-7" },
    { SHAPE(64, 64, 32, 1, 1, 1, 24), RWKV7, .name = "rwkv7-decode", .what = "RWKV-7, one token" },
    { SHAPE(128, 128, 16, 1, 512, 1, 1), .gate = OP_GATE_HEAD, DELTA_OURS, DELTA_STOCK,
            .name = "gdn", .what = "Gated DeltaNet" },
    { SHAPE(96, 192, 30, 1, 512, 1, 1), .gate = OP_GATE_HEAD, DELTA_OURS, DELTA_STOCK,
            .name = "gdn-96x192", .what = "Gated DeltaNet, heads of OLMo-Hybrid" },
    { SHAPE(256, 512, 6, 1, 512, 1, 1), .gate = OP_GATE_HEAD, DELTA_OURS, DELTA_STOCK,
            .name = "gdn-256x512", .what = "Gated DeltaNet, heads of fla's default" },
    { SHAPE(128, 128, 16, 1, 512, 1, 1), .gate = OP_GATE_CHANNEL, DELTA_OURS, DELTA_STOCK,
            .name = "kda", .what = "KDA, a gate per key channel" },
    { SHAPE(128, 128, 16, 1, 512, 1, 1), .gate = OP_GATE_CHANNEL, .negative = true, DELTA_OURS,
            .name = "kda-signed", .what = "KDA, gates in [-1, 1]" },
    { .name = NULL },
};
