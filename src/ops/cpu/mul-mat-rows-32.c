// Two rows in blocks of 32 weights (Q8_0, Q4_0) times a few columns: see mul-mat-rows.c.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// As in ggml's dot products, the eight sums of four products in a block are scaled and added in
// F32, in the order of the blocks, and then added up. So the bits are theirs.

#include "mul-mat-rows.h"

#if MUL_MAT_ROWS

#    include "mul-mat-round.h"
#    include "simd.h"

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"

#    if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#        define HAVE_DPBUSD 1
#    else
#        define HAVE_DPBUSD 0
#    endif

enum {
    QK   = 32, // weights of a block
    PART = 32, // blocks whose factors are computed together, in vectors
};

// A rounded column.
struct column {
    int8_t *  q;     // [K]
    int32_t * first; // [K/4]: −o Σ q of four numbers, for weights stored as w + o
    float *   e;     // [K/32]: x = e q
};

static struct column column_at(char * at, int64_t K) {
    return (struct column) { (int8_t *) at, (int32_t *) (void *) (at + K),
        (float *) (void *) (at + 2 * K) };
}

static size_t column_size(int64_t K) {
    return (size_t) (2 * K + K / QK * (int64_t) sizeof(float));
}

static void round_column(
        enum ggml_type type, const float * x, int64_t K, int64_t begin, int64_t end, char * at) {
    const struct column out  = column_at(at, K);
    const __m256i       ones = _mm256_set1_epi8(1), pairs = _mm256_set1_epi16(1);
    const __m256i       offset = _mm256_set1_epi32(type == GGML_TYPE_Q8_0 ? -128 : -8);
    for (int64_t b = begin; b < end; ++b) {
        int8_t * q          = out.q + b * QK;
        out.e[b]            = round_block(x + b * QK, q);
        const __m256i fours = _mm256_madd_epi16(
                _mm256_maddubs_epi16(ones, _mm256_loadu_si256((const __m256i *) q)), pairs);
        _mm256_storeu_si256(
                (__m256i *) (out.first + b * (QK / 4)), _mm256_mullo_epi32(fours, offset));
    }
}

// d of eight blocks, which are `size` bytes apart: an instruction for each. A copy through memory
// would wait for its stores.
SIMD_INLINE __m256 load_factors(const char * block, int size) {
#    define D(i) (*(const uint16_t *) (const void *) (block + (i) * size))
    __m128i d = _mm_cvtsi32_si128(D(0));
    d         = _mm_insert_epi16(d, D(1), 1);
    d         = _mm_insert_epi16(d, D(2), 2);
    d         = _mm_insert_epi16(d, D(3), 3);
    d         = _mm_insert_epi16(d, D(4), 4);
    d         = _mm_insert_epi16(d, D(5), 5);
    d         = _mm_insert_epi16(d, D(6), 6);
    d         = _mm_insert_epi16(d, D(7), 7);
#    undef D
    return _mm256_cvtph_ps(d);
}

// de[c, b] = d[b] e[c, b], for n blocks of a row and n_columns columns
SIMD_INLINE void scale_part(const char * row, int size, const struct column * x, int64_t b0,
        int64_t n, int n_columns, float de[ROWS_TILE][PART]) {
    int64_t b = 0;
    for (; b + 8 <= n; b += 8) {
        const __m256 d = load_factors(row + b * size, size);
#    pragma GCC unroll 4
        for (int c = 0; c < n_columns; ++c) {
            _mm256_storeu_ps(de[c] + b, _mm256_mul_ps(d, _mm256_loadu_ps(x[c].e + b0 + b)));
        }
    }
    for (; b < n; ++b) {
        const float d = _cvtsh_ss(*(const uint16_t *) (const void *) (row + b * size));
#    pragma GCC unroll 4
        for (int c = 0; c < n_columns; ++c) {
            de[c][b] = d * x[c].e[b0 + b];
        }
    }
}

// The weights of a block: Q8_0 as they are, Q4_0 plus 8
SIMD_INLINE __m256i load_block(const char * block, bool is_q8_0) {
    const char * q = block + sizeof(uint16_t);
    if (is_q8_0) {
        return _mm256_loadu_si256((const __m256i *) q);
    }
    // weights 16 … 31 are the high halves of the bytes
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) q));
    return _mm256_and_si256(
            _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

// Eight sums of four products
SIMD_INLINE __m256i dot_fours(__m256i w, __m256i q, __m256i first, bool is_q8_0) {
#    if HAVE_DPBUSD
    const __m256i positive = is_q8_0 ? _mm256_xor_si256(w, _mm256_set1_epi8(INT8_MIN)) : w;
    return _mm256_dpbusd_epi32(first, positive, q);
#    else
    const __m256i pairs = _mm256_set1_epi16(1);
    if (is_q8_0) { // |w| and q with the sign of w
        return _mm256_madd_epi16(
                _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)), pairs);
    }
    return _mm256_add_epi32(first, _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), pairs));
#    endif
}

// The sum of eight, as in ggml's dot products
SIMD_INLINE float sum_eight(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_extractf128_ps(x, 1), _mm256_castps256_ps128(x));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The products of two rows and n columns
SIMD_INLINE void multiply(
        const struct row_pair * p, char * columns, int64_t stride, int64_t K, int n, bool is_q8_0) {
    const int     size     = is_q8_0 ? (int) sizeof(block_q8_0) : (int) sizeof(block_q4_0);
    const int64_t n_blocks = K / QK;
    const char *  far      = p->rows[1] + ROWS_FAR;
    __m256        acc[2][ROWS_TILE];
    float         de[2][ROWS_TILE][PART];
    struct column x[ROWS_TILE];
#    pragma GCC   unroll 4
    for (int c = 0; c < n; ++c) {
        x[c]      = column_at(columns + c * stride, K);
        acc[0][c] = _mm256_setzero_ps();
        acc[1][c] = _mm256_setzero_ps();
    }
    for (int64_t b0 = 0; b0 < n_blocks; b0 += PART) {
        const int64_t n_part = n_blocks - b0 < PART ? n_blocks - b0 : PART;
        scale_part(p->rows[0] + b0 * size, size, x, b0, n_part, n, de[0]);
        scale_part(p->rows[1] + b0 * size, size, x, b0, n_part, n, de[1]);
        for (int64_t b = 0; b < n_part; ++b) {
            if (p->prefetch) {
                _mm_prefetch(far, _MM_HINT_T0);
                far += 2 * size;
            }
            const __m256i w0 = load_block(p->rows[0] + (b0 + b) * size, is_q8_0);
            const __m256i w1 = load_block(p->rows[1] + (b0 + b) * size, is_q8_0);
#    pragma GCC unroll 4
            for (int c = 0; c < n; ++c) {
                const __m256i q = _mm256_loadu_si256((const __m256i *) (x[c].q + (b0 + b) * QK));
                const __m256i first =
                        _mm256_loadu_si256((const __m256i *) (x[c].first + (b0 + b) * (QK / 4)));
                acc[0][c] = _mm256_fmadd_ps(_mm256_set1_ps(de[0][c][b]),
                        _mm256_cvtepi32_ps(dot_fours(w0, q, first, is_q8_0)), acc[0][c]);
                acc[1][c] = _mm256_fmadd_ps(_mm256_set1_ps(de[1][c][b]),
                        _mm256_cvtepi32_ps(dot_fours(w1, q, first, is_q8_0)), acc[1][c]);
            }
        }
    }
#    pragma GCC unroll 4
    for (int c = 0; c < n; ++c) {
        float * y = (float *) (void *) (p->y + c * p->nb1);
        y[0]      = sum_eight(acc[0][c]);
        if (p->n == 2) {
            y[1] = sum_eight(acc[1][c]);
        }
    }
}

static void multiply_q8_0(
        const struct row_pair * p, char * columns, int64_t stride, int64_t K, int n) {
    switch (n) {
        case 1: multiply(p, columns, stride, K, 1, true); break;
        case 2: multiply(p, columns, stride, K, 2, true); break;
        case 3: multiply(p, columns, stride, K, 3, true); break;
        default: multiply(p, columns, stride, K, ROWS_TILE, true); break;
    }
}

static void multiply_q4_0(
        const struct row_pair * p, char * columns, int64_t stride, int64_t K, int n) {
    switch (n) {
        case 1: multiply(p, columns, stride, K, 1, false); break;
        case 2: multiply(p, columns, stride, K, 2, false); break;
        case 3: multiply(p, columns, stride, K, 3, false); break;
        default: multiply(p, columns, stride, K, ROWS_TILE, false); break;
    }
}

const struct row_kernel row_kernel_q8_0 = { QK, column_size, round_column, multiply_q8_0 };
const struct row_kernel row_kernel_q4_0 = { QK, column_size, round_column, multiply_q4_0 };

#endif
