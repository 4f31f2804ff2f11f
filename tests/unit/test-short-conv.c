// GGML_OP_SHORT_CONV on the CPU against the oracle: widths from 2, with and without bias, every
// activation, token shift; ragged batches, slots, snapshots, strides; the same bits for any number
// of threads and any cut into calls. The tail consists of inputs, so it is exact.

#include "kit/scan-checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    int                             n_ch;
    int                             width; // 0: token shift
    bool                            bias;
    enum ggml_short_conv_activation activation;
    enum test_layout                layout;
    struct test_batch               batch;
};

static struct test_scan make(
        struct test_arena * a, const struct problem * p, struct test_rng * rng) {
    struct test_scan s = { .op = TEST_CONV, .batch = p->batch };
    const int64_t    width = p->width > 0 ? p->width : 2;

    s.conv.state = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "state", p->n_ch * (width - 1),
            test_batch_slots(&p->batch), 1, 1);
    s.conv.ids = test_batch_ids(a, &p->batch);
    s.conv.x = test_tensor(
            a, GGML_TYPE_F32, p->layout, "x", p->n_ch, test_batch_tokens(&p->batch), 1, 1);
    s.conv.activation = p->activation;
    test_fill_slots(s.conv.state, s.conv.ids, rng);
    test_fill_normal(s.conv.x, rng, 1.0);
    if (p->width > 0) {
        s.conv.weight = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "weight", width, p->n_ch, 1, 1);
        test_fill_normal(s.conv.weight, rng, 1.0);
    }
    if (p->bias) {
        s.conv.bias = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "bias", p->n_ch, 1, 1, 1);
        test_fill_normal(s.conv.bias, rng, 1.0);
    }
    int n = snprintf(s.text, sizeof(s.text),
            "width %d, %d channels%s, activation %d, layout %d, turn %d, snapshots %d, lengths",
            p->width, p->n_ch, p->bias ? ", bias" : "", p->activation, p->layout, p->batch.turn,
            p->batch.n_snap);
    for (int i = 0; i < p->batch.n_seqs; ++i) {
        n += snprintf(s.text + n, sizeof(s.text) - n, " %d", (int) p->batch.len[i]);
    }
    return s;
}

static const int widths[] = { 0, 2, 3, 4, 5, 9, 15 };
static const int channels[] = { 1, 7, 16, 100, 128, 1000 };
enum {
    N_WIDTHS = sizeof(widths) / sizeof(widths[0]),
    N_CHANNELS = sizeof(channels) / sizeof(channels[0])
};

// All widths, channels and forms. Some sequences are shorter than the width, so that a tail
// consists of the old tail and new inputs.
static void test_modes(struct test * t) {
    struct test_limits lim = { .step = { .what = "outputs and tails", .limit = 1e-12 } };
    struct test_rng    rng = { 1 };
    int                n = 0;
    for (int w = 0; w < N_WIDTHS; ++w) {
        for (int c = 0; c < N_CHANNELS; ++c) {
            const int n_forms = widths[w] == 0 ? 1 : 2 * GGML_SHORT_CONV_ACTIVATIONS;
            for (int form = 0; form < n_forms; ++form, ++n) {
                struct problem p = {
                    .n_ch = channels[c],
                    .width = widths[w],
                    .bias = form % 2 == 1,
                    .activation = form / 2,
                    .layout = n % 2 == 0 ? TEST_DENSE : TEST_GAPS,
                    .batch = { .n_seqs = 1 + n % 4,
                            .len = { 1 + n % 40, n % 5, 1, 2 + n % 11 },
                            .n_snap = n % 4,
                            .turn = n },
                };
                struct test_arena a;
                test_arena_init(&a);
                struct test_scan s = make(&a, &p, &rng);
                test_scan_run(t, &a, &s, &lim, (const int[]) { 1, 2, 5 }, 3);

                // a tail is a copy of inputs: bit-identical
                struct oracle o = test_scan_oracle(&s);
                test_compute(&a, test_scan_build(t, &a, &s, GGML_SCAN_PATH_STEP), 2);
                test_check(t, test_scan_nmse_state(&o, &s) == 0.0,
                        "a tail differs from the inputs: %s", s.text);
                oracle_free(&o);
                test_arena_free(&a);
            }
        }
    }
    printf("short convolution: %d cases = width {token shift, 2, 3, 4, 5, 9, 15}\n"
           "  x channels {1, 7, 16, 100, 128, 1000} x {bias} x {activation};\n"
           "  1..4 sequences of 0..40 tokens, 0..3 snapshots; bit-identical with 1, 2, 5 threads;\n"
           "  tails are bit-identical to the inputs\n",
            n);
    test_limits_print(&lim);
}

static void test_cuts(struct test * t) {
    struct test_limits lim = { .step = { .what = "cut into calls", .limit = 1e-12 } };
    struct test_rng    rng = { 2 };
    int64_t            n_calls = 0;
    for (int w = 0; w < N_WIDTHS; ++w) {
        for (int most = 1; most <= 21; most += 10) {
            struct problem p = {
                .n_ch = 24,
                .width = widths[w],
                .bias = w % 2 == 1,
                .activation = w % 3 % GGML_SHORT_CONV_ACTIVATIONS,
                .layout = TEST_GAPS,
                .batch = { .n_seqs = 3, .len = { 60, 9, 21 }, .turn = w },
            };
            struct test_arena a;
            test_arena_init(&a);
            struct test_scan s = make(&a, &p, &rng);
            n_calls += test_scan_cuts(t, &a, &s, &lim, most, &rng);
            test_arena_free(&a);
        }
    }
    printf("short convolution, cuts: every width, 3 sequences of 60, 9, 21 tokens in %lld calls;\n"
           "  bit-identical to one call\n",
            (long long) n_calls);
    test_limits_print(&lim);
}

static void test_slots(struct test * t) {
    struct test_limits lim = { .step = { .limit = 0.0 } };
    struct test_rng    rng = { 3 };
    int                n = 0;
    for (int w = 0; w < N_WIDTHS; ++w) {
        for (int c = 0; c < 9; ++c) {
            static const int64_t lengths[3] = { 1, 3, 20 };

            const int64_t length = lengths[c % 3];

            struct problem p = {
                .n_ch = 40,
                .width = widths[w],
                .batch = { .n_seqs = 1, .len = { length }, .n_snap = 5, .turn = c / 3 },
            };
            struct test_arena a;
            test_arena_init(&a);
            struct test_scan s = make(&a, &p, &rng);
            test_scan_snapshots(t, &a, &s, &lim);
            test_arena_free(&a);
        }
        struct problem p = {
            .n_ch = 40,
            .width = widths[w],
            .batch = { .n_seqs = 3, .len = { 30, 12, 9 }, .n_snap = 1, .turn = w },
        };
        struct test_arena a;
        test_arena_init(&a);
        struct test_scan s = make(&a, &p, &rng);
        n += test_scan_out_of_range(t, &a, &s);
        test_arena_free(&a);
    }
    printf("short convolution, snapshots: every width, 1, 3 or 20 tokens, 5 snapshots, each\n"
           "  bit-identical to a shorter run, also in a ring of slots\n");
    printf("short convolution, ids out of range: %d cases: NaN for the sequence, no tail touched,\n"
           "  the others computed\n",
            n);
}

int main(void) {
    struct test t = { 0 };
    test_modes(&t);
    test_cuts(&t);
    test_slots(&t);
    return test_end(&t, "test-short-conv");
}
