// Cases of the Householder scan.

#include "bench-case.h"

#include <math.h>

//
// Delta rule, gated or not, with n_h factors a token
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
    in->k    = op_input(in, OP_FILL_UNIT, -1.0f, 1.0f, s->d_k, s->heads, s->n_h, T);
    in->v    = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, s->n_h, T);
    in->beta = op_input(in, OP_FILL_UNIFORM, 0.0f, 2.0f, 1, s->heads, s->n_h, T);

    if (c->negative) {
        in->gate = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, gate_width, s->heads, 1, T);
        return;
    }
    // without a gate too, the stock op multiplies by exp(log-gate)
    const float lowest = c->gate == OP_GATE_NONE ? 0.0f : -0.1f;
    in->log_gate       = in->stock_log_gate =
            op_input(in, OP_FILL_UNIFORM, lowest, 0.0f, gate_width, s->heads, 1, T);
    if (s->n_h > 1) {
        in->stock_log_gate =
                op_input(in, OP_FILL_FIRST, 0.0f, 0.0f, gate_width, s->heads, s->n_h, T);
    }
}

static struct op_output delta_ours(const struct bench_case * c, const struct op_shape * s,
        const struct op_inputs * in, struct ggml_context * ctx, struct ggml_tensor * state,
        enum ggml_scan_path path, char * err, size_t err_size) {
    struct ggml_tensor * gate = c->gate == OP_GATE_NONE ? NULL
                                : c->negative           ? in->gate
                                                        : ggml_exp(ctx, in->log_gate);

    const struct ggml_householder_scan_args args = {
        .state = state,
        .ids   = in->ids,
        .q     = in->q,
        .k     = in->k,
        .v     = in->v,
        .beta  = in->beta,
        .gate  = gate,
        .scale = 1.0f / sqrtf((float) s->d_k),
        .path  = path,
    };
    return (struct op_output) {
        .tensor = ggml_householder_scan(ctx, &args, err, err_size),
        .stride = s->d_v * s->heads,
    };
}

static struct op_output delta_stock(const struct bench_case * c, const struct op_shape * s,
        const struct op_inputs * in, struct ggml_context * ctx, struct ggml_tensor * state) {
    (void) c;

    // a factor is a token of its own: the gate is 1 but on the first, the query 0 but on the last
    const int64_t H = s->heads;
    const int64_t T = s->tokens * s->n_h;
    const int64_t n = s->seqs;

    struct ggml_tensor * result =
            ggml_gated_delta_net(ctx, ggml_reshape_4d(ctx, in->stock_q, s->d_k, H, T, n),
                    ggml_reshape_4d(ctx, in->k, s->d_k, H, T, n),
                    ggml_reshape_4d(ctx, in->v, s->d_v, H, T, n),
                    ggml_reshape_4d(ctx, in->stock_log_gate, in->stock_log_gate->ne[0], H, T, n),
                    ggml_reshape_4d(ctx, in->beta, 1, H, T, n),
                    ggml_reshape_4d(ctx, state, s->d_k, s->d_v, H, n), 1);

    const int64_t width = s->d_v * H; // outputs of one sub-token
    return (struct op_output) {
        .tensor = result,
        .store  = op_store_tail(ctx, result, width * T * n, state),
        .first  = width * (s->n_h - 1),
        .stride = width * s->n_h,
    };
}

static const char * delta_limit(const struct op_shape * s) {
    return s->d_k != s->d_v ? "ggml_gated_delta_net wants d_k = d_v" : NULL;
}

// The gate 1, a factor 4 (Sᵀk and the update), the read-out 2, for each element of the state. These
// are the operations of the equations; the chunked form computes the same with another number of
// them, and its GFLOP/s are an equivalent.
static double delta_flops(const struct bench_case * c, const struct op_shape * s) {
    const double per_element = (c->gate != OP_GATE_NONE) + 4.0 * (double) s->n_h + 2.0;

    return per_element * (double) (s->d_k * s->d_v * s->heads);
}

//
// RWKV-7: diagonal plus rank one
//
//     u = Sᵀr;   S ← g ∘ S − w uᵀ + k vᵀ;   o = Sᵀq           r = κ̂ of norm 1, w = κ̂ ∘ a, a in (0, 1)
//

static void rwkv7_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    (void) c;
    const int64_t T = s->tokens * s->seqs;

    in->q     = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->k     = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->v     = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_v, s->heads, 1, T);
    in->gate  = op_input(in, OP_FILL_UNIFORM, 0.545f, 1.0f, s->d_k, s->heads, 1,
             T); // the range of exp(−e^{−1/2} σ(·))
    in->r     = op_input(in, OP_FILL_UNIT, -1.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->w     = op_input(in, OP_FILL_TIMES, 0.0f, 1.0f, s->d_k, s->heads, 1, T);
    in->neg_w = op_input(in, OP_FILL_TIMES, -1.0f, -1.0f, s->d_k, s->heads, 1, T);
}

static struct op_output rwkv7_ours(const struct bench_case * c, const struct op_shape * s,
        const struct op_inputs * in, struct ggml_context * ctx, struct ggml_tensor * state,
        enum ggml_scan_path path, char * err, size_t err_size) {
    (void) c;

    const struct ggml_householder_scan_args args = {
        .state = state,
        .ids   = in->ids,
        .q     = in->q,
        .k     = in->k,
        .v     = in->v,
        .gate  = in->gate,
        .r     = in->r,
        .w     = in->w,
        .scale = 1.0f,
        .path  = path,
    };
    return (struct op_output) {
        .tensor = ggml_householder_scan(ctx, &args, err, err_size),
        .stride = s->d_v * s->heads,
    };
}

// S ← S ∘ w + v kᵀ + (S a) bᵀ with S transposed: a = r, b = −w
static struct op_output rwkv7_stock(const struct bench_case * c, const struct op_shape * s,
        const struct op_inputs * in, struct ggml_context * ctx, struct ggml_tensor * state) {
    (void) c;
    const int64_t T = s->tokens * s->seqs;

    struct ggml_tensor * src[] = { in->q, in->gate, in->k, in->v, in->r, in->neg_w };
    for (int i = 0; i < 6; ++i) {
        src[i] = ggml_reshape_3d(ctx, src[i], s->d_k, s->heads, T);
    }
    struct ggml_tensor * result =
            ggml_rwkv_wkv7(ctx, src[0], src[1], src[2], src[3], src[4], src[5], state);

    const int64_t width = s->d_v * s->heads;
    return (struct op_output) {
        .tensor = result,
        .store  = op_store_tail(ctx, result, width * T, state),
        .stride = width,
    };
}

// Its vector code leaves the end of a row out where the row is not a multiple of 64 floats
// (AVX-512) or 32 (AVX2).
static const char * rwkv7_limit(const struct op_shape * s) {
    return s->d_k != s->d_v || s->d_k % 64 != 0 ? "ggml_rwkv_wkv7 wants d_k = d_v, a multiple of 64"
                                                : NULL;
}

// u 2, gate 1, the two rank-one terms 2 each, the read-out 2, for each element of the state.
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
            .name = "deltaproduct", .what = "DeltaProduct; stock is fed n_h sub-tokens a token" },
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
};
const int n_cases_householder = sizeof(cases_householder) / sizeof(cases_householder[0]);
