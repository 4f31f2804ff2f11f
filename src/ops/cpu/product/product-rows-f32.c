// Two rows of weights in F32 or F16 times a few columns.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]
//
// As in ggml's dot products, four vectors of sums take turns and are added up at the end, and x is
// rounded to F16 if the weights are.

#include "product-rows.h"

#if PRODUCT_AVX2

#    include "simd.h"

enum {
    SUMS = 4,                 // vectors of sums
    STEP = ROWS_STEP,         // weights of a row that are multiplied together
    TILE = VEC == 16 ? 2 : 1, // columns whose sums fit into the registers
};

_Static_assert(ROWS_STEP == SUMS * VEC, "a step is a vector for each of the sums");

SIMD_INLINE vec sum_four(const vec s[SUMS]) {
    return (s[0] + s[2]) + (s[1] + s[3]);
}

// Columns for weights in F16: rounded to F16, stored as F32
static void round_steps(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    (void) type;
    (void) stride;
    float * y = (float *) (void *) out;
    for (int64_t k = 0; k < n * STEP; k += 8) {
        _mm256_storeu_ps(y + k, _mm256_cvtph_ps(_mm256_cvtps_ph(
                                        _mm256_loadu_ps(x + k), _MM_FROUND_TO_NEAREST_INT)));
    }
}

SIMD_INLINE vec load_weights(const char * row, int64_t k, bool is_f16) {
    if (!is_f16) {
        return vec_load((const float *) (const void *) row + k);
    }
    return vec_from_f16((const uint16_t *) (const void *) row + k);
}

// The sum of a vector, as ggml adds it
SIMD_INLINE float sum_all(vec sum) {
#    if VEC == 16
    return _mm512_reduce_add_ps((__m512) sum);
#    else
    const __m128 four = _mm_add_ps(
            _mm256_castps256_ps128((__m256) sum), _mm256_extractf128_ps((__m256) sum, 1));
    const __m128 two = _mm_hadd_ps(four, four);
    return _mm_cvtss_f32(_mm_hadd_ps(two, two));
#    endif
}

#    if VEC == 16
// sum_all of four vectors. A row of the low-rank matrices of RWKV-7 is as short as 64 weights: with
// 16 columns, sums across vectors would take most of the time.
SIMD_INLINE __m128 sum_all_four(vec a, vec b, vec c, vec d) {
    const __m512 x = (__m512) a, y = (__m512) b, z = (__m512) c, w = (__m512) d;
    const __m512 xy =
            _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
    const __m512 zw =
            _mm512_add_ps(_mm512_shuffle_f32x4(z, w, 0x44), _mm512_shuffle_f32x4(z, w, 0xee));
    __m512 sum =
            _mm512_add_ps(_mm512_shuffle_f32x4(xy, zw, 0x88), _mm512_shuffle_f32x4(xy, zw, 0xdd));
    sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x4e));
    sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xb1));
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), sum));
}
#    endif

SIMD_INLINE void multiply(const struct row_pair * p, const char * columns, int64_t stride,
        int64_t K, int n, bool is_f16, bool prefetch) {
    const int    step_bytes = STEP * (is_f16 ? 2 : 4);
    const char * far = p->rows[1] + ROWS_FAR;
    vec          acc[2][TILE][SUMS];
    UNROLL(8) for (int i = 0; i < n * SUMS; ++i) {
        acc[0][i / SUMS][i % SUMS] = acc[1][i / SUMS][i % SUMS] = (vec) { 0.0f };
    }
    for (int64_t k = 0; k < K; k += STEP) {
        if (prefetch) {
            UNROLL(8) for (int i = 0; i < 2 * step_bytes / 64; ++i, far += 64) {
                _mm_prefetch(far, _MM_HINT_T0);
            }
        }
        UNROLL(4) for (int j = 0; j < SUMS; ++j) {
            const vec w0 = load_weights(p->rows[0], k + j * VEC, is_f16);
            const vec w1 = load_weights(p->rows[1], k + j * VEC, is_f16);
            UNROLL(2) for (int c = 0; c < n; ++c) {
                const vec x = vec_load(
                        (const float *) (const void *) (columns + c * stride) + k + j * VEC);
                acc[0][c][j] = vec_fma(w0, x, acc[0][c][j]);
                acc[1][c][j] = vec_fma(w1, x, acc[1][c][j]);
            }
        }
    }
#    if VEC == 16
    if (n == 2 && p->n == 2) {
        const __m128 y = sum_all_four(
                sum_four(acc[0][0]), sum_four(acc[1][0]), sum_four(acc[0][1]), sum_four(acc[1][1]));
        _mm_storel_pi((__m64 *) product_y(p->part, p->r, p->c), y);
        _mm_storeh_pi((__m64 *) product_y(p->part, p->r, p->c + 1), y);
        return;
    }
#    endif
    UNROLL(2) for (int c = 0; c < n; ++c) {
        float * y = (float *) (void *) product_y(p->part, p->r, p->c + c);
        y[0] = sum_all(sum_four(acc[0][c]));
        if (p->n == 2) {
            y[1] = sum_all(sum_four(acc[1][c]));
        }
    }
}

SIMD_INLINE void multiply_all(const struct row_pair * p, const char * columns, int64_t stride,
        int64_t K, int n, bool is_f16) {
    struct row_pair pair = *p;
    for (int c = 0; c < n; c += TILE, pair.c += TILE, columns += TILE * stride) {
        if (n - c >= TILE) {
            multiply(&pair, columns, stride, K, TILE, is_f16, p->prefetch && c == 0);
        } else {
            multiply(&pair, columns, stride, K, 1, is_f16, p->prefetch && c == 0);
        }
    }
}

// GCC would spill registers if it inlined these.
static __attribute__((noinline)) void multiply_pair_f32(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n) {
    multiply_all(p, columns, stride, K, n, false);
}

static __attribute__((noinline)) void multiply_pair_f16(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n) {
    multiply_all(p, columns, stride, K, n, true);
}

static void multiply_f32(const struct product_part * part) {
    multiply_pairs(part, part->x_nb1, multiply_pair_f32);
}

static void multiply_f16(const struct product_part * part) {
    multiply_pairs(part, part->K * (int64_t) sizeof(float), multiply_pair_f16);
}

static bool supports_f32(const struct ggml_tensor * dst) {
    return dst->src[0]->ne[0] % STEP == 0 && product_is_few(dst);
}

static bool supports_f16(const struct ggml_tensor * dst) {
#    if defined(__AVX512FP16__) // ggml would multiply in F16
    (void) dst;
    return false;
#    else
    return dst->src[0]->ne[0] % STEP == 0 && dst->ne[1] == 1;
#    endif
}

const struct product_kernel product_rows_f32 = {
    .name = "rows f32",
    .types = PRODUCT_TYPE(F32),
    .supports = supports_f32,
    .private_max = INT64_MAX,
    .height = 2,
    .min_slice_size = 16384,
    .multiply = multiply_f32,
};

const struct product_kernel product_rows_f16 = {
    .name = "rows f16",
    .types = PRODUCT_TYPE(F16),
    .supports = supports_f16,
    .block = STEP,
    .block_size = STEP * sizeof(float),
    .round = round_steps,
    .private_max = 4096,
    .height = 2,
    .slice_rows = 128,
    .slice_columns = 256,
    .min_slice_size = 16384,
    .multiply = multiply_f16,
};

#endif
