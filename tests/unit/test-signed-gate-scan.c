// GGML_OP_SIGNED_SCAN on the CPU against the oracle: every transition, both forms of exp(dt A), the
// bonus, mLSTM against its definition without a stabilizer, ragged batches, slots, snapshots,
// strides, head counts; the same bits for any number of threads and any cut.

#include "kit/scan-checks.h"
#include "kit/scan-problem.h"

static void run(struct test * t, const struct test_problem * p, struct test_limits * lim,
        const int * threads, int n_threads, struct test_rng * rng) {
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = test_make_signed(&a, p, rng);
    test_scan_run(t, &a, &s, lim, threads, n_threads);
    test_arena_free(&a);
}

static const int sizes[] = { 8, 16, 24, 64, 96, 128, 192, 256 };
static const int other[] = { 24, 8, 64, 16, 192, 96, 256, 128 }; // d_v ≠ d_k

static void test_modes(struct test * t) {
    struct test_rng rng = { 1 };
    const int       all[3] = { 1, 2, 5 };
    int             n = 0;

    printf("signed, modes x d_k {8,16,24,64,96,128,192,256}; d_v is another of these, every third\n"
           "  time the same; 1..3 sequences, 0..3 snapshots, 5 layouts, head counts: divisors of\n"
           "  H = 2, 4, 6; outputs and states on every path;\n"
           "  bit-identical with 1, 2, 5 threads:\n");
    for (int mode = 0; mode < TEST_SIGNED_MODES; ++mode) {
        char what[2][64];
        snprintf(what[0], sizeof(what[0]), "%s, step and reference", test_signed_names[mode]);
        snprintf(what[1], sizeof(what[1]), "%s, chunk and auto", test_signed_names[mode]);
        struct test_limits lim = {
            .step = { .what = what[0], .limit = 1e-12 },
            .chunk = { .what = what[1], .limit = 1e-12 },
        };
        for (int size = 0; size < 8; ++size, ++n) {
            const bool big = sizes[size] >= 96;

            struct test_problem p = {
                .mode = mode,
                .d_k = sizes[size],
                .d_v = n % 3 == 2 ? sizes[size] : other[size],
                .H = big          ? 2
                     : n % 2 == 0 ? 4
                                  : 6,
                .heads = n,
                .layout = n % TEST_REVERSED, // all layouts with contiguous rows
                .state_gaps = n % 4 == 3,
                .batch = { .n_seqs = 1 + n % 3, .n_snap = n % 4, .turn = n },
            };
            p.batch.len[0] = big ? 70 : 139;
            p.batch.len[1] = 2 + n % 7;
            p.batch.len[2] = n % 2;
            run(t, &p, &lim, all, 3, &rng);
            if (mode == MODE_MLSTM) {
                p.eps = TEST_EPS_NUMERATOR;
                run(t, &p, &lim, all, 1, &rng);
            }
        }
        test_limits_print(&lim);
    }
}

// A state of 16 numbers per channel and many channels, as in Mamba; long sequences
static void test_shapes(struct test * t) {
    static const struct {
        int    mode;
        int    d_k, d_v, H, T;
        double gate_lo, limit;
    } cases[] = {
        { MODE_MAMBA, 16, 384, 1, 100, 0.0, 1e-12 },
        { MODE_MAMBA_SIGNED, 16, 384, 1, 100, 0.0, 1e-12 },
        { MODE_MAMBA_SIGNED, 16, 1, 96, 100, 0.0, 1e-12 }, // one channel per head
        { MODE_MAMBA2_SIGNED, 128, 64, 3, 100, 0.0, 1e-12 },
        { MODE_HEAD, 1, 1, 3, 100, 0.8, 1e-12 },     // the smallest
        { MODE_CHANNEL, 7, 13, 2, 100, 0.8, 1e-12 }, // not a multiple of any vector
        { MODE_BONUS, 7, 13, 2, 100, 0.8, 1e-12 },
        { MODE_MLSTM, 7, 13, 2, 100, 0.0, 1e-12 },
        { MODE_MAMBA, 7, 13, 2, 100, 0.0, 1e-12 },
        { MODE_HEAD, 64, 64, 1, 256, 0.97, 1e-12 },
        { MODE_CHANNEL, 64, 32, 1, 4096, 0.97, 1e-11 },
        { MODE_NONE, 16, 32, 1, 4096, 0.0, 1e-11 },
        { MODE_BONUS, 32, 32, 1, 4096, 0.97, 1e-11 },
        { MODE_MAMBA_SIGNED, 16, 64, 1, 4096, 0.0, 1e-11 },
        { MODE_MAMBA2_SIGNED, 32, 32, 1, 4096, 0.0, 1e-11 },
        { MODE_MLSTM, 16, 32, 1, 4096, 0.0, 1e-11 },
        { MODE_MLSTM_HARD, 16, 32, 1, 4096, 0.0, 1e-11 },
    };
    struct test_rng rng = { 2 };
    printf("signed, other shapes and long sequences:\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char what[2][64];
        snprintf(what[0], sizeof(what[0]), "%s, %dx%d, T = %d", test_signed_names[cases[i].mode],
                cases[i].d_k, cases[i].d_v, cases[i].T);
        snprintf(what[1], sizeof(what[1]), "%s, %dx%d, T = %d, chunk",
                test_signed_names[cases[i].mode], cases[i].d_k, cases[i].d_v, cases[i].T);
        struct test_limits lim = {
            .step = { .what = what[0], .limit = cases[i].limit },
            .chunk = { .what = what[1], .limit = cases[i].limit },
        };
        struct test_problem p = {
            .mode = cases[i].mode,
            .d_k = cases[i].d_k,
            .d_v = cases[i].d_v,
            .H = cases[i].H,
            .heads = 1,
            .gate_lo = cases[i].gate_lo,
            .batch = { .n_seqs = 1, .len = { cases[i].T }, .turn = 2 },
        };
        run(t, &p, &lim, (const int[]) { 2, 1 }, 2, &rng);
        test_limits_print(&lim);
    }
}

// dt A far below the range of exp: the state is forgotten, and no garbage takes its place.
static void test_far(struct test * t) {
    struct test_rng    rng = { 11 };
    struct test_limits lim = { .step = { .what = "Mamba, dt A of -1e31", .limit = 1e-12 } };
    printf("signed, exp(dt A) of 0:\n");
    for (int mode = MODE_MAMBA; mode <= MODE_MAMBA_SIGNED; ++mode) {
        struct test_arena a;
        test_arena_init(&a);
        struct test_problem p = {
            .mode = mode,
            .d_k = 16,
            .d_v = 40,
            .H = 1,
            .heads = 1,
            .batch = { .n_seqs = 1, .len = { 30 }, .turn = 2 },
        };
        struct test_scan s = test_make_signed(&a, &p, &rng);
        for (int64_t i = 0; i < 40; i += 3) { // some columns of a token among others
            test_set(s.sign.dt, i, 0, 0, 17, 1e30f);
            test_set(s.sign.x, i, 0, 0, 17, 1e-30f);
        }
        test_scan_run(t, &a, &s, &lim, (const int[]) { 1 }, 1);
        test_arena_free(&a);
    }
    test_limits_print(&lim);
}

static void test_cuts(struct test * t) {
    struct test_limits lim = {
        .step = { .what = "cut into calls, step and reference", .limit = 1e-11 },
        .chunk = { .what = "cut into calls, chunk and auto", .limit = 1e-11 },
    };
    struct test_rng rng = { 3 };
    int64_t         n_calls = 0;
    for (int c = 0; c < TEST_SIGNED_MODES; ++c) {
        struct test_problem p = {
            .mode = c,
            .d_k = sizes[c % 6],
            .d_v = sizes[(c + 2) % 6],
            .H = 2,
            .heads = c,
            .layout = c % TEST_REVERSED,
            .batch = { .n_seqs = 3, .len = { 280, 9, 37 }, .turn = c },
        };
        static const int64_t most[3] = { 20, 1, 90 };
        struct test_arena    a;
        test_arena_init(&a);
        struct test_scan s = test_make_signed(&a, &p, &rng);
        n_calls += test_scan_cuts(t, &a, &s, &lim, most[c % 3], &rng);
        test_arena_free(&a);
    }
    printf("signed, cuts: every mode, 3 sequences of 280, 9 and 37 tokens in %lld calls;\n"
           "  step and reference bit-identical to one call\n",
            (long long) n_calls);
    test_limits_print(&lim);
}

static void test_slots(struct test * t) {
    struct test_limits lim = { .chunk = { .what = "snapshots of chunk and auto", .limit = 1e-12 } };
    struct test_rng    rng = { 4 };
    int                n = 0;
    for (int c = 0; c < TEST_SIGNED_MODES; ++c) {
        struct test_problem p = {
            .mode = c,
            .d_k = sizes[c % 4],
            .d_v = sizes[(c + 1) % 4],
            .H = 2,
            .heads = c,
        };
        struct test_arena a;
        struct test_scan  s;
        for (int turn = 0; turn < 3; ++turn) { // in place, forked, from zero
            static const int64_t lengths[3] = { 1, 3, 258 };

            const int64_t length = lengths[(c + turn) % 3];

            p.batch = (struct test_batch) {
                .n_seqs = 1, .len = { length }, .n_snap = 5, .turn = turn
            };
            test_arena_init(&a);
            s = test_make_signed(&a, &p, &rng);
            test_scan_snapshots(t, &a, &s, &lim);
            test_arena_free(&a);
        }

        p.batch = (struct test_batch) { .n_seqs = 3, .len = { 30, 12, 9 }, .n_snap = 1, .turn = c };
        test_arena_init(&a);
        s = test_make_signed(&a, &p, &rng);
        n += test_scan_out_of_range(t, &a, &s);
        test_arena_free(&a);
    }
    printf("signed, snapshots: every mode, 1, 3 and 258 tokens, 5 snapshots, each against a "
           "shorter\n"
           "  run, also in a ring of slots; step and reference bit-identical\n");
    test_limits_print(&lim);
    printf("signed, ids out of range: %d cases: NaN for the sequence, no state touched,\n"
           "  the others computed\n",
            n);
}

static void test_nan(struct test * t) {
    struct test_rng rng = { 6 };
    for (int c = 0; c < TEST_SIGNED_MODES; ++c) {
        struct test_problem p = {
            .mode = c,
            .d_k = 24,
            .d_v = 40,
            .H = 2,
            .heads = 3,
            .batch = { .n_seqs = 2, .len = { 20, 15 } },
        };
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = test_make_signed(&a, &p, &rng);
        test_scan_nan(t, &a, &s, s.sign.x, 0, 17, 9);
        test_arena_free(&a);
    }
    printf("signed, NaN: every mode; with step and reference it stays in its column, from its "
           "token\n"
           "  on; it never reaches another sequence\n");
}

// One token computed by hand. A head of the state is S, then n, then m; the zero state has m = 0.
static void test_mlstm_by_hand(struct test * t) {
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = {
        .op = TEST_SIGNED,
        .batch = { .n_seqs = 1, .len = { 1 }, .turn = 2 },
        .text = "mLSTM by hand",
    };

    s.sign = (struct ggml_signed_scan_args) {
        .state = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "state", 2 * 1 + 2 + 1,
                test_batch_slots(&s.batch), 1, 1),
        .ids = test_batch_ids(&a, &s.batch),
        .c = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "c", 2, 1, 1, 1),
        .b = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "b", 2, 1, 1, 1),
        .x = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "x", 1, 1, 1, 1),
        .log_f = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "log_f", 1, 1, 1, 1),
        .log_i = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "log_i", 1, 1, 1, 1),
        .scale = 0.5f,
    };
    test_fill(s.sign.state, 7.0f);
    test_fill(s.sign.c, 1.0f);
    test_set(s.sign.b, 0, 0, 0, 0, 3.0f);
    test_set(s.sign.b, 1, 0, 0, 0, 5.0f);
    test_fill(s.sign.x, 2.0f);
    test_fill(s.sign.log_f, -1.0f);
    test_fill(s.sign.log_i, 4.0f);
    struct ggml_tensor * op = test_scan_build(t, &a, &s, GGML_SCAN_PATH_STEP);
    test_compute(&a, op, 1);
    // m = max(−1 + 0, 4) = 4, i' = 1: S = (3·2, 5·2), n = (3, 5); y = 0.5·16 / max(0.5·8, e⁻⁴) = 2
    const float * head = (const float *) s.sign.state->data +
                         ((int32_t *) s.sign.ids->data)[GGML_SCAN_SLOT_OUT] * 5;
    test_check(t, head[0] == 6.0f && head[1] == 10.0f, "S is %g, %g; expected 6, 10", head[0],
            head[1]);
    test_check(
            t, head[2] == 3.0f && head[3] == 5.0f, "n is %g, %g; expected 3, 5", head[2], head[3]);
    test_check(t, head[4] == 4.0f, "m is %g; expected 4", head[4]);
    test_check(t, ((float *) op->data)[0] == 2.0f, "y is %g; expected 2", ((float *) op->data)[0]);
    test_arena_free(&a);
    printf("signed, mLSTM: one token by hand\n");
}

// From the zero state, whose m is 0, with log_i far below 0: the whole state comes from i' =
// exp(log_i − m'). In F32 a difference of 70 would have an error of up to 4e-6, and so would i'.
static void test_mlstm_faint(struct test * t) {
    struct test_limits lim = {
        .step = { .what = "mLSTM, faint inputs, step and reference", .limit = 1e-12 },
        .chunk = { .what = "mLSTM, faint inputs, chunk and auto", .limit = 1e-12 },
    };
    struct test_rng rng = { 7 };
    for (int n = 1; n <= 4; ++n) {
        const struct test_problem p = {
            .mode = MODE_MLSTM,
            .d_k = 16,
            .d_v = 24,
            .H = 8,
            .heads = n,
            .faint = true,
            .batch = { .n_seqs = 1, .len = { n }, .turn = 2 },
        };
        run(t, &p, &lim, (const int[]) { 2, 1 }, 2, &rng);
    }
    printf("signed, mLSTM: 1 to 4 tokens with log_i from -80 to -65, from the zero state:\n");
    test_limits_print(&lim);
}

int main(void) {
    struct test t = { 0 };
    test_modes(&t);
    test_shapes(&t);
    test_cuts(&t);
    test_far(&t);
    test_slots(&t);
    test_nan(&t);
    test_mlstm_by_hand(&t);
    test_mlstm_faint(&t);
    return test_end(&t, "test-signed-gate-scan");
}
