// GGML_OP_LSTM_SCAN on the CPU against the oracle: LSTM and sLSTM, heads of any length; ragged
// batches, slots, snapshots, strides; bit-identical for any number of threads and any cut into
// calls. Gates that overflow exp, and inputs that the builder must reject.

#include "kit/scan-checks.h"

#include "lrnn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct problem {
    int                      d, H;
    enum ggml_lstm_scan_form form;
    enum test_layout         layout;
    double                   size; // of the gates
    struct test_batch        batch;
};

static struct test_scan make(
        struct test_arena * a, const struct problem * p, struct test_rng * rng) {
    struct test_scan s = { .op = TEST_LSTM, .batch = p->batch };
    const int64_t    rows = p->form == GGML_LSTM_SCAN_SLSTM ? 4 : 2;

    s.lstm.state = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "state", rows * p->d * p->H,
            test_batch_slots(&p->batch), 1, 1);
    s.lstm.ids = test_batch_ids(a, &p->batch);
    s.lstm.x = test_tensor(
            a, GGML_TYPE_F32, p->layout, "x", p->d, p->H, 4, test_batch_tokens(&p->batch));
    s.lstm.R = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "R", 4 * p->d, p->d, p->H, 1);
    s.lstm.form = p->form;
    test_fill_slots(s.lstm.state, s.lstm.ids, rng);
    test_fill_normal(s.lstm.x, rng, p->size);
    test_fill_normal(s.lstm.R, rng, 1.0 / sqrt(p->d));
    // a normalizer is positive after the first token
    float * state = s.lstm.state->data;
    for (int64_t i = 0; i < ggml_nelements(s.lstm.state) && rows == 4; ++i) {
        if (i / p->d % 4 == 2) {
            state[i] = fabsf(state[i]) + 0.5f;
        }
    }
    snprintf(s.text, sizeof(s.text), "form %d, %d heads of %d, layout %d, turn %d, snapshots %d",
            p->form, p->H, p->d, p->layout, p->batch.turn, p->batch.n_snap);
    return s;
}

static const int lengths[] = { 1, 3, 8, 16, 17, 40, 64, 100 };
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void test_forms(struct test * t) {
    struct test_limits lim = { .step = { .what = "outputs and states", .limit = 1e-11 } };
    struct test_rng    rng = { 1 };
    int                n = 0;
    for (int i = 0; i < N_LENGTHS; ++i) {
        for (int form = 0; form < GGML_LSTM_SCAN_FORMS; ++form) {
            for (int heads = 1; heads <= 4; heads += 3, ++n) {
                const struct problem p = {
                    .d = lengths[i],
                    .H = heads,
                    .form = form,
                    .layout = n % 2 == 0 ? TEST_DENSE : TEST_GAPS,
                    .size = 1.0,
                    .batch = { .n_seqs = 1 + n % 4,
                            .len = { 1 + n % 20, n % 5, 1, 2 + n % 11 },
                            .n_snap = n % 4,
                            .turn = n },
                };
                struct test_arena a;
                test_arena_init(&a);
                struct test_scan s = make(&a, &p, &rng);
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
            struct problem p = {
                .d = 24,
                .H = 3,
                .form = form,
                .layout = TEST_GAPS,
                .size = 1.0,
                .batch = { .n_seqs = 3, .len = { 40, 9, 21 }, .turn = turn },
            };
            struct test_arena a;
            test_arena_init(&a);
            struct test_scan s = make(&a, &p, &rng);
            n_calls += test_scan_cuts(t, &a, &s, &lim, 1 + 10 * turn, &rng);
            p.batch = (struct test_batch) {
                .n_seqs = 1, .len = { 1 + 9 * turn }, .n_snap = 5, .turn = turn
            };
            s = make(&a, &p, &rng);
            test_scan_snapshots(t, &a, &s, &lim);
            p.batch = (struct test_batch) {
                .n_seqs = 3, .len = { 4, 7, 5 }, .n_snap = 2, .turn = turn
            };
            s = make(&a, &p, &rng);
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
    struct test_limits   lim = { .step = { .what = "large gates", .limit = 1e-9 } };
    struct test_rng      rng = { 3 };
    const struct problem p = {
        .d = 20,
        .H = 2,
        .form = GGML_LSTM_SCAN_SLSTM,
        .size = 60.0,
        .batch = { .n_seqs = 2, .len = { 30, 12 }, .turn = 2 },
    };
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = make(&a, &p, &rng);
    test_scan_run(t, &a, &s, &lim, (const int[]) { 1 }, 1);
    test_arena_free(&a);
    test_limits_print(&lim);
}

static void test_rejections(struct test * t) {
    struct test_rng      rng = { 4 };
    const struct problem p = {
        .d = 8, .H = 2, .form = GGML_LSTM_SCAN_SLSTM, .size = 1.0, .batch = { 1, { 3 }, 0, 0 }
    };
    struct test_arena a;
    test_arena_init(&a);
    const struct ggml_lstm_scan_args good = make(&a, &p, &rng).lstm;
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
