// Products of experts on the CPU (GGML_OP_MUL_MAT_ID) against sums in double precision: every type
// of weights, one column of x for all experts of a token or one for each, experts without tokens
// and experts with all of them.
//
// The bits of a token depend neither on the number of threads nor on the other tokens: 1, 4, 16 and
// 50 tokens in one product, each compared with the token alone.

#include "kit/check.h"
#include "kit/nmse.h"
#include "kit/tensors.h"
#include "ops/glue.h"

#include "ggml-cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// NMSE, measured: 1.7e-13 in F32, up to 5.9e-5 with columns in 8 bits
static const double LIMIT_F32 = 1e-12;
static const double LIMIT_ROUNDED = 3e-4;

struct shape {
    int64_t K, R, X; // w [K, R, X]
    int64_t n, k, T; // x [K, n, T], ids [k, T] → y [R, k, T]
};

struct problem {
    struct test_arena    arena;
    struct ggml_tensor * w;
    struct ggml_tensor * x;
    struct ggml_tensor * ids;
    struct ggml_tensor * y;
    float *              rows; // w in F32, converted by ggml
};

// k different experts, more often those with small numbers
static void choose(struct test_rng * rng, int64_t X, int64_t k, int32_t * ids) {
    for (int64_t i = 0; i < k; ++i) {
        bool again = true;
        while (again) {
            const double u = test_uniform(rng, 0.0, 1.0);
            ids[i] = (int32_t) (u * u * u * (double) X);
            again = false;
            for (int64_t j = 0; j < i; ++j) {
                again = again || ids[j] == ids[i];
            }
        }
    }
}

static void problem_init(
        struct problem * p, enum ggml_type type, const struct shape * s, struct test_rng * rng) {
    test_arena_init(&p->arena);
    p->w = test_tensor(&p->arena, type, TEST_DENSE, "w", s->K, s->R, s->X, 1);
    p->rows = test_fill_weights(p->w, rng);
    const enum test_layout layout = s->T % 2 == 0 ? TEST_DENSE : TEST_GAPS;
    p->x = test_tensor(&p->arena, GGML_TYPE_F32, layout, "x", s->K, s->n, s->T, 1);
    test_fill_normal(p->x, rng, 1.0);
    // the beginning of rows of X numbers, as ggml_argsort_top_k returns it
    struct ggml_tensor * order =
            test_tensor(&p->arena, GGML_TYPE_I32, TEST_DENSE, "order", s->X, s->T, 1, 1);
    for (int64_t t = 0; t < s->T; ++t) {
        choose(rng, s->X, s->k, (int32_t *) order->data + t * s->X);
    }
    p->ids = ggml_view_2d(p->arena.ctx, order, s->k, s->T, order->nb[1], 0);
    p->y = ggml_mul_mat_id(p->arena.ctx, p->w, p->x, p->ids);
    test_alloc(&p->arena, p->y);
}

static void problem_free(struct problem * p) {
    test_arena_free(&p->arena);
    free(p->rows);
}

static int32_t id_of(const struct problem * p, int64_t i, int64_t t) {
    return ((const int32_t *) p->ids->data)[i + t * (int64_t) (p->ids->nb[1] / sizeof(int32_t))];
}

// The error of y, against y[r, i, t] = Σ_k w[r, k, ids[i, t]] x[k, i mod n, t] in double
static double problem_error(const struct problem * p, const struct shape * s) {
    struct nmse error = { 0 };
    for (int64_t t = 0; t < s->T; ++t) {
        for (int64_t i = 0; i < s->k; ++i) {
            for (int64_t r = 0; r < s->R; ++r) {
                const float * row = p->rows + (id_of(p, i, t) * s->R + r) * s->K;
                double        sum = 0.0;
                for (int64_t j = 0; j < s->K; ++j) {
                    sum += (double) row[j] * (double) test_get(p->x, j, i % s->n, t, 0);
                }
                nmse_add(&error, test_get(p->y, r, i, t, 0), sum);
            }
        }
    }
    return nmse_value(&error);
}

// Each token is bit-identical to the same token computed alone.
static void compare_alone(
        struct test * t, const struct problem * p, const struct shape * s, const char * text) {
    struct problem     q = *p;
    const struct shape one = { s->K, s->R, s->X, s->n, s->k, 1 };
    int64_t            n_wrong = 0;
    bool               done = true;
    test_arena_init(&q.arena);
    struct ggml_tensor * ids =
            test_tensor(&q.arena, GGML_TYPE_I32, TEST_DENSE, "ids", one.k, 1, 1, 1);
    q.x = test_tensor(&q.arena, GGML_TYPE_F32, TEST_DENSE, "x", one.K, one.n, 1, 1);
    q.y = ggml_mul_mat_id(q.arena.ctx, p->w, q.x, ids);
    test_alloc(&q.arena, q.y);
    for (int64_t token = 0; done && token < s->T; ++token) {
        for (int64_t i = 0; i < one.k; ++i) {
            ((int32_t *) ids->data)[i] = id_of(p, i, token);
        }
        for (int64_t i = 0; i < one.K * one.n; ++i) {
            test_set(q.x, i % one.K, i / one.K, 0, 0,
                    test_get(p->x, i % one.K, i / one.K, token, 0));
        }
        done = test_compute(&q.arena, q.y, token == 0 ? 2 : 1);
        n_wrong += memcmp(q.y->data, (const char *) p->y->data + token * (int64_t) p->y->nb[2],
                           ggml_nbytes(q.y)) != 0;
    }
    test_check(t, done && n_wrong == 0, "%s: %d tokens differ from the token alone", text,
            (int) n_wrong);
    test_arena_free(&q.arena);
}

struct limits {
    struct test_worst f32, rounded;
};

// Weights use int8 dot products, or ggml's dot products round the columns.
static bool is_rounded(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_IQ4_NL:
        case GGML_TYPE_MXFP4:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K:
        case GGML_TYPE_IQ4_XS: return test_has_byte_kernels();
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0: return true;
        default: return false;
    }
}

static void test_experts(struct test * t, struct limits * limits, enum ggml_type type,
        const struct shape * s, struct test_rng * rng) {
    struct problem p;
    char           text[128];
    problem_init(&p, type, s, rng);
    snprintf(text, sizeof(text), "%s, K %d, %d rows, %d of %d experts, %d columns, %d tokens",
            ggml_type_name(type), (int) s->K, (int) s->R, (int) s->k, (int) s->X, (int) s->n,
            (int) s->T);
    test_check(t, ggml_lrnn_cpu_mul_mat_work_size(p.y, 1) > 0, "%s: computed by ggml", text);
    if (test_check(t, test_compute(&p.arena, p.y, 1), "%s: not computed", text)) {
        test_bound(
                t, is_rounded(type) ? &limits->rounded : &limits->f32, problem_error(&p, s), text);
        float * y = test_copy(p.y);
        for (int n = 2; n <= 3; ++n) {
            test_compute(&p.arena, p.y, n);
            test_check(t, memcmp(y, p.y->data, ggml_nbytes(p.y)) == 0,
                    "%s: %d threads and one thread give different bits", text, n);
        }
        free(y);
        compare_alone(t, &p, s, text);
    }
    problem_free(&p);
}

int main(void) {
    struct test   t = { 0 };
    struct limits limits = {
        .f32 = { .what = "experts in F32, NMSE", .limit = LIMIT_F32 },
        .rounded = { .what = "experts in fewer bits, NMSE", .limit = LIMIT_ROUNDED },
    };
    struct test_rng      rng = { 1 };
    static const int64_t tokens[] = { 1, 4, 16, 50 };
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        if (test_is_weight(type)) {
            const int64_t K = ggml_blck_size((enum ggml_type) type) == 256 ? 768 : 640;
            for (size_t i = 0; i < 2 * sizeof(tokens) / sizeof(tokens[0]); ++i) {
                const struct shape s = { K, 41, 9, i % 2 == 0 ? 1 : 3, 3, tokens[i / 2] };
                test_experts(&t, &limits, (enum ggml_type) type, &s, &rng);
            }
        }
    }
    // many experts and slices of columns; few rows; one expert
    static const struct shape shapes[] = { { 256, 65, 64, 1, 8, 33 }, { 512, 3, 5, 4, 4, 9 },
        { 256, 40, 1, 1, 1, 600 } };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
        test_experts(&t, &limits, GGML_TYPE_Q8_0, &shapes[i], &rng);
        test_experts(&t, &limits, GGML_TYPE_Q4_K, &shapes[i], &rng);
        test_experts(&t, &limits, GGML_TYPE_F16, &shapes[i], &rng);
    }
    test_worst_print(&limits.f32);
    test_worst_print(&limits.rounded);
    return test_end(&t, "test-mul-mat-id");
}
