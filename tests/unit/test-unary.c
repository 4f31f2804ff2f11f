// exp, sigmoid and softplus on the CPU against double precision: the whole range, tensors that end
// within a vector, any number of threads, NaN and infinity.

#include "kit/check.h"
#include "kit/tensors.h"

#include <float.h>

static const double LIMIT = 3e-7; // relative error; measured: 1.8e-7

static double reference(enum ggml_unary_op op, double x) {
    switch (op) {
        case GGML_UNARY_OP_EXP: return exp(x);
        case GGML_UNARY_OP_SIGMOID: return 1.0 / (1.0 + exp(-x));
        default: return fmax(x, 0.0) + log1p(exp(-fabs(x)));
    }
}

// Relative error. Results that a float cannot hold precisely may become 0 or infinity.
static double error_of(double y, double expected) {
    if (isnan(expected) || isinf(expected)) {
        return isnan(expected) ? (isnan(y) ? 0.0 : 1.0) : (y == expected ? 0.0 : 1.0);
    }
    if (fabs(expected) < (double) FLT_MIN) {
        return y >= 0.0 && y < 2.0 * (double) FLT_MIN ? 0.0 : 1.0;
    }
    return fabs(y - expected) / fabs(expected);
}

static void test_op(struct test * t, enum ggml_unary_op op, int64_t n, struct test_worst * worst) {
    static const float special[] = { 0.0f, -0.0f, NAN, INFINITY, -INFINITY, 20.0f, -20.0f, -87.0f,
        -100.0f, 1e-30f };
    struct test_arena  a;
    struct test_rng    rng = { (uint64_t) n };
    char               text[64];
    test_arena_init(&a);
    struct ggml_tensor * x = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "x", n, 3, 1, 1);
    test_fill_uniform(x, &rng, -30.0, 30.0);
    for (int64_t i = 0; i < n && i < 10; ++i) {
        test_set(x, i, 1, 0, 0, special[i]);
    }
    struct ggml_tensor * y = ggml_unary(a.ctx, x, op);
    test_alloc(&a, y);
    test_compute(&a, y, 1);
    for (int64_t i = 0; i < 3 * n; ++i) {
        const double in = (double) test_get(x, i % n, i / n, 0, 0);
        snprintf(text, sizeof(text), "%s of %g, width %d", ggml_unary_op_name(op), in, (int) n);
        test_bound(t, worst, error_of((double) test_get(y, i % n, i / n, 0, 0), reference(op, in)),
                text);
    }
    float * one = test_copy(y);
    test_compute(&a, y, 3);
    test_check(t, memcmp(one, y->data, ggml_nbytes(y)) == 0,
            "%s, width %d: 3 threads and one thread give different bits", ggml_unary_op_name(op),
            (int) n);
    free(one);
    test_arena_free(&a);
}

int main(void) {
    static const enum ggml_unary_op ops[] = { GGML_UNARY_OP_EXP, GGML_UNARY_OP_SIGMOID,
        GGML_UNARY_OP_SOFTPLUS };
    static const int64_t            widths[] = { 1, 5, 10, 16, 33, 1000 };
    struct test                     t = { 0 };
    struct test_worst               worst = { .what = "relative error", .limit = LIMIT };
    for (int i = 0; i < 3; ++i) {
        for (int w = 0; w < 6; ++w) {
            test_op(&t, ops[i], widths[w], &worst);
        }
    }
    test_worst_print(&worst);
    return test_end(&t, "test-unary");
}
