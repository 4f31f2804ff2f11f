// GGML_OP_SIGNED_SCAN on the CPU against the oracle: every transition, both forms of exp(dt A), the
// bonus, mLSTM against its definition without a stabilizer, ragged batches, slots, snapshots,
// strides, head counts; the same bits for any number of threads and any cut.

#include "kit/scan-checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mode {
    MODE_NONE,       // A = 1
    MODE_HEAD,       // gate per head, any sign
    MODE_CHANNEL,    // gate per key channel, any sign
    MODE_CONST_HEAD, // the same gate for all tokens
    MODE_CONST_CHANNEL,
    MODE_BONUS, // RWKV-6: gate per channel, read before the update
    MODE_BONUS_HEAD,
    MODE_BONUS_NONE,
    MODE_MAMBA,
    MODE_MAMBA_SIGNED,
    MODE_MAMBA2,
    MODE_MAMBA2_SIGNED,
    MODE_MLSTM,      // gates as in a trained model
    MODE_MLSTM_HARD, // log_i and the argument of log_f from -100 to 100
    N_MODES,
};

static const char * const mode_names[N_MODES] = {
    "no gate",
    "gate per head",
    "gate per channel",
    "constant gate per head",
    "constant gate per channel",
    "bonus, gate per channel",
    "bonus, gate per head",
    "bonus, no gate",
    "Mamba",
    "Mamba signed",
    "Mamba-2",
    "Mamba-2 signed",
    "mLSTM",
    "mLSTM, hard gates",
};

struct problem {
    enum mode         mode;
    int               d_k, d_v, H;
    int               heads; // selects the head counts of the inputs
    double            keep;  // smallest magnitude of the gates; the largest is 1
    float             eps;   // mLSTM
    bool              faint; // mLSTM: log_i far below the m of the zero state
    enum test_layout  layout;
    bool              state_gaps; // gaps between slots
    struct test_batch batch;
};

static bool is_mlstm(enum mode mode) {
    return mode == MODE_MLSTM || mode == MODE_MLSTM_HARD;
}

static bool is_mamba(enum mode mode) {
    return mode >= MODE_MAMBA && mode <= MODE_MAMBA2_SIGNED;
}

// With an eps this large the denominator of mLSTM is eps, and the output shows the numerator Sᵀ c.
// The numerator is relative to exp(m), so m must be small: F32 rounds an m of 100 by 4e-6.
static const float eps_numerator = 0x1p100f;

static double log_sigmoid(double x) {
    return x < 0.0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

// Negates a third of the gates and sets some to 0, to detect divisions by gates.
static void flip_signs(struct ggml_tensor * x, struct test_rng * rng) {
    for (int64_t t = 0; t < x->ne[3]; ++t) {
        for (int64_t h = 0; h < x->ne[1]; ++h) {
            for (int64_t i = 0; i < x->ne[0]; ++i) {
                if (test_below(rng, 3) == 0) {
                    test_set(x, i, h, 0, t, -test_get(x, i, h, 0, t));
                }
                if (test_below(rng, 50) == 0) {
                    test_set(x, i, h, 0, t, 0.0f);
                }
            }
        }
    }
}

static struct test_scan make(
        struct test_arena * a, const struct problem * p, struct test_rng * rng) {
    const int64_t    T = test_batch_tokens(&p->batch);
    const int64_t    size = (int64_t) p->d_k * p->d_v + (is_mlstm(p->mode) ? p->d_k + 1 : 0);
    struct test_scan s = { .op = TEST_SIGNED, .batch = p->batch };

    struct ggml_signed_scan_args * args = &s.sign;
    args->state = test_tensor(a, GGML_TYPE_F32, p->state_gaps ? TEST_GAPS : TEST_DENSE, "state",
            size * p->H, test_batch_slots(&p->batch), 1, 1);
    args->ids = test_batch_ids(a, &p->batch);
    args->c = test_tensor(
            a, GGML_TYPE_F32, p->layout, "c", p->d_k, test_divisor(p->H, p->heads), 1, T);
    args->b = test_tensor(
            a, GGML_TYPE_F32, p->layout, "b", p->d_k, test_divisor(p->H, p->heads + 1), 1, T);
    args->x = test_tensor(
            a, GGML_TYPE_F32, p->layout, "x", p->d_v, test_divisor(p->H, p->heads + 2), 1, T);
    args->scale = 1.0f / sqrtf((float) p->d_k);
    args->eps = p->eps;
    args->form = p->mode == MODE_MAMBA_SIGNED || p->mode == MODE_MAMBA2_SIGNED
                         ? GGML_SIGNED_SCAN_TWO_EXP_M1
                         : GGML_SIGNED_SCAN_EXP;

    test_fill_slots(args->state, args->ids, rng);
    test_fill_normal(args->c, rng, 1.0);
    test_fill_normal(args->b, rng, 1.0);
    test_fill_normal(args->x, rng, 1.0);

    const bool head =
            p->mode == MODE_HEAD || p->mode == MODE_CONST_HEAD || p->mode == MODE_BONUS_HEAD;
    const bool fixed = p->mode == MODE_CONST_HEAD || p->mode == MODE_CONST_CHANNEL;
    if (head || fixed || p->mode == MODE_CHANNEL || p->mode == MODE_BONUS) {
        args->gate = test_tensor(a, GGML_TYPE_F32, p->layout, "gate", head ? 1 : p->d_k,
                test_divisor(p->H, p->heads + 3), 1, fixed ? 1 : T);
        test_fill_uniform(args->gate, rng, p->keep, 1.0);
        flip_signs(args->gate, rng);
    }
    if (p->mode == MODE_BONUS || p->mode == MODE_BONUS_HEAD || p->mode == MODE_BONUS_NONE) {
        args->bonus = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "bonus", p->d_k,
                test_divisor(p->H, p->heads + 4), 1, 1);
        test_fill_normal(args->bonus, rng, 1.0);
    }
    if (is_mamba(p->mode)) {
        const bool one = p->mode == MODE_MAMBA2 || p->mode == MODE_MAMBA2_SIGNED;
        args->dt = test_tensor(a, GGML_TYPE_F32, p->layout, "dt", one ? 1 : p->d_v,
                test_divisor(p->H, p->heads + 3), 1, T);
        args->A = test_tensor(a, GGML_TYPE_F32, p->heads % 2 == 0 ? TEST_REVERSED : TEST_DENSE, "A",
                one ? 1 : p->d_v, one ? 1 : p->d_k, test_divisor(p->H, p->heads + 4), 1);
        // dt A from nearly 0 to −3: exp(dt A) from 1 to 0.05, 2 exp(dt A) − 1 from 1 to −0.9
        test_fill_uniform(args->dt, rng, 0.001, 0.3);
        test_fill_uniform(args->A, rng, -10.0, -0.1);
    }
    if (is_mlstm(p->mode)) {
        args->log_f = test_tensor(
                a, GGML_TYPE_F32, p->layout, "log_f", 1, test_divisor(p->H, p->heads + 3), 1, T);
        args->log_i = test_tensor(
                a, GGML_TYPE_F32, p->layout, "log_i", 1, test_divisor(p->H, p->heads + 4), 1, T);
        const bool   hard = p->mode == MODE_MLSTM_HARD;
        const double size_i = p->eps == eps_numerator ? 0.5 : 2.0;
        for (int64_t t = 0; t < T; ++t) {
            for (int64_t h = 0; h < args->log_f->ne[1]; ++h) {
                test_set(args->log_f, 0, h, 0, t,
                        (float) log_sigmoid(hard ? test_uniform(rng, -100.0, 100.0)
                                                 : 3.0 + 1.5 * test_normal(rng)));
            }
            for (int64_t h = 0; h < args->log_i->ne[1]; ++h) {
                test_set(args->log_i, 0, h, 0, t,
                        (float) (p->faint ? test_uniform(rng, -80.0, -65.0)
                                 : hard   ? test_uniform(rng, -100.0, 100.0)
                                          : size_i * test_normal(rng)));
            }
        }
        for (int64_t slot = 0; slot < args->state->ne[1]; ++slot) {
            // any m is valid in a state
            for (int64_t h = 0; h < p->H && !isnan(test_get(args->state, 0, slot, 0, 0)); ++h) {
                test_set(args->state, h * size + size - 1, slot, 0, 0,
                        (float) test_uniform(rng, hard ? -50.0 : -2.0, hard ? 50.0 : 2.0));
            }
        }
    }

    int n = snprintf(s.text, sizeof(s.text),
            "%s, %dx%d, H %d, eps %g, layout %d, head counts %d, turn %d, snapshots %d, lengths",
            mode_names[p->mode], p->d_k, p->d_v, p->H, (double) p->eps, p->layout, p->heads,
            p->batch.turn, p->batch.n_snap);
    for (int i = 0; i < p->batch.n_seqs; ++i) {
        n += snprintf(s.text + n, sizeof(s.text) - n, " %d", (int) p->batch.len[i]);
    }
    return s;
}

static void run(struct test * t, const struct problem * p, struct test_limits * lim,
        const int * threads, int n_threads, struct test_rng * rng) {
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = make(&a, p, rng);
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
    for (int mode = 0; mode < N_MODES; ++mode) {
        char what[2][64];
        snprintf(what[0], sizeof(what[0]), "%s, step and reference", mode_names[mode]);
        snprintf(what[1], sizeof(what[1]), "%s, chunk and auto", mode_names[mode]);
        struct test_limits lim = {
            .step = { .what = what[0], .limit = 1e-12 },
            .chunk = { .what = what[1], .limit = 1e-12 },
        };
        for (int size = 0; size < 8; ++size, ++n) {
            const bool big = sizes[size] >= 96;

            struct problem p = {
                .mode = mode,
                .d_k = sizes[size],
                .d_v = n % 3 == 2 ? sizes[size] : other[size],
                .H = big          ? 2
                     : n % 2 == 0 ? 4
                                  : 6,
                .heads = n,
                .keep = 0.8,
                .eps = 1e-6f,
                .layout = n % TEST_REVERSED, // all layouts with contiguous rows
                .state_gaps = n % 4 == 3,
                .batch = { .n_seqs = 1 + n % 3, .n_snap = n % 4, .turn = n },
            };
            p.batch.len[0] = big ? 70 : 139;
            p.batch.len[1] = 2 + n % 7;
            p.batch.len[2] = n % 2;
            run(t, &p, &lim, all, 3, &rng);
            if (mode == MODE_MLSTM) {
                p.eps = eps_numerator;
                run(t, &p, &lim, all, 1, &rng);
            }
        }
        test_limits_print(&lim);
    }
}

// A state of 16 numbers per channel and many channels, as in Mamba; long sequences
static void test_shapes(struct test * t) {
    static const struct {
        enum mode mode;
        int       d_k, d_v, H, T;
        double    keep, limit;
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
        snprintf(what[0], sizeof(what[0]), "%s, %dx%d, T = %d", mode_names[cases[i].mode],
                cases[i].d_k, cases[i].d_v, cases[i].T);
        snprintf(what[1], sizeof(what[1]), "%s, %dx%d, T = %d, chunk", mode_names[cases[i].mode],
                cases[i].d_k, cases[i].d_v, cases[i].T);
        struct test_limits lim = {
            .step = { .what = what[0], .limit = cases[i].limit },
            .chunk = { .what = what[1], .limit = cases[i].limit },
        };
        struct problem p = {
            .mode = cases[i].mode,
            .d_k = cases[i].d_k,
            .d_v = cases[i].d_v,
            .H = cases[i].H,
            .heads = 1,
            .keep = cases[i].keep,
            .eps = 1e-6f,
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
        struct problem p = {
            .mode = (enum mode) mode,
            .d_k = 16,
            .d_v = 40,
            .H = 1,
            .heads = 1,
            .batch = { .n_seqs = 1, .len = { 30 }, .turn = 2 },
        };
        struct test_scan s = make(&a, &p, &rng);
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
    for (int c = 0; c < N_MODES; ++c) {
        struct problem p = {
            .mode = c,
            .d_k = sizes[c % 6],
            .d_v = sizes[(c + 2) % 6],
            .H = 2,
            .heads = c,
            .keep = 0.8,
            .eps = 1e-6f,
            .layout = c % TEST_REVERSED,
            .batch = { .n_seqs = 3, .len = { 280, 9, 37 }, .turn = c },
        };
        static const int64_t most[3] = { 20, 1, 90 };
        struct test_arena    a;
        test_arena_init(&a);
        struct test_scan s = make(&a, &p, &rng);
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
    for (int c = 0; c < N_MODES; ++c) {
        struct problem p = {
            .mode = c,
            .d_k = sizes[c % 4],
            .d_v = sizes[(c + 1) % 4],
            .H = 2,
            .heads = c,
            .keep = 0.8,
            .eps = 1e-6f,
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
            s = make(&a, &p, &rng);
            test_scan_snapshots(t, &a, &s, &lim);
            test_arena_free(&a);
        }

        p.batch = (struct test_batch) { .n_seqs = 3, .len = { 30, 12, 9 }, .n_snap = 1, .turn = c };
        test_arena_init(&a);
        s = make(&a, &p, &rng);
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

// A NaN stays a NaN, and stays in its column and its sequence, from its token on.
static void test_nan(struct test * t) {
    struct test_rng rng = { 6 };
    for (int c = 0; c < N_MODES; ++c) {
        struct problem p = {
            .mode = c,
            .d_k = 24,
            .d_v = 40,
            .H = 2,
            .heads = 3,
            .keep = 0.8,
            .eps = 1e-6f,
            .batch = { .n_seqs = 2, .len = { 20, 15 } },
        };
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = make(&a, &p, &rng);
        float *          before = test_copy(s.sign.state);
        const int64_t    first = ((int32_t *) s.sign.ids->data)[GGML_SCAN_FIRST];
        const int64_t    token = first + 9;
        const int64_t    column = 17;
        const float      value = test_get(s.sign.x, column, 0, 0, token);
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            if (!test_scan_has_path(&s, path)) {
                continue;
            }
            test_restore(s.sign.state, before);
            struct ggml_tensor * clean = test_scan_build(t, &a, &s, path);
            test_compute(&a, clean, 1);
            test_set(s.sign.x, column, 0, 0, token, NAN);
            test_restore(s.sign.state, before);
            struct ggml_tensor * op = test_scan_build(t, &a, &s, path);
            test_compute(&a, op, 2);
            test_set(s.sign.x, column, 0, 0, token, value);
            bool there = true, same = true;
            for (int64_t tok = 0; tok < op->ne[2]; ++tok) {
                for (int64_t j = 0; j < p.d_v; ++j) {
                    const float got = test_get(op, j, 0, tok, 0);
                    if (tok >= token && j == column) {
                        there = there && isnan(got);
                    } else if (tok < first || test_scan_is_step(&s, path)) {
                        same = same && got == test_get(clean, j, 0, tok, 0);
                    }
                }
            }
            test_check(t, there, "a NaN in x is missing in the output: %s, %s", mode_names[c],
                    test_path_names[path]);
            test_check(t, same, "a NaN in x changed another column, token or sequence: %s, %s",
                    mode_names[c], test_path_names[path]);
        }
        free(before);
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
        const struct problem p = {
            .mode = MODE_MLSTM,
            .d_k = 16,
            .d_v = 24,
            .H = 8,
            .heads = n,
            .eps = 1e-6f,
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
