// GGML_OP_SHORT_CONV on the CPU against the oracle: widths from 2, with and without bias, every
// activation, token shift; ragged batches, slots, snapshots, strides; the same bits for any number
// of threads and any cut into calls. The tail consists of inputs, so it is exact.

#include "kit/scan-checks.h"
#include "kit/scan-problem.h"

// Width 0: token shift
static struct test_problem problem_of(
        int width, int channels, int form, enum test_layout layout, struct test_batch batch) {
    return (struct test_problem) { .mode = width == 0 ? 0 : 1 + form,
        .d_k = width == 0 ? 1 : width - 1,
        .d_v = channels,
        .layout = layout,
        .batch = batch };
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
                const struct test_batch   batch = { .n_seqs = 1 + n % 4,
                      .len = { 1 + n % 40, n % 5, 1, 2 + n % 11 },
                      .n_snap = n % 4,
                      .turn = n };
                const struct test_problem p = problem_of(
                        widths[w], channels[c], form, n % 2 == 0 ? TEST_DENSE : TEST_GAPS, batch);
                struct test_arena a;
                test_arena_init(&a);
                struct test_scan s = test_make_conv(&a, &p, &rng);
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
            const struct test_problem p =
                    problem_of(widths[w], 24, w % (TEST_CONV_MODES - 1), TEST_GAPS,
                            (struct test_batch) { .n_seqs = 3, .len = { 60, 9, 21 }, .turn = w });
            struct test_arena a;
            test_arena_init(&a);
            struct test_scan s = test_make_conv(&a, &p, &rng);
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
            static const int64_t      lengths[3] = { 1, 3, 20 };
            const struct test_problem p = problem_of(widths[w], 40, 0, TEST_DENSE,
                    (struct test_batch) {
                            .n_seqs = 1, .len = { lengths[c % 3] }, .n_snap = 5, .turn = c / 3 });
            struct test_arena         a;
            test_arena_init(&a);
            struct test_scan s = test_make_conv(&a, &p, &rng);
            test_scan_snapshots(t, &a, &s, &lim);
            test_arena_free(&a);
        }
        const struct test_problem p = problem_of(widths[w], 40, 0, TEST_DENSE,
                (struct test_batch) { .n_seqs = 3, .len = { 30, 12, 9 }, .n_snap = 1, .turn = w });
        struct test_arena         a;
        test_arena_init(&a);
        struct test_scan s = test_make_conv(&a, &p, &rng);
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
