// Matrix products on the CPU against sums in double precision: every type of weights, numbers of
// rows and columns around the sizes of tiles and panels, any K, broadcast matrices, strides. The
// bits are the same for any number of threads, and a column does not depend on the others.
//
// With many columns, weights are converted to F32 and nothing else is rounded
// (src/ops/cpu/product/product-f32.c). The other products round the columns: those of ggml to the
// type of its dot products (8 bits, F16 or BF16), those in bytes and those row by row to 8 bits.

#include "kit/check.h"
#include "kit/nmse.h"
#include "kit/tensors.h"
#include "ops/cpu/product/product-weights.h"
#include "ops/glue.h"
#include "ops/lrnn-ops.h"

#include "ggml-cpu.h"

// NMSE, measured: 2.7e-13 in F32, up to 1.1e-4 with columns in 8 bits
static const double LIMIT_F32 = 1e-12;
static const double LIMIT_ROUNDED = 3e-4;

struct shape {
    int64_t          K, R, C; // y [R, C] = w [K, R]ᵀ x [K, C]
    int64_t          n2, n3;  // matrices of x
    int64_t          r2, r3;  // matrices of x that share one of w
    enum test_layout x;
};

struct problem {
    struct test_arena    arena;
    struct ggml_tensor * w;    // [K, R, n2/r2, n3/r3]
    struct ggml_tensor * x;    // [K, C, n2, n3]
    struct ggml_tensor * y;    // [R, C, n2, n3]
    float *              rows; // w in F32, converted by ggml
};

static void problem_init(
        struct problem * p, enum ggml_type type, const struct shape * s, struct test_rng * rng) {
    test_arena_init(&p->arena);
    const int64_t n2 = s->n2 / s->r2, n3 = s->n3 / s->r3;
    p->w = test_tensor(&p->arena, type, TEST_DENSE, "w", s->K, s->R, n2, n3);
    p->x = test_tensor(&p->arena, GGML_TYPE_F32, s->x, "x", s->K, s->C, s->n2, s->n3);
    p->rows = test_fill_weights(p->w, rng);
    test_fill_normal(p->x, rng, 1.0);
    p->y = ggml_mul_mat(p->arena.ctx, p->w, p->x);
    test_alloc(&p->arena, p->y);
}

static void problem_free(struct problem * p) {
    test_arena_free(&p->arena);
    free(p->rows);
}

// The error of y, against y[r, c] = Σ_k w[r, k] x[k, c] in double.
static double problem_error(const struct problem * p, const struct shape * s) {
    struct nmse error = { 0 };
    for (int64_t i3 = 0; i3 < s->n3; ++i3) {
        for (int64_t i2 = 0; i2 < s->n2; ++i2) {
            const int64_t matrix = i3 / s->r3 * (s->n2 / s->r2) + i2 / s->r2;
            for (int64_t c = 0; c < s->C; ++c) {
                const float * column =
                        (const float *) ((const char *) p->x->data + c * p->x->nb[1] +
                                         i2 * p->x->nb[2] + i3 * p->x->nb[3]);
                for (int64_t r = 0; r < s->R; ++r) {
                    const float * row = p->rows + (matrix * s->R + r) * s->K;
                    double        sum = 0.0;
                    for (int64_t k = 0; k < s->K; ++k) {
                        sum += (double) row[k] * (double) column[k];
                    }
                    nmse_add(&error, test_get(p->y, r, c, i2, i3), sum);
                }
            }
        }
    }
    return nmse_value(&error);
}

struct limits {
    struct test_worst f32, rounded;
};

// Products with many columns use int8 kernels.
static bool is_in_bytes(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K:
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_IQ4_NL:
        case GGML_TYPE_MXFP4:
        case GGML_TYPE_IQ4_XS: return test_has_byte_kernels();
        default: return false;
    }
}

// Is computed in F32: not by ggml, row by row or in bytes.
static bool is_f32(const struct problem * p) {
    return ggml_lrnn_cpu_mul_mat_work_size(p->y, 1) > 0 && p->y->ne[1] >= 48 &&
           !is_in_bytes(p->w->type);
}

static void test_product(struct test * t, struct limits * limits, enum ggml_type type,
        const struct shape * s, struct test_rng * rng) {
    struct problem p;
    char           text[128];
    problem_init(&p, type, s, rng);
    snprintf(text, sizeof(text), "%s, K %d, %d rows, %d columns, %d × %d matrices",
            ggml_type_name(type), (int) s->K, (int) s->R, (int) s->C, (int) s->n2, (int) s->n3);
    if (test_check(t, test_compute(&p.arena, p.y, 1), "%s: not computed", text)) {
        test_bound(t, is_f32(&p) ? &limits->f32 : &limits->rounded, problem_error(&p, s), text);
        float * y = test_copy(p.y);
        for (int n = 2; n <= 3; ++n) {
            test_compute(&p.arena, p.y, n);
            test_check(t, memcmp(y, p.y->data, ggml_nbytes(p.y)) == 0,
                    "%s: %d threads and one thread give different bits", text, n);
        }
        free(y);
    }
    problem_free(&p);
}

// All types, with K of several blocks.
static void test_types(struct test * t, struct limits * limits) {
    struct test_rng rng = { 1 };
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        if (test_is_weight(type)) {
            static const struct shape shapes[] = { { 768, 13, 67, 1, 1, 1, 1, TEST_DENSE },
                { 512, 7, 33, 1, 1, 1, 1, TEST_DENSE }, { 256, 9, 5, 1, 1, 1, 1, TEST_DENSE } };
            for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
                test_product(t, limits, (enum ggml_type) type, &shapes[i], &rng);
            }
        }
    }
}

// Types with blocks of 256 weights.
static const enum ggml_type types_256[] = { GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
    GGML_TYPE_IQ4_XS };
enum { N_TYPES_256 = sizeof(types_256) / sizeof(types_256[0]) };

// Ragged shapes: around the sizes of register tiles, panels, parts of a row and blocks of columns.
static void test_shapes(struct test * t, struct limits * limits) {
    static const int64_t rows[] = { 1, 6, 7, 47, 49, 100 };
    static const int64_t columns[] = { 1, 2, 3, 7, 9, 32, 47, 48, 49, 63, 65, 79, 97, 129 };
    static const int64_t lengths[] = { 1, 3, 17, 48, 511, 513, 640 };
    struct test_rng      rng = { 2 };
    int                  n = 0;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); ++c, ++n) {
            const struct shape any = { lengths[n % 7], rows[r], columns[c], 1, 1, 1, 1,
                n % 2 == 0 ? TEST_DENSE : TEST_GAPS };
            test_product(t, limits, n % 3 == 0 ? GGML_TYPE_F16 : GGML_TYPE_F32, &any, &rng);
            const struct shape blocks = { 32 * (1 + n % 18), rows[r], columns[c], 1, 1, 1, 1,
                TEST_DENSE };
            test_product(t, limits, n % 2 == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0, &blocks, &rng);
            const struct shape blocks_256 = { 256 * (1 + n % 3), rows[r], 12 + columns[c], 1, 1, 1,
                1, n % 2 == 0 ? TEST_DENSE : TEST_GAPS };
            test_product(t, limits, types_256[(n + n / 4) % N_TYPES_256], &blocks_256, &rng);
        }
    }
    const struct shape wide = { 64, 50, 1100, 1, 1, 1, 1, TEST_DENSE }; // several blocks of columns
    test_product(t, limits, GGML_TYPE_Q8_0, &wide, &rng);
    test_product(t, limits, GGML_TYPE_F32, &wide, &rng);
    const struct shape wide_256 = { 256, 50, 1100, 1, 1, 1, 1, TEST_DENSE };
    test_product(t, limits, GGML_TYPE_Q4_K, &wide_256, &rng);
}

// Several matrices in x, which may share those in w, and strides between them.
static void test_matrices(struct test * t, struct limits * limits) {
    struct test_rng rng = { 3 };
    for (int layout = TEST_DENSE; layout < TEST_REVERSED; ++layout) {
        const enum test_layout x = (enum test_layout) layout;
        const struct shape     shapes[] = { { 64, 20, 50, 4, 3, 1, 1, x },
                { 64, 20, 50, 4, 3, 2, 3, x }, { 64, 20, 50, 4, 3, 4, 1, x },
                { 64, 20, 1, 4, 3, 2, 1, x }, { 64, 20, 1, 5, 1, 5, 1, x },
                { 64, 20, 1, 5, 1, 1, 1, x } };
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
            test_product(t, limits, GGML_TYPE_F32, &shapes[i], &rng);
            test_product(t, limits, GGML_TYPE_Q8_0, &shapes[i], &rng);
            struct shape blocks_256 = shapes[i];
            blocks_256.K = 512;
            blocks_256.R = 35;
            test_product(t, limits, types_256[i % N_TYPES_256], &blocks_256, &rng);
        }
    }
}

// Weights in F32 have the bits that ggml gives them, in any part of a row.
static void test_conversion(struct test * t) {
    struct test_rng rng = { 4 };
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        if (test_is_weight(type)) {
            const struct shape s = { 1024, 7, 1, 1, 1, 1, 1, TEST_DENSE };
            struct problem     p;
            problem_init(&p, (enum ggml_type) type, &s, &rng);
            int64_t n_wrong = 0;
            for (int64_t r = 0; r < s.R; ++r) {
                float         out[512];
                const int64_t begin = 256 * (r % 3);
                weights_to_float((enum ggml_type) type,
                        (const char *) p.w->data + r * (int64_t) p.w->nb[1], begin, 512, out);
                n_wrong += memcmp(out, p.rows + r * s.K + begin, sizeof(out)) != 0;
            }
            test_check(t, n_wrong == 0, "%s: %d of %d rows differ from ggml's",
                    ggml_type_name((enum ggml_type) type), (int) n_wrong, (int) s.R);
            problem_free(&p);
        }
    }
}

// A column among many is bit-identical to the same column among fewer.
static void test_columns(struct test * t) {
    static const enum ggml_type types[] = { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0,
        GGML_TYPE_Q4_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        const int64_t      K = ggml_blck_size(types[i]) == 256 ? 768 : 640;
        const struct shape many = { K, 60, 150, 1, 1, 1, 1, TEST_DENSE };
        const struct shape few = { K, 60, 61, 1, 1, 1, 1, TEST_DENSE };
        struct problem     p, q;
        struct test_rng    rng = { 5 };
        problem_init(&p, types[i], &many, &rng);
        rng.state = 5;
        problem_init(&q, types[i], &few, &rng); // the same weights
        const int64_t first = 37;
        memcpy(q.x->data, (const float *) p.x->data + first * many.K,
                (size_t) (few.C * many.K) * sizeof(float));
        const bool done = test_compute(&p.arena, p.y, 2) && test_compute(&q.arena, q.y, 1);
        test_check(t,
                done && memcmp(q.y->data, (const float *) p.y->data + first * many.R,
                                ggml_nbytes(q.y)) == 0,
                "%s: columns depend on the number of columns", ggml_type_name(types[i]));
        problem_free(&p);
        problem_free(&q);
    }
}

// A column of Q8_0 and Q4_0 is bit-identical to the same column computed alone: among up to 32, and
// among any number if the graph asks for it. In bytes it need not ask, and more types have this.
static void test_alone(struct test * t) {
    static const enum ggml_type types[] = { GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_0,
        GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K };
    static const int64_t counts[] = { 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 31, 32, 61, 300 };
    const size_t         n_types = test_has_byte_kernels() ? 7 : 2;
    for (size_t i = 0; i < n_types * sizeof(counts) / sizeof(counts[0]); ++i) {
        const enum ggml_type type = types[i % n_types];
        const int64_t        K = ggml_blck_size(type) == 256 ? 1024 : 1120;
        const struct shape   many = { K, 37, counts[i / n_types], 1, 1, 1, 1, TEST_DENSE };
        const struct shape   one = { K, 37, 1, 1, 1, 1, 1, TEST_DENSE };
        struct problem       p, q;
        struct test_rng      rng = { 7 };
        problem_init(&p, type, &many, &rng);
        rng.state = 7;
        problem_init(&q, type, &one, &rng); // the same weights
        p.y->op_params[LRNN_OP_PARAM_BATCH_INVARIANT] = many.C > 32 && !test_has_byte_kernels();

        bool    done = test_compute(&p.arena, p.y, 2);
        int64_t n_wrong = 0;
        for (int64_t c = 0; done && c < many.C; ++c) {
            memcpy(q.x->data, (const float *) p.x->data + c * many.K, ggml_nbytes(q.x));
            done = test_compute(&q.arena, q.y, 1);
            n_wrong += memcmp(q.y->data, (const float *) p.y->data + c * many.R,
                               ggml_nbytes(q.y)) != 0;
        }
        test_check(t, done && n_wrong == 0, "%s: %d of %d columns differ from the column alone",
                ggml_type_name(type), (int) n_wrong, (int) many.C);
        problem_free(&p);
        problem_free(&q);
    }
}

// A column has the bits of ggml's dot products, on x86 CPUs with AVX2.
static void test_bits_of_ggml(struct test * t) {
    static const enum ggml_type types[] = { GGML_TYPE_F32, GGML_TYPE_F16 };
    for (size_t i = 0; ggml_cpu_has_avx2() && i < 4 * sizeof(types) / sizeof(types[0]); ++i) {
        static const int64_t lengths[] = { 256, 768, 1280, 4864 };
        const enum ggml_type type = types[i / 4];
        const int64_t        C = type == GGML_TYPE_F16 ? 1 : 7; // more columns of F16 are ggml's
        const struct shape   s = { lengths[i % 4], 37, C, 1, 1, 1, 1, TEST_DENSE };
        const struct ggml_type_traits_cpu * traits = ggml_get_type_traits_cpu(type);
        struct problem                      p;
        struct test_rng                     rng = { 8 };
        problem_init(&p, type, &s, &rng);
        void *  column = malloc(ggml_row_size(traits->vec_dot_type, s.K));
        bool    done = test_compute(&p.arena, p.y, 2);
        int64_t n_wrong = 0;
        for (int64_t c = 0; done && c < s.C; ++c) {
            const float * x = (const float *) p.x->data + c * s.K;
            if (type == GGML_TYPE_F32) {
                memcpy(column, x, (size_t) s.K * sizeof(float));
            } else {
                ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float(x, column, s.K);
            }
            for (int64_t r = 0; r < s.R; ++r) {
                float y;
                traits->vec_dot((int) s.K, &y, 0,
                        (const char *) p.w->data + r * (int64_t) p.w->nb[1], 0, column, 0, 1);
                n_wrong += memcmp(&y, (const float *) p.y->data + c * s.R + r, sizeof(y)) != 0;
            }
        }
        test_check(t, done && n_wrong == 0, "%s, K %d: %d elements differ from ggml's",
                ggml_type_name(type), (int) s.K, (int) n_wrong);
        free(column);
        problem_free(&p);
    }
}

// In bytes, a product with a Q8_0 or Q4_0 matrix adds the blocks of 32 weights in their order. The
// sum over a block is exact:
//
//     y ← fma(e Σ w x, d, y)        x in multiples of e, as ggml rounds it; w in multiples of d
static void test_order(struct test * t) {
    for (size_t i = 0; test_has_byte_kernels() && i < 6; ++i) {
        static const int64_t lengths[] = { 32, 1120, 4864 };
        const enum ggml_type type = i % 2 == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0;
        const struct shape   s = { lengths[i / 2], 37, 9, 1, 1, 1, 1, TEST_DENSE };
        struct problem       p;
        struct test_rng      rng = { 9 };
        problem_init(&p, type, &s, &rng);
        const size_t size = ggml_row_size(GGML_TYPE_Q8_0, 32), size_w = ggml_row_size(type, 32);
        uint8_t *    column = malloc(ggml_row_size(GGML_TYPE_Q8_0, s.K));
        bool         done = test_compute(&p.arena, p.y, 2);
        int64_t      n_wrong = 0;
        for (int64_t c = 0; done && c < s.C; ++c) {
            ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)
                    ->from_float((const float *) p.x->data + c * s.K, column, s.K);
            for (int64_t r = 0; r < s.R; ++r) {
                float y = 0.0f;
                for (int64_t b = 0; b < s.K / 32; ++b) {
                    // a block begins with its factor, in F16
                    const uint8_t * x = column + b * (int64_t) size;
                    const uint8_t * w = (const uint8_t *) p.w->data + r * (int64_t) p.w->nb[1] +
                                        b * (int64_t) size_w;
                    ggml_fp16_t d, e;
                    memcpy(&d, w, sizeof(d));
                    memcpy(&e, x, sizeof(e));
                    int32_t sum = 0;
                    for (int k = 0; k < 32; ++k) {
                        const int weight = type == GGML_TYPE_Q8_0 ? (int8_t) w[2 + k]
                                           : k < 16               ? (w[2 + k] & 15) - 8
                                                                  : (w[2 + k - 16] >> 4) - 8;
                        sum += weight * (int8_t) x[2 + k];
                    }
                    y = fmaf((float) sum * ggml_fp16_to_fp32(e), ggml_fp16_to_fp32(d), y);
                }
                n_wrong += memcmp(&y, (const float *) p.y->data + c * s.R + r, sizeof(y)) != 0;
            }
        }
        test_check(t, done && n_wrong == 0, "%s, K %d: %d elements are summed in another order",
                ggml_type_name(type), (int) s.K, (int) n_wrong);
        free(column);
        problem_free(&p);
    }
}

// Types with blocks of 256 weights, in bytes: many columns are rounded as ggml does, and after
// that the sums have the precision of F32.
static void test_rounding(struct test * t) {
    struct test_worst worst = { .what = "products of rounded columns, NMSE", .limit = LIMIT_F32 };
    for (size_t i = 0; i < 3 * N_TYPES_256; ++i) {
        static const int64_t lengths[] = { 256, 1280, 4864 };
        const enum ggml_type type = types_256[i / 3];
        const struct shape   s = { lengths[i % 3], 37, 19, 1, 1, 1, 1, TEST_DENSE };
        struct problem       p;
        struct test_rng      rng = { 10 };
        char                 text[64];
        problem_init(&p, type, &s, &rng);
        const bool done = test_compute(&p.arena, p.y, 2);
        void *     column = malloc(ggml_row_size(GGML_TYPE_Q8_K, s.K));
        for (int64_t c = 0; c < s.C; ++c) {
            float * x = (float *) p.x->data + c * s.K;
            ggml_get_type_traits_cpu(GGML_TYPE_Q8_K)->from_float(x, column, s.K);
            for (int64_t k = 0; k < s.K; ++k) {
                const char * block = (const char *) column +
                                     k / 256 * (int64_t) ggml_row_size(GGML_TYPE_Q8_K, 256);
                float d; // a block begins with its factor
                memcpy(&d, block, sizeof(d));
                x[k] = d * (float) ((const int8_t *) block)[sizeof(d) + (size_t) (k % 256)];
            }
        }
        snprintf(text, sizeof(text), "%s, K %d", ggml_type_name(type), (int) s.K);
        if (test_check(t, done, "%s: not computed", text) && is_in_bytes(type)) {
            test_bound(t, &worst, problem_error(&p, &s), text);
        }
        free(column);
        problem_free(&p);
    }
    test_worst_print(&worst);
}

// NaN and infinity in x reach the whole column, and no other one.
static void test_not_finite(struct test * t) {
    static const enum ggml_type types[] = { GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_K, GGML_TYPE_Q6_K };
    static const float          bad[] = { NAN, INFINITY, -INFINITY };
    static const int64_t        counts[] = { 60, 18, 2 };
    for (int i = 0; i < 45; ++i) {
        const enum ggml_type type = types[i / 3 % 5];
        const int64_t        K = ggml_blck_size(type) == 256 ? 512 : 96;
        const struct shape   s = { K, 20, counts[i / 15], 1, 1, 1, 1, TEST_DENSE };
        const int64_t        wrong = s.C > 17 ? 17 : 1; // column
        struct test_rng      rng = { 6 };
        struct problem       p;
        problem_init(&p, type, &s, &rng);
        test_set(p.x, 40, wrong, 0, 0, bad[i % 3]);
        if (ggml_lrnn_cpu_mul_mat_work_size(p.y, 1) == 0) { // few columns: ggml drops NaN
            problem_free(&p);
            continue;
        }
        int64_t n_wrong = test_compute(&p.arena, p.y, 1) ? 0 : 1;
        for (int64_t c = 0; c < s.C; ++c) {
            for (int64_t r = 0; r < s.R; ++r) {
                n_wrong += (isfinite(test_get(p.y, r, c, 0, 0)) != 0) == (c == wrong);
            }
        }
        test_check(t, n_wrong == 0, "%s, x = %f: %d wrong elements", ggml_type_name(type),
                (double) bad[i % 3], (int) n_wrong);
        problem_free(&p);
    }
}

int main(void) {
    struct test   t = { 0 };
    struct limits limits = {
        .f32 = { .what = "products in F32, NMSE", .limit = LIMIT_F32 },
        .rounded = { .what = "products in fewer bits, NMSE", .limit = LIMIT_ROUNDED },
    };
    test_types(&t, &limits);
    test_shapes(&t, &limits);
    test_matrices(&t, &limits);
    test_conversion(&t);
    test_columns(&t);
    test_alone(&t);
    test_bits_of_ggml(&t);
    test_order(&t);
    test_rounding(&t);
    test_not_finite(&t);
    test_worst_print(&limits.f32);
    test_worst_print(&limits.rounded);
    return test_end(&t, "test-mul-mat");
}
