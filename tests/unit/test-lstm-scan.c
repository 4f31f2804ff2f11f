// GGML_OP_LSTM_SCAN on the CPU against the oracle: LSTM and sLSTM, heads of any length; ragged
// batches, slots, snapshots, strides; bit-identical for any number of threads and any cut into
// calls. Gates that overflow exp, and inputs that the builder must reject.

#include "kit/scan-checks.h"
#include "kit/scan-problem.h"

#include "lrnn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int lengths[] = { 1, 3, 8, 16, 17, 40, 64, 100 };
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void test_forms(struct test * t) {
    struct test_limits lim = { .step = { .what = "outputs and states", .limit = 1e-11 } };
    struct test_rng    rng = { 1 };
    int                n = 0;
    for (int i = 0; i < N_LENGTHS; ++i) {
        for (int form = 0; form < GGML_LSTM_SCAN_FORMS; ++form) {
            for (int heads = 1; heads <= 4; heads += 3, ++n) {
                const struct test_problem p = {
                    .d_v = lengths[i],
                    .H = heads,
                    .mode = form,
                    .layout = n % 2 == 0 ? TEST_DENSE : TEST_GAPS,
                    .batch = { .n_seqs = 1 + n % 4,
                            .len = { 1 + n % 20, n % 5, 1, 2 + n % 11 },
                            .n_snap = n % 4,
                            .turn = n },
                };
                struct test_arena a;
                test_arena_init(&a);
                struct test_scan s = test_make_lstm(&a, &p, &rng);
                test_scan_run(t, &a, &s, &lim, (const int[]) { 1, 2, 5 }, 3);
                test_arena_free(&a);
            }
        }
    }
    printf("LSTM scan: %d cases = head length {1, 3, 8, 16, 17, 40, 64, 100} x {LSTM, sLSTM}\n"
           "  x heads {1, 4}; 1..4 sequences of 0..20 tokens, 0..3 snapshots;\n"
           "  bit-identical with 1, 2, 5 threads\n",
            n);
    test_limits_print(&lim);
}

static void test_cuts_and_slots(struct test * t) {
    struct test_limits lim = { .step = { .what = "cut into calls", .limit = 1e-11 } };
    struct test_rng    rng = { 2 };
    int64_t            n_calls = 0;
    int                n_invalid = 0;
    for (int form = 0; form < GGML_LSTM_SCAN_FORMS; ++form) {
        for (int turn = 0; turn < 3; ++turn) {
            struct test_problem p = {
                .d_v = 24,
                .H = 3,
                .mode = form,
                .layout = TEST_GAPS,
                .batch = { .n_seqs = 3, .len = { 40, 9, 21 }, .turn = turn },
            };
            struct test_arena a;
            test_arena_init(&a);
            struct test_scan s = test_make_lstm(&a, &p, &rng);
            n_calls += test_scan_cuts(t, &a, &s, &lim, 1 + 10 * turn, &rng);
            p.batch = (struct test_batch) {
                .n_seqs = 1, .len = { 1 + 9 * turn }, .n_snap = 5, .turn = turn
            };
            s = test_make_lstm(&a, &p, &rng);
            test_scan_snapshots(t, &a, &s, &lim);
            p.batch = (struct test_batch) {
                .n_seqs = 3, .len = { 4, 7, 5 }, .n_snap = 2, .turn = turn
            };
            s = test_make_lstm(&a, &p, &rng);
            n_invalid += test_scan_out_of_range(t, &a, &s);
            test_arena_free(&a);
        }
    }
    printf("LSTM scan, cuts: sequences of 40, 9, 21 tokens in %lld calls, bit-identical;\n"
           "  %d batches with ids out of range\n",
            (long long) n_calls, n_invalid);
    test_limits_print(&lim);
}

// Large gates: exp overflows without the running maximum, and underflows at the first token.
static void test_large_gates(struct test * t) {
    struct test_limits        lim = { .step = { .what = "large gates", .limit = 1e-9 } };
    struct test_rng           rng = { 3 };
    const struct test_problem p = {
        .d_v = 20,
        .H = 2,
        .mode = GGML_LSTM_SCAN_SLSTM,
        .hard = 60.0,
        .batch = { .n_seqs = 2, .len = { 30, 12 }, .turn = 2 },
    };
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = test_make_lstm(&a, &p, &rng);
    test_scan_run(t, &a, &s, &lim, (const int[]) { 1 }, 1);
    test_arena_free(&a);
    test_limits_print(&lim);
}

static void test_rejections(struct test * t) {
    struct test_rng           rng = { 4 };
    const struct test_problem p = {
        .d_v = 8, .H = 2, .mode = GGML_LSTM_SCAN_SLSTM, .batch = { 1, { 3 }, 0, 0 }
    };
    struct test_arena a;
    test_arena_init(&a);
    const struct ggml_lstm_scan_args good = test_make_lstm(&a, &p, &rng).lstm;
    struct ggml_lstm_scan_args       bad[5] = { good, good, good, good, good };
    bad[0].form = GGML_LSTM_SCAN_LSTM; // its state is smaller
    bad[1].form = GGML_LSTM_SCAN_FORMS;
    bad[2].R = NULL;
    bad[3].R = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "R", 8, 32, 2, 1);
    bad[4].x = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "x", 8, 2, 3, 3);
    static const char * const texts[] = { "state has 64 floats per slot; expected 32",
        "form is 2; expected 0 to 1", "R is missing",
        "R is f32 [8, 32, 2, 1]; expected contiguous f32 [32, 8, 2]",
        "x has shape [8, 2, 3, 3]; expected [any, any, 4, any]" };
    for (int i = 0; i < 5; ++i) {
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        test_check(t,
                ggml_lstm_scan(a.ctx, &bad[i], &err) == NULL && strcmp(err.text, texts[i]) == 0,
                "case %d: %s", i, err.text);
    }
    test_arena_free(&a);
}

int main(void) {
    struct test t = { 0 };
    test_forms(&t);
    test_cuts_and_slots(&t);
    test_large_gates(&t);
    test_rejections(&t);
    return test_end(&t, "test-lstm-scan");
}
