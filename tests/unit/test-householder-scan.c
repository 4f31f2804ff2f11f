// GGML_OP_HOUSEHOLDER_SCAN on the CPU against the oracle: every form of the transition, every path,
// ragged batches, slots, snapshots, forks, strides, head counts; the same bits for any number of
// threads and, on the step path, for any cut into calls.

#include "kit/scan-checks.h"
#include "kit/scan-problem.h"

static void run(struct test * t, const struct test_problem * p, struct test_limits * lim,
        const int * threads, int n_threads, struct test_rng * rng) {
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = test_make_householder(&a, p, rng);
    test_scan_run(t, &a, &s, lim, threads, n_threads);
    test_arena_free(&a);
}

static const int sizes[] = { 8, 16, 24, 64, 96, 128, 192, 256 };
static const int other[] = { 24, 8, 64, 16, 192, 96, 256, 128 }; // d_v ≠ d_k

static void test_modes(struct test * t) {
    struct test_limits lim = {
        .step = { .what = "step and reference, T <= 256", .limit = 1e-12 },
        .chunk = { .what = "chunk and auto, independent keys", .limit = 1e-10 },
    };
    struct test_rng rng = { 1 };
    const int       all[3] = { 1, 2, 5 };
    int             n = 0;

    for (int mode = 0; mode < 6; ++mode) {
        for (int size = 0; size < 8; ++size) {
            const bool rw = mode >= 3;
            const bool big = sizes[size] >= 96;
            for (int n_h = 1; n_h <= (rw ? 1 : 4); ++n_h, ++n) {
                struct test_problem p = {
                    .d_k = sizes[size],
                    .d_v = n_h == 4   ? sizes[size]
                           : n_h == 2 ? other[(size + 3) % 8]
                                      : other[size],
                    .H = big          ? 2
                         : n % 2 == 0 ? 4
                                      : 6,
                    .n_h = n_h,
                    .mode = mode,
                    .beta_lo = n % 3 == 0 ? 2.0 : 0.0,
                    .heads = n,
                    .layout = n % TEST_REVERSED, // all layouts with contiguous rows
                    .state_gaps = n % 4 == 3,
                    .batch = { .n_seqs = 1 + n % 3, .n_snap = n % 4, .turn = n },
                };
                // one sequence of up to 256 factors; one with fewer tokens than snapshots, or a few
                // more; one with a single token or none
                p.batch.len[0] = big ? 70 / ((n_h + 1) / 2) : n_h == 1 ? 139 : 256 / n_h;
                p.batch.len[1] = 2 + n % 7;
                p.batch.len[2] = n % 2;
                run(t, &p, &lim, all, n % 2 == 0 || rw ? 3 : 1, &rng);
            }
        }
    }
    printf("householder, modes: %d cases = {beta with n_h 1..4, r and w}\n"
           "  x {no gate, gate per head, gate per channel} x d_k {8,16,24,64,96,128,192,256};\n"
           "  d_v is another of these (the same for n_h = 4), 1..3 sequences, 0..3 snapshots,\n"
           "  5 layouts, head counts: divisors of H = 2, 4, 6; outputs and states on every path;\n"
           "  every second case bit-identical with 1, 2 and 5 threads\n",
            n);
    test_limits_print(&lim);
}

// Sizes that are no multiple of a vector or of the rows that a kernel takes at a time. Every second
// case has one token per sequence.
static void test_odd_sizes(struct test * t) {
    static const int   d_k[] = { 1, 2, 3, 5, 7, 9, 13, 27 };
    static const int   d_v[] = { 5, 1, 19, 8, 33, 3, 6, 40 };
    struct test_limits lim = {
        .step = { .what = "step and reference, odd sizes", .limit = 1e-12 },
        .chunk = { .what = "chunk and auto, odd sizes", .limit = 1e-10 },
    };
    struct test_rng rng = { 9 };
    int             n = 0;

    for (int mode = 0; mode < 6; ++mode) {
        for (int size = 0; size < 8; ++size) {
            for (int one = 0; one < 2; ++one, ++n) {
                const bool          rw = mode >= 3;
                struct test_problem p = {
                    .d_k = d_k[size],
                    .d_v = d_v[size],
                    .H = 2,
                    .n_h = rw ? 1 : 1 + n % 3,
                    .mode = mode,
                    .heads = n,
                    .batch = { .n_seqs = 3, .turn = n, .len = { one ? 1 : 11, 1, 1 } },
                };
                run(t, &p, &lim, (const int[]) { 1, 2 }, 2, &rng);
            }
        }
    }
    printf("householder, odd sizes: %d cases, d_k {1,2,3,5,7,9,13,27}, 3 sequences of 1 token or\n"
           "  of 11, 1 and 1 tokens\n",
            n);
    test_limits_print(&lim);
}

// Long sequences with the hardest beta, and with keys that have a common mean, as in trained
// models.
static void test_lengths(struct test * t) {
    static const struct {
        int    d_k, d_v, n_h, T;
        double mean, beta_lo;
        int    mode;
        double step, chunk;
    } cases[] = {
        { 64, 64, 1, 256, 0.0, 2.0, 0, 1e-12, 1e-10 },
        { 128, 64, 1, 512, 0.0, 2.0, 0, 1e-11, 1e-10 },
        { 64, 64, 2, 512, 0.0, 2.0, 0, 1e-11, 1e-10 },
        { 64, 128, 3, 512, 0.0, 2.0, 1, 1e-11, 1e-10 },
        { 96, 192, 1, 512, 0.0, 0.0, 1, 1e-11, 1e-10 },
        { 64, 64, 1, 512, 0.0, 2.0, 2, 1e-11, 1e-10 },
        { 128, 128, 1, 512, 1.0, 2.0, 0, 1e-11, 1e-8 },
        { 64, 64, 3, 512, 1.0, 2.0, 0, 1e-11, 1e-8 },
        { 64, 64, 1, 512, 3.0, 2.0, 1, 1e-11, 1e-8 },
        { 64, 64, 1, 512, 1.0, 0.0, 2, 1e-11, 1e-8 },
        // errors accumulate: 16 times the tokens, 10 times the limit
        { 64, 32, 1, 4096, 0.0, 0.0, 0, 1e-11, 1e-9 },
        { 32, 64, 2, 4096, 0.0, 0.0, 1, 1e-11, 1e-9 },
    };
    struct test_rng rng = { 2 };
    printf("householder, long sequences (2 heads):\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char step[64], chunk[64];
        snprintf(step, sizeof(step), "step and reference, T = %d", cases[i].T);
        snprintf(chunk, sizeof(chunk), "chunk, beta %g..2, mean of keys %g", cases[i].beta_lo,
                cases[i].mean);
        struct test_problem p = {
            .d_k = cases[i].d_k,
            .d_v = cases[i].d_v,
            .H = 2,
            .n_h = cases[i].n_h,
            .mode = cases[i].mode,
            .mean = cases[i].mean,
            .beta_lo = cases[i].beta_lo,
            .gate_lo = 0.97,
            .heads = 1,
            .batch = { .n_seqs = 1, .len = { cases[i].T }, .turn = 2 },
        };
        struct test_limits lim = {
            .step = { .what = step, .limit = cases[i].step },
            .chunk = { .what = chunk, .limit = cases[i].chunk },
        };
        run(t, &p, &lim, (const int[]) { 2 }, 1, &rng);
        test_limits_print(&lim);
    }
}

static void test_cuts(struct test * t) {
    struct test_limits lim = {
        .step = { .what = "cut into calls, step and reference", .limit = 1e-11 },
        .chunk = { .what = "cut into calls, chunk and auto", .limit = 1e-10 },
    };
    struct test_rng rng = { 3 };
    int64_t         n_calls = 0;
    for (int c = 0; c < 14; ++c) {
        const bool rw = c >= 11;

        struct test_problem p = {
            .d_k = sizes[c % 6],
            .d_v = sizes[(c + 2) % 6],
            .H = 2,
            .n_h = rw ? 1 : 1 + c % 4,
            .mode = c % 3 + (rw ? TEST_RW : 0),
            .heads = c,
            .layout = c % TEST_REVERSED,
            .batch = { .n_seqs = 3, .len = { 280, 9, 37 }, .turn = c },
        };
        static const int64_t most[3] = { 20, 1, 90 };
        struct test_arena    a;
        test_arena_init(&a);
        struct test_scan s = test_make_householder(&a, &p, &rng);
        n_calls += test_scan_cuts(t, &a, &s, &lim, most[c % 3], &rng);
        test_arena_free(&a);
    }
    printf("householder, cuts: 14 cases, 3 sequences of 280, 9 and 37 tokens in %lld calls;\n"
           "  step and reference bit-identical to one call\n",
            (long long) n_calls);
    test_limits_print(&lim);
}

static void test_snapshots(struct test * t) {
    struct test_limits lim = { .chunk = { .what = "snapshots of chunk and auto", .limit = 1e-10 } };
    struct test_rng    rng = { 4 };
    for (int c = 0; c < 15; ++c) {
        // fewer tokens than snapshots; around multiples of 64 and 128
        static const int64_t lengths[5] = { 1, 3, 64, 130, 258 };
        const bool           rw = c % 4 == 2;

        struct test_problem p = {
            .d_k = sizes[c % 5],
            .d_v = sizes[(c + 1) % 5],
            .H = 2,
            .n_h = rw ? 1 : 1 + c % 3,
            .mode = c % 3 + (rw ? TEST_RW : 0),
            .heads = c,
            .batch = { .n_seqs = 1, .len = { lengths[c % 5] }, .n_snap = 5, .turn = c },
        };
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = test_make_householder(&a, &p, &rng);
        test_scan_snapshots(t, &a, &s, &lim);
        test_arena_free(&a);
    }
    printf("householder, snapshots: 15 cases of 1, 3, 64, 130 or 258 tokens, 5 snapshots, each\n"
           "  against a shorter run, also in a ring of slots; step and reference bit-identical\n");
    test_limits_print(&lim);
}

static void test_out_of_range(struct test * t) {
    struct test_rng rng = { 5 };
    int             n = 0;
    for (int c = 0; c < 2; ++c) {
        struct test_problem p = {
            .d_k = 16,
            .d_v = 24,
            .H = 2,
            .n_h = c == 0 ? 2 : 1,
            .mode = c == 0 ? 1 : TEST_RW + 1,
            .batch = { .n_seqs = 3, .len = { 70, 12, 9 }, .n_snap = 1, .turn = c },
        };
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = test_make_householder(&a, &p, &rng);
        n += test_scan_out_of_range(t, &a, &s);
        test_arena_free(&a);
    }
    printf("householder, ids out of range: %d cases: NaN for the sequence, no state touched,\n"
           "  the others computed\n",
            n);
}

// And beta above 2 is not clamped.
static void test_nan(struct test * t) {
    struct test_rng rng = { 6 };

    struct test_problem p = {
        .d_k = 24,
        .d_v = 40,
        .H = 2,
        .n_h = 2,
        .mode = 1,
        .heads = 3,
        .batch = { .n_seqs = 2, .len = { 100, 80 } },
    };
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = test_make_householder(&a, &p, &rng);
    test_scan_nan(t, &a, &s, s.householder.v, 1, 17, 70);
    test_arena_free(&a);

    struct test_limits lim = {
        .step = { .what = "beta 2.2..2.5, step and reference", .limit = 1e-12 },
        .chunk = { .what = "beta 2.2..2.5, chunk and auto", .limit = 1e-10 },
    };
    p.beta_lo = 2.2;
    p.beta_hi = 2.5;
    p.batch = (struct test_batch) { .n_seqs = 1, .len = { 30 } };
    run(t, &p, &lim, (const int[]) { 1 }, 1, &rng);
    printf("householder, NaN: with step and reference it stays in its column, from its token on;\n"
           "  it never reaches another sequence; beta above 2 is not clamped\n");
    test_limits_print(&lim);
}

// q, k, v, beta and gate as views of one fused projection, a matrix with one row per token
static void test_fused(struct test * t) {
    struct test_limits lim = {
        .step = { .what = "views of one projection, step and reference", .limit = 1e-12 },
        .chunk = { .what = "views of one projection, chunk and auto", .limit = 1e-10 },
    };
    struct test_rng   rng = { 8 };
    const int64_t     d_k = 24, d_v = 40, H = 2, n_h = 3, T = 90;
    const int64_t     width = d_k * H + n_h * H * (d_k + d_v + 1) + H;
    const size_t      f = sizeof(float);
    struct test_arena a;
    test_arena_init(&a);
    struct ggml_tensor * row = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "row", width, T, 1, 1);
    test_fill_normal(row, &rng, 0.15);

    struct test_scan s = {
        .op = TEST_HOUSEHOLDER,
        .batch = { .n_seqs = 2, .len = { 71, 19 }, .turn = 1 },
        .text = "fused",
    };

    s.householder = (struct ggml_householder_scan_args) {
        .state = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "state", d_k * d_v * H,
                test_batch_slots(&s.batch), 1, 1),
        .ids = test_batch_ids(&a, &s.batch),
        .q = ggml_view_4d(a.ctx, row, d_k, H, 1, T, d_k * f, d_k * H * f, width * f, 0),
        .k = ggml_view_4d(a.ctx, row, d_k, H, n_h, T, d_k * f, d_k * H * f, width * f, d_k * H * f),
        .v = ggml_view_4d(a.ctx, row, d_v, H, n_h, T, d_v * f, d_v * H * f, width * f,
                (d_k * H + n_h * H * d_k) * f),
        .beta = ggml_view_4d(a.ctx, row, 1, H, n_h, T, f, H * f, width * f,
                (d_k * H + n_h * H * (d_k + d_v)) * f),
        .gate = ggml_view_4d(a.ctx, row, 1, H, 1, T, f, H * f, width * f,
                (d_k * H + n_h * H * (d_k + d_v + 1)) * f),
        .scale = 0.25f,
    };
    test_fill_normal(s.householder.state, &rng, 1.0);
    test_scan_run(t, &a, &s, &lim, (const int[]) { 1, 2 }, 2);
    test_arena_free(&a);
    printf("householder, all inputs are views of one fused projection\n");
    test_limits_print(&lim);
}

int main(void) {
    struct test t = { 0 };
    test_modes(&t);
    test_odd_sizes(&t);
    test_lengths(&t);
    test_cuts(&t);
    test_snapshots(&t);
    test_out_of_range(&t);
    test_nan(&t);
    test_fused(&t);
    return test_end(&t, "test-householder-scan");
}
