// Our ops against the stock ops of ggml, in every case that those support. Both compute in F32, in
// different orders. The stock ops need sequences of equal length, return outputs and new states in
// one tensor, and most of them store the state transposed (contiguous over keys).

#include "kit/nmse.h"
#include "kit/scan-case.h"

enum { N_SEQS = 2 };

// A dense copy of x with other dimensions and the same number of elements
static struct ggml_tensor * shaped(struct test_arena * a, const struct ggml_tensor * x, int64_t ne0,
        int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor * y = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, x->name, ne0, ne1, ne2, ne3);
    memcpy(y->data, x->data, ggml_nbytes(y));
    return y;
}

static struct ggml_tensor * dense(struct test_arena * a, const char * name, int64_t ne0,
        int64_t ne1, int64_t ne2, int64_t ne3) {
    return test_tensor(a, GGML_TYPE_F32, TEST_DENSE, name, ne0, ne1, ne2, ne3);
}

static void map(struct ggml_tensor * dst, const struct ggml_tensor * src, double (*f)(double)) {
    for (int64_t i = 0; i < ggml_nelements(src); ++i) {
        ((float *) dst->data)[i] = (float) f(((const float *) src->data)[i]);
    }
}

static double negate(double x) {
    return -x;
}
static double softplus(double x) {
    return x > 20.0 ? x : log1p(exp(x));
}

// n matrices [rows][cols] → [cols][rows]
static void transpose(float * dst, const float * src, int64_t n, int64_t rows, int64_t cols) {
    for (int64_t m = 0; m < n; ++m) {
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
                dst[(m * cols + j) * rows + i] = src[(m * rows + i) * cols + j];
            }
        }
    }
}

// N_SEQS sequences of n tokens in a row; sequence s is updated in place in slot s
static struct ggml_tensor * plain_ids(struct test_arena * a, int64_t n) {
    struct ggml_tensor * ids =
            test_tensor(a, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, N_SEQS, 1, 1);
    for (int32_t s = 0; s < N_SEQS; ++s) {
        const int32_t id[GGML_SCAN_SNAPS] = {
            [GGML_SCAN_SLOT_IN] = s,
            [GGML_SCAN_SLOT_OUT] = s,
            [GGML_SCAN_FIRST] = s * (int32_t) n,
            [GGML_SCAN_COUNT] = (int32_t) n,
        };
        memcpy((int32_t *) ids->data + s * GGML_SCAN_SNAPS, id, sizeof(id));
    }
    return ids;
}

struct limits {
    struct test_worst out, state, chunk;
};

static void limits_print(const char * name, const struct limits * lim) {
    printf("%s:\n", name);
    test_worst_print(&lim->out);
    test_worst_print(&lim->state);
    test_worst_print(&lim->chunk);
}

static struct limits limits_new(void) {
    return (struct limits) {
        .out = { .what = "outputs", .limit = 1e-12 },
        .state = { .what = "states", .limit = 1e-12 },
        .chunk = { .what = "chunk and auto", .limit = 1e-10 },
    };
}

// Compares every path of our op with the outputs and states of the stock op.
static void compare(struct test * t, struct test_arena * a, struct test_scan * s, const float * out,
        const float * state, struct limits * lim) {
    struct ggml_tensor * own = *test_scan_state(s);
    float *              before = test_copy(own);
    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (test_scan_has_path(s, path)) {
            const bool step = test_scan_is_step(s, path);
            char       where[256];
            snprintf(where, sizeof(where), "%s, %s", test_path_names[path], s->text);
            test_restore(own, before);
            struct ggml_tensor * op = test_scan_build(t, a, s, path);
            test_compute(a, op, 2);
            test_bound(t, step ? &lim->out : &lim->chunk,
                    test_nmse(op->data, out, ggml_nelements(op)), where);
            test_bound(t, step ? &lim->state : &lim->chunk,
                    test_nmse(own->data, state, ggml_nelements(own)), where);
        }
    }
    free(before);
}

//
// ggml_gated_delta_net: logarithms of gates, heads of q and k modulo their number, scale 1/√S,
// square and transposed states
//

// n_h factors per token are n_h tokens of the stock op: the first has the gate, the last the query.
static void test_gated_delta_net(struct test * t) {
    struct limits   lim = limits_new();
    struct test_rng rng = { 1 };
    for (int c = 0; c < 24; ++c) {
        static const int  sizes[3] = { 16, 64, 128 };
        const int64_t     S = sizes[c % 3], H = 3, n = 40, T = n * N_SEQS;
        const int64_t     n_h = 1 + c / 3 % 4;
        const int64_t     n_g = c < 12 ? 1 : S; // gate per head or per channel
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = { .op = TEST_HOUSEHOLDER };

        s.householder = (struct ggml_householder_scan_args) {
            .state = dense(&a, "state", S * S * H, N_SEQS, 1, 1),
            .ids = plain_ids(&a, n),
            .q = dense(&a, "q", S, H, 1, T),
            .k = dense(&a, "k", S, H, n_h, T),
            .v = dense(&a, "v", S, H, n_h, T),
            .beta = dense(&a, "beta", 1, H, n_h, T),
            .gate = dense(&a, "gate", n_g, H, 1, T),
            .scale = 1.0f / sqrtf((float) S),
        };
        snprintf(s.text, sizeof(s.text), "S %d, n_h %d, gate per %s", (int) S, (int) n_h,
                n_g == 1 ? "head" : "channel");
        test_fill_normal(s.householder.state, &rng, 1.0);
        test_fill_unit(s.householder.q, &rng, 0.0);
        test_fill_unit(s.householder.k, &rng, 0.0);
        test_fill_normal(s.householder.v, &rng, 1.0);
        test_fill_uniform(s.householder.beta, &rng, 0.0, 2.0);

        // in memory, our tokens and factors are the sub-tokens of the stock op
        struct ggml_tensor * q = dense(&a, "q", S, H, n_h * n, N_SEQS);
        struct ggml_tensor * g = dense(&a, "g", n_g, H, n_h * n, N_SEQS);
        struct ggml_tensor * k = shaped(&a, s.householder.k, S, H, n_h * n, N_SEQS);
        struct ggml_tensor * v = shaped(&a, s.householder.v, S, H, n_h * n, N_SEQS);
        struct ggml_tensor * beta = shaped(&a, s.householder.beta, 1, H, n_h * n, N_SEQS);
        struct ggml_tensor * init = dense(&a, "init", S, S, H, N_SEQS);
        transpose(init->data, s.householder.state->data, H * N_SEQS, S, S);
        test_fill(q, 0.0f);
        test_fill(g, 0.0f);
        for (int64_t tok = 0; tok < T; ++tok) {
            memcpy((float *) q->data + (tok * n_h + n_h - 1) * S * H,
                    (float *) s.householder.q->data + tok * S * H, S * H * sizeof(float));
            for (int64_t i = 0; i < n_g * H; ++i) {
                const float log_gate = (float) test_uniform(&rng, -0.2, 0.0);
                ((float *) g->data)[tok * n_h * n_g * H + i] = log_gate;
                ((float *) s.householder.gate->data)[tok * n_g * H + i] = (float) exp(log_gate);
            }
        }
        struct ggml_tensor * stock = ggml_gated_delta_net(a.ctx, q, k, v, g, beta, init, 1);
        test_compute(&a, stock, 2);
        float * out = malloc(S * H * T * sizeof(float));
        float * state = malloc(ggml_nbytes(init));
        for (int64_t tok = 0; tok < T; ++tok) {
            memcpy(out + tok * S * H, (float *) stock->data + (tok * n_h + n_h - 1) * S * H,
                    S * H * sizeof(float));
        }
        transpose(state, (float *) stock->data + n_h * S * H * T, H * N_SEQS, S, S);
        compare(t, &a, &s, out, state, &lim);
        free(out);
        free(state);
        test_arena_free(&a);
    }
    limits_print("ggml_gated_delta_net, S {16,64,128}, gate per head and per channel, n_h 1..4 "
                 "(n_h sub-tokens per token)",
            &lim);
}

//
// ggml_rwkv_wkv7: on some CPUs correct only for heads of 64 or 128
//

static void test_rwkv_wkv7(struct test * t) {
    struct limits   lim = limits_new();
    struct test_rng rng = { 2 };
    for (int64_t S = 64; S <= 128; S += 64) {
        const int64_t     H = 3, n = 40, T = n * N_SEQS;
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan                    s = { .op = TEST_HOUSEHOLDER };
        struct ggml_householder_scan_args * args = &s.householder;

        *args = (struct ggml_householder_scan_args) {
            .state = dense(&a, "state", S * S * H, N_SEQS, 1, 1),
            .ids = plain_ids(&a, n),
            .q = dense(&a, "q", S, H, 1, T),
            .k = dense(&a, "k", S, H, 1, T),
            .v = dense(&a, "v", S, H, 1, T),
            .r = dense(&a, "r", S, H, 1, T),
            .w = dense(&a, "w", S, H, 1, T),
            .gate = dense(&a, "gate", S, H, 1, T),
            .scale = 1.0f,
        };
        snprintf(s.text, sizeof(s.text), "S %d", (int) S);
        test_fill_normal(args->state, &rng, 1.0);
        test_fill_normal(args->q, &rng, 0.2);
        test_fill_normal(args->k, &rng, 0.2);
        test_fill_normal(args->v, &rng, 1.0);
        test_fill_unit(args->r, &rng, 0.0);
        test_fill_uniform(args->gate, &rng, 0.545, 1.0);
        for (int64_t i = 0; i < S * H * T; ++i) {
            ((float *) args->w->data)[i] =
                    ((float *) args->r->data)[i] * (float) test_uniform(&rng, 0.0, 1.0);
        }
        struct ggml_tensor * minus_r = dense(&a, "a", S, H, T, 1);
        map(minus_r, args->r, negate);
        struct ggml_tensor * init = dense(&a, "init", S * S * H, N_SEQS, 1, 1);
        transpose(init->data, args->state->data, H * N_SEQS, S, S);
        struct ggml_tensor * stock = ggml_rwkv_wkv7(a.ctx, shaped(&a, args->q, S, H, T, 1),
                shaped(&a, args->gate, S, H, T, 1), shaped(&a, args->k, S, H, T, 1),
                shaped(&a, args->v, S, H, T, 1), minus_r, shaped(&a, args->w, S, H, T, 1), init);
        test_compute(&a, stock, 2);
        float * state = malloc(ggml_nbytes(init));
        transpose(state, (float *) stock->data + S * H * T, H * N_SEQS, S, S);
        compare(t, &a, &s, stock->data, state, &lim);
        free(state);
        test_arena_free(&a);
    }
    limits_print("ggml_rwkv_wkv7, S {64,128}", &lim);
}

//
// ggml_gated_linear_attn, ggml_rwkv_wkv6: gates are multipliers, states have our layout
//

static void test_linear(struct test * t, bool bonus) {
    struct limits   lim = limits_new();
    struct test_rng rng = { 3 + bonus };
    for (int64_t S = 64; S <= 128; S += 64) {
        const int64_t     H = 3, n = 40, T = n * N_SEQS;
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan               s = { .op = TEST_SIGNED };
        struct ggml_signed_scan_args * args = &s.sign;

        *args = (struct ggml_signed_scan_args) {
            .state = dense(&a, "state", S * S * H, N_SEQS, 1, 1),
            .ids = plain_ids(&a, n),
            .c = dense(&a, "c", S, H, 1, T),
            .b = dense(&a, "b", S, H, 1, T),
            .x = dense(&a, "x", S, H, 1, T),
            .gate = dense(&a, "gate", S, H, 1, T),
            .scale = bonus ? 1.0f : 0.125f,
        };
        snprintf(s.text, sizeof(s.text), "S %d", (int) S);
        test_fill_normal(args->state, &rng, 1.0);
        test_fill_normal(args->c, &rng, 1.0);
        test_fill_normal(args->b, &rng, 1.0);
        test_fill_normal(args->x, &rng, 1.0);
        test_fill_uniform(args->gate, &rng, -1.0, 1.0);
        struct ggml_tensor * k = shaped(&a, args->b, S, H, T, 1);
        struct ggml_tensor * v = shaped(&a, args->x, S, H, T, 1);
        struct ggml_tensor * q = shaped(&a, args->c, S, H, T, 1);
        struct ggml_tensor * g = shaped(&a, args->gate, S, H, T, 1);
        struct ggml_tensor * init = shaped(&a, args->state, S * S * H, N_SEQS, 1, 1);
        struct ggml_tensor * stock = NULL;
        if (bonus) {
            args->bonus = dense(&a, "bonus", S, H, 1, 1);
            test_fill_normal(args->bonus, &rng, 1.0);
            stock = ggml_rwkv_wkv6(a.ctx, k, v, q, shaped(&a, args->bonus, S, H, 1, 1), g, init);
        } else {
            stock = ggml_gated_linear_attn(a.ctx, k, v, q, g, init, args->scale);
        }
        test_compute(&a, stock, 2);
        compare(t, &a, &s, stock->data, (float *) stock->data + S * H * T, &lim);
        test_arena_free(&a);
    }
    limits_print(bonus ? "ggml_rwkv_wkv6, S {64,128}, gates of any sign"
                       : "ggml_gated_linear_attn, S {64,128}, gates of any sign",
            &lim);
}

//
// ggml_ssm_scan: applies softplus itself, states transposed
//

static void test_ssm_scan(struct test * t, bool mamba2) {
    struct limits   lim = limits_new();
    struct test_rng rng = { 5 + mamba2 };
    for (int c = 0; c < 3; ++c) {
        static const int64_t shapes[2][3][4] = {
            // d_state, width of a head, heads, groups
            { { 16, 1, 96, 1 }, { 8, 1, 40, 1 }, { 16, 1, 7, 1 } },
            { { 128, 64, 4, 1 }, { 64, 32, 6, 2 }, { 16, 24, 4, 4 } },
        };
        const int64_t N = shapes[mamba2][c][0], P = shapes[mamba2][c][1], H = shapes[mamba2][c][2],
                      G = shapes[mamba2][c][3];
        const int64_t     n = 40, T = n * N_SEQS;
        struct test_arena a;
        test_arena_init(&a);

        // the stock op
        struct ggml_tensor * init = dense(&a, "s", N, P, H, N_SEQS);
        struct ggml_tensor * x = dense(&a, "x", P, H, n, N_SEQS);
        struct ggml_tensor * dt = dense(&a, "dt", H, n, N_SEQS, 1);
        struct ggml_tensor * A = dense(&a, "A", mamba2 ? 1 : N, H, 1, 1);
        struct ggml_tensor * B = dense(&a, "B", N, G, n, N_SEQS);
        struct ggml_tensor * C = dense(&a, "C", N, G, n, N_SEQS);
        struct ggml_tensor * ids =
                test_tensor(&a, GGML_TYPE_I32, TEST_DENSE, "ids", N_SEQS, 1, 1, 1);
        for (int32_t i = 0; i < N_SEQS; ++i) {
            ((int32_t *) ids->data)[i] = i;
        }
        test_fill_normal(init, &rng, 1.0);
        test_fill_normal(x, &rng, 1.0);
        test_fill_uniform(dt, &rng, -6.0, 1.0);
        test_fill_uniform(A, &rng, -4.0, -0.1);
        test_fill_normal(B, &rng, 1.0);
        test_fill_normal(C, &rng, 1.0);
        struct ggml_tensor * stock = ggml_ssm_scan(a.ctx, init, x, dt, A, B, C, ids, 1);
        test_compute(&a, stock, 2);

        // our op: Mamba has one head with all channels, and A is a transposed view
        struct test_scan     s = { .op = TEST_SIGNED };
        struct ggml_tensor * soft = dense(&a, "dt", mamba2 ? 1 : H, mamba2 ? H : 1, 1, T);
        map(soft, dt, softplus);
        s.sign = (struct ggml_signed_scan_args) {
            .state = dense(&a, "state", N * P * H, N_SEQS, 1, 1),
            .ids = plain_ids(&a, n),
            .c = shaped(&a, C, N, G, 1, T),
            .b = shaped(&a, B, N, G, 1, T),
            .x = shaped(&a, x, mamba2 ? P : H, mamba2 ? H : 1, 1, T),
            .dt = soft,
            .A = mamba2 ? shaped(&a, A, 1, 1, H, 1) : ggml_transpose(a.ctx, A),
            .form = GGML_SIGNED_SCAN_EXP,
            .scale = 1.0f,
        };
        snprintf(s.text, sizeof(s.text), "d_state %d, heads of %d, %d heads, %d groups", (int) N,
                (int) P, (int) H, (int) G);
        const int64_t n_mat = mamba2 ? H * N_SEQS : N_SEQS;
        const int64_t cols = mamba2 ? P : H;
        float *       state = malloc(ggml_nbytes(init));
        transpose(s.sign.state->data, init->data, n_mat, cols, N);
        transpose(state, (float *) stock->data + P * H * T, n_mat, cols, N);
        compare(t, &a, &s, stock->data, state, &lim);
        free(state);
        test_arena_free(&a);
    }
    limits_print(mamba2 ? "ggml_ssm_scan, Mamba-2, 1, 2 and 4 groups"
                        : "ggml_ssm_scan, Mamba, d_state {8,16}",
            &lim);
}

//
// ggml_concat + ggml_ssm_conv (+ ggml_add, ggml_silu): tokens innermost, after the tail
//

static void test_ssm_conv(struct test * t) {
    struct limits   lim = limits_new();
    struct test_rng rng = { 7 };
    for (int c = 0; c < 6; ++c) {
        const int64_t width = 2 + c / 2, n_ch = 24 + 13 * c, n = c == 3 ? 2 : 30, T = n * N_SEQS;
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = { .op = TEST_CONV };

        s.conv = (struct ggml_short_conv_args) {
            .state = dense(&a, "state", n_ch * (width - 1), N_SEQS, 1, 1),
            .ids = plain_ids(&a, n),
            .x = dense(&a, "x", n_ch, T, 1, 1),
            .weight = dense(&a, "weight", width, n_ch, 1, 1),
            .bias = c % 2 == 0 ? NULL : dense(&a, "bias", n_ch, 1, 1, 1),
            .activation = c % 2 == 1 ? GGML_SHORT_CONV_SILU : GGML_SHORT_CONV_NONE,
        };
        snprintf(s.text, sizeof(s.text), "width %d, %d channels, %d tokens", (int) width,
                (int) n_ch, (int) n);
        test_fill_normal(s.conv.state, &rng, 1.0);
        test_fill_normal(s.conv.x, &rng, 1.0);
        test_fill_normal(s.conv.weight, &rng, 1.0);

        struct ggml_tensor * tail = dense(&a, "tail", width - 1, n_ch, N_SEQS, 1);
        struct ggml_tensor * xt = dense(&a, "xt", n, n_ch, N_SEQS, 1);
        transpose(tail->data, s.conv.state->data, N_SEQS, width - 1, n_ch);
        transpose(xt->data, s.conv.x->data, N_SEQS, n, n_ch);
        struct ggml_tensor * sx = ggml_concat(a.ctx, tail, xt, 0);
        struct ggml_tensor * stock = ggml_ssm_conv(a.ctx, sx, s.conv.weight);
        test_alloc(&a, sx);
        if (s.conv.bias != NULL) {
            test_fill_normal(s.conv.bias, &rng, 1.0);
            test_alloc(&a, stock);
            stock = ggml_add(a.ctx, stock, s.conv.bias);
            test_alloc(&a, stock);
            stock = ggml_silu(a.ctx, stock);
        }
        test_compute(&a, stock, 2);

        // the new tail: the last width − 1 columns
        float * state = malloc(ggml_nbytes(s.conv.state));
        for (int64_t q = 0; q < N_SEQS; ++q) {
            for (int64_t w = 0; w < width - 1; ++w) {
                for (int64_t i = 0; i < n_ch; ++i) {
                    state[(q * (width - 1) + w) * n_ch + i] = test_get(sx, n + w, i, q, 0);
                }
            }
        }
        compare(t, &a, &s, stock->data, state, &lim);
        free(state);
        test_arena_free(&a);
    }
    limits_print("ggml_concat + ggml_ssm_conv, width 2..4, also with ggml_add + ggml_silu", &lim);
}

int main(void) {
    struct test t = { 0 };
    test_gated_delta_net(&t);
    test_rwkv_wkv7(&t);
    test_linear(&t, false);
    test_linear(&t, true);
    test_ssm_scan(&t, false);
    test_ssm_scan(&t, true);
    test_ssm_conv(&t);
    return test_end(&t, "test-stock-ops");
}
