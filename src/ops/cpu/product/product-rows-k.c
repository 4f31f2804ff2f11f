// Two rows in blocks of 256 weights (Q4_K, Q6_K) times a few columns.
//
//     y[r, c] = Σ_b e[c, b] (d[r, b] Σ_{k in block b} s[r, k] w[r, k] x[k, c]
//                            − m[r, b] Σ_{k in block b} t[r, k] x[k, c])
//
// w and x are integers, and so are the scales s of 16 or 32 weights and the minima t, which only
// Q4_K has. A vector of 512 bits holds 32 weights of both rows; without AVX-512, each row has a
// vector of its own. Sums of integers are exact, and a block adds to the sums in F32 once, as in
// ggml's dot products.

#include "product-rows.h"

#if PRODUCT_AVX2

#    include "simd.h"

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"

//
// Vectors of both rows
//

#    if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
            defined(__AVX512VNNI__)
typedef __m512i both;
typedef __m512  both_f;
SIMD_INLINE both both_zero(void) {
    return _mm512_setzero_si512();
}
SIMD_INLINE both both_set(__m256i a, __m256i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
SIMD_INLINE both both_and(both x, int m) {
    return _mm512_and_si512(x, _mm512_set1_epi8((char) m));
}
SIMD_INLINE both both_or(both x, both y) {
    return _mm512_or_si512(x, y);
}
SIMD_INLINE both both_left(both x, int n) {
    return _mm512_slli_epi16(x, (unsigned) n);
}
SIMD_INLINE both both_right(both x, int n) {
    return _mm512_srli_epi16(x, (unsigned) n);
}
SIMD_INLINE both both_sub(both x, both y) {
    return _mm512_sub_epi32(x, y);
}
SIMD_INLINE both both_times_32(both x) {
    return _mm512_slli_epi32(x, 5);
}
// The lower or upper 128 bits of each row, twice
SIMD_INLINE both both_low(both x) {
    return _mm512_shuffle_i64x2(x, x, 0xa0);
}
SIMD_INLINE both both_high(both x) {
    return _mm512_shuffle_i64x2(x, x, 0xf5);
}
SIMD_INLINE both both_shuffle(both x, __m256i mask) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i64x4(mask));
}
SIMD_INLINE both both_madd(both x, __m256i y) {
    return _mm512_madd_epi16(x, _mm512_broadcast_i64x4(y));
}
SIMD_INLINE both both_add(both x, both y) {
    return _mm512_add_epi32(x, y);
}
// s Σ w q + t Σ v p: sums of four products of bytes, scaled
SIMD_INLINE both both_dot(both w, __m256i q, both s, both v, __m256i p, both t) {
    const __m512i a = _mm512_maddubs_epi16(w, _mm512_broadcast_i64x4(q));
    const __m512i b = _mm512_maddubs_epi16(v, _mm512_broadcast_i64x4(p));
    return _mm512_dpwssd_epi32(_mm512_madd_epi16(a, s), b, t);
}
SIMD_INLINE both_f both_f_zero(void) {
    return _mm512_setzero_ps();
}
// sum + f x, with factor f[0] for the first row and f[2] for the second
SIMD_INLINE both_f both_fma(__m128 f, both x, both_f sum) {
    const __m512i rows = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512  factor = _mm512_permutexvar_ps(rows, _mm512_castps128_ps512(f));
    return _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(x), sum);
}
SIMD_INLINE __m256 both_row(both_f x, int r) {
    return r == 0 ? _mm512_castps512_ps256(x) : _mm512_extractf32x8_ps(x, 1);
}
#    else
typedef struct {
    __m256i a, b;
} both;
typedef struct {
    __m256 a, b;
} both_f;
SIMD_INLINE both both_zero(void) {
    return (both) { _mm256_setzero_si256(), _mm256_setzero_si256() };
}
SIMD_INLINE both both_set(__m256i a, __m256i b) {
    return (both) { a, b };
}
SIMD_INLINE both both_and(both x, int m) {
    const __m256i mask = _mm256_set1_epi8((char) m);
    return (both) { _mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask) };
}
SIMD_INLINE both both_or(both x, both y) {
    return (both) { _mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b) };
}
SIMD_INLINE both both_left(both x, int n) {
    return (both) { _mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n) };
}
SIMD_INLINE both both_right(both x, int n) {
    return (both) { _mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n) };
}
SIMD_INLINE both both_sub(both x, both y) {
    return (both) { _mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b) };
}
SIMD_INLINE both both_times_32(both x) {
    return (both) { _mm256_slli_epi32(x.a, 5), _mm256_slli_epi32(x.b, 5) };
}
SIMD_INLINE both both_low(both x) {
    return (both) { _mm256_permute2x128_si256(x.a, x.a, 0x00),
        _mm256_permute2x128_si256(x.b, x.b, 0x00) };
}
SIMD_INLINE both both_high(both x) {
    return (both) { _mm256_permute2x128_si256(x.a, x.a, 0x11),
        _mm256_permute2x128_si256(x.b, x.b, 0x11) };
}
SIMD_INLINE both both_shuffle(both x, __m256i mask) {
    return (both) { _mm256_shuffle_epi8(x.a, mask), _mm256_shuffle_epi8(x.b, mask) };
}
SIMD_INLINE both both_madd(both x, __m256i y) {
    return (both) { _mm256_madd_epi16(x.a, y), _mm256_madd_epi16(x.b, y) };
}
SIMD_INLINE both both_add(both x, both y) {
    return (both) { _mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b) };
}
SIMD_INLINE __m256i dot_one(__m256i w, __m256i q, __m256i s) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), s);
}
SIMD_INLINE both both_dot(both w, __m256i q, both s, both v, __m256i p, both t) {
    return (both) { _mm256_add_epi32(dot_one(w.a, q, s.a), dot_one(v.a, p, t.a)),
        _mm256_add_epi32(dot_one(w.b, q, s.b), dot_one(v.b, p, t.b)) };
}
SIMD_INLINE both_f both_f_zero(void) {
    return (both_f) { _mm256_setzero_ps(), _mm256_setzero_ps() };
}
SIMD_INLINE both_f both_fma(__m128 f, both x, both_f sum) {
    const __m256 a = _mm256_broadcastss_ps(f), b = _mm256_broadcastss_ps(_mm_movehl_ps(f, f));
    return (both_f) { _mm256_fmadd_ps(a, _mm256_cvtepi32_ps(x.a), sum.a),
        _mm256_fmadd_ps(b, _mm256_cvtepi32_ps(x.b), sum.b) };
}
SIMD_INLINE __m256 both_row(both_f x, int r) {
    return r == 0 ? x.a : x.b;
}
#    endif

SIMD_INLINE both both_load(const void * a, const void * b) {
    return both_set(_mm256_loadu_si256(a), _mm256_loadu_si256(b));
}

//
// Columns: as those of ggml, but with sums of 32 instead of 16 numbers for Q4_K
//

// Rounds 256 numbers to multiples of d = −x / 127, where x is the largest, as ggml does. d is NaN
// if a number is not finite.
static void round_block_k(const float * x, block_q8_K * out) {
    const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
    __m256       max = zero, none = zero; // none: 0 or NaN
    for (int j = 0; j < QK_K; j += 8) {
        const __m256 v = _mm256_loadu_ps(x + j);
        max = _mm256_max_ps(max, _mm256_andnot_ps(sign, v));
        none = _mm256_fmadd_ps(v, zero, none);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    float top = _mm_cvtss_f32(m);
    memset(out, 0, sizeof(*out));
    if (_mm256_movemask_ps(_mm256_cmp_ps(none, zero, _CMP_NEQ_UQ)) != 0) {
        out->d = NAN;
        return;
    }
    if (top == 0.0f) {
        return;
    }
    for (int j = 0; j < QK_K; j += 8) { // the sign of the first of the largest
        const __m256 v = _mm256_loadu_ps(x + j);
        const int    here = _mm256_movemask_ps(
                _mm256_cmp_ps(_mm256_andnot_ps(sign, v), _mm256_set1_ps(top), _CMP_EQ_OQ));
        if (here != 0) {
            top = x[j + __builtin_ctz((unsigned) here)];
            break;
        }
    }
    const __m256 scale = _mm256_set1_ps(-127.0f / top);
    for (int j = 0; j < QK_K; j += 16) {
        const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(scale, _mm256_loadu_ps(x + j)));
        const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(scale, _mm256_loadu_ps(x + j + 8)));
        // packs interleaves the halves of its operands
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        const __m128i bytes =
                _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *) (out->qs + j), bytes);
        __m128i sum = _mm256_castsi256_si128(_mm256_madd_epi16(words, _mm256_set1_epi16(1)));
        sum = _mm_add_epi32(
                sum, _mm256_extracti128_si256(_mm256_madd_epi16(words, _mm256_set1_epi16(1)), 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
        out->bsums[j / 16] = (int16_t) _mm_cvtsi128_si32(sum);
    }
    out->d = 1.0f / (-127.0f / top);
}

static void round_blocks(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    (void) stride;
    block_q8_K * blocks = (block_q8_K *) (void *) out;
    for (int64_t b = 0; b < n; ++b) {
        round_block_k(x + b * QK_K, &blocks[b]);
        for (int i = 0; type == GGML_TYPE_Q4_K && i < QK_K / 32; ++i) {
            blocks[b].bsums[i] = (int16_t) (blocks[b].bsums[2 * i] + blocks[b].bsums[2 * i + 1]);
        }
    }
}

//
// Products
//

SIMD_INLINE float sum_four(__m128 s) {
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

SIMD_INLINE float sum_eight(__m256 x) {
    return sum_four(_mm_add_ps(_mm256_extractf128_ps(x, 1), _mm256_castps256_ps128(x)));
}

SIMD_INLINE const block_q8_K * column_block(const char * columns, int64_t skip, int64_t b) {
    return (const block_q8_K *) (const void *) (columns + skip) + b;
}

SIMD_INLINE void prefetch(const char ** far, int n_bytes) {
    for (int i = 0; i < n_bytes; i += 64) {
        _mm_prefetch(*far + i, _MM_HINT_T0);
    }
    *far += n_bytes;
}

// 8 scales of 6 bits, then 8 minima: the packing of Q4_K
SIMD_INLINE __m128i scales_and_minima(const uint8_t * packed) {
    const uint32_t low6 = 0x3f3f3f3f, low4 = 0x0f0f0f0f, low2 = 0x03030303;
    uint32_t       u0, u1, u2;
    memcpy(&u0, packed, 4);
    memcpy(&u1, packed + 4, 4);
    memcpy(&u2, packed + 8, 4);
    const uint64_t scales = (u0 & low6) | (uint64_t) ((u2 & low4) | (u0 >> 6 & low2) << 4) << 32;
    const uint64_t minima = (u1 & low6) | (uint64_t) ((u2 >> 4 & low4) | (u1 >> 6 & low2) << 4)
                                                  << 32;
    return _mm_set_epi64x((long long) minima, (long long) scales);
}

// Masks of shuffles that copy 16 bits: number `low` to the lower 128 bits, `high` to the upper ones
#    define FOUR(x) x, x, x, x
#    define COPY(low, high)                                                                       \
        { FOUR((low) * 0x202 + 0x100), FOUR((low) * 0x202 + 0x100), FOUR((high) * 0x202 + 0x100), \
            FOUR((high) * 0x202 + 0x100) }
static const int16_t copy_32[8][16] = { COPY(0, 0), COPY(1, 1), COPY(2, 2), COPY(3, 3), COPY(4, 4),
    COPY(5, 5), COPY(6, 6), COPY(7, 7) };
static const int16_t copy_16[4][16] = { COPY(0, 1), COPY(2, 3), COPY(4, 5), COPY(6, 7) };

SIMD_INLINE both copy_scale(both scales, const int16_t * mask) {
    return both_shuffle(scales, _mm256_loadu_si256((const __m256i *) mask));
}

// F16 numbers 0 and 1 of two blocks: [a, b, a', b']
SIMD_INLINE __m128 load_factors(const void * v0, const void * v1) {
    int32_t u0, u1;
    memcpy(&u0, v0, sizeof(u0));
    memcpy(&u1, v1, sizeof(u1));
    return _mm_cvtph_ps(_mm_insert_epi32(_mm_cvtsi32_si128(u0), u1, 1));
}

// Q4_K: two rows and n columns
SIMD_INLINE void multiply_4(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t n_blocks, int n) {
    const char * far = p->rows[1] + ROWS_FAR;
    both_f       acc[ROWS_TILE];
    __m256       minima[ROWS_TILE]; // four sums of each row
    UNROLL(4) for (int c = 0; c < n; ++c) {
        acc[c] = both_f_zero();
        minima[c] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < n_blocks; ++b) {
        const block_q4_K * v0 = (const block_q4_K *) (const void *) p->rows[0] + b;
        const block_q4_K * v1 = (const block_q4_K *) (const void *) p->rows[1] + b;
        if (p->prefetch) {
            prefetch(&far, 2 * (int) sizeof(block_q4_K));
        }
        const __m256i packed0 = _mm256_cvtepu8_epi16(scales_and_minima(v0->scales));
        const __m256i packed1 = _mm256_cvtepu8_epi16(scales_and_minima(v1->scales));
        const both    scales = both_low(both_set(packed0, packed1));
        const __m256i t = _mm256_permute2x128_si256(packed0, packed1, 0x31);
        both          sum[ROWS_TILE];
        UNROLL(4) for (int c = 0; c < n; ++c) {
            sum[c] = both_zero();
        }
        UNROLL(4) for (int j = 0; j < QK_K / 64; ++j) {
            const both w = both_load(v0->qs + 32 * j, v1->qs + 32 * j);
            const both low = both_and(w, 15), high = both_and(both_right(w, 4), 15);
            const both scale_low = copy_scale(scales, copy_32[2 * j]);
            const both scale_high = copy_scale(scales, copy_32[2 * j + 1]);
            UNROLL(4) for (int c = 0; c < n; ++c) {
                const block_q8_K * x = column_block(columns, c * stride, b);
                const __m256i *    q = (const __m256i *) (x->qs + 64 * j);
                sum[c] = both_add(sum[c], both_dot(low, _mm256_loadu_si256(q), scale_low, high,
                                                  _mm256_loadu_si256(q + 1), scale_high));
            }
        }
        const __m128 factors = load_factors(&v0->d, &v1->d); // d and m of each row
        UNROLL(4) for (int c = 0; c < n; ++c) {
            const block_q8_K * x = column_block(columns, c * stride, b);
            const __m128       f = _mm_mul_ps(_mm_set1_ps(x->d), factors);
            acc[c] = both_fma(f, sum[c], acc[c]);
            const __m256i product = _mm256_madd_epi16(
                    t, _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) x->bsums)));
            const __m256 m = _mm256_permutevar8x32_ps(
                    _mm256_castps128_ps256(f), _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3));
            minima[c] = _mm256_fnmadd_ps(m, _mm256_cvtepi32_ps(product), minima[c]);
        }
    }
    UNROLL(4) for (int c = 0; c < n; ++c) {
        float * y = (float *) (void *) (p->y + c * p->y_nb1);
        y[0] = sum_eight(both_row(acc[c], 0)) + sum_four(_mm256_castps256_ps128(minima[c]));
        if (p->n == 2) {
            y[1] = sum_eight(both_row(acc[c], 1)) + sum_four(_mm256_extractf128_ps(minima[c], 1));
        }
    }
}

// Q6_K
SIMD_INLINE void multiply_6(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t n_blocks, int n) {
    const char * far = p->rows[1] + ROWS_FAR;
    both_f       acc[ROWS_TILE];
    UNROLL(4) for (int c = 0; c < n; ++c) {
        acc[c] = both_f_zero();
    }
    for (int64_t b = 0; b < n_blocks; ++b) {
        const block_q6_K * v0 = (const block_q6_K *) (const void *) p->rows[0] + b;
        const block_q6_K * v1 = (const block_q6_K *) (const void *) p->rows[1] + b;
        if (p->prefetch) {
            prefetch(&far, 2 * (int) sizeof(block_q6_K));
        }
        const both scales =
                both_set(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) v0->scales)),
                        _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) v1->scales)));
        both sum[ROWS_TILE];
        UNROLL(4) for (int c = 0; c < n; ++c) {
            const block_q8_K * x = column_block(columns, c * stride, b);
            // weights are stored plus 32
            sum[c] = both_sub(both_zero(),
                    both_times_32(
                            both_madd(scales, _mm256_loadu_si256((const __m256i *) x->bsums))));
        }
        UNROLL(2) for (int j = 0; j < QK_K / 128; ++j) {
            const both a = both_load(v0->ql + 64 * j, v1->ql + 64 * j);
            const both e = both_load(v0->ql + 64 * j + 32, v1->ql + 64 * j + 32);
            const both h = both_load(v0->qh + 32 * j, v1->qh + 32 * j);
            const both eight = j == 0 ? both_low(scales) : both_high(scales);
            const both w[4] = {
                both_or(both_and(a, 15), both_and(both_left(h, 4), 48)),
                both_or(both_and(e, 15), both_and(both_left(h, 2), 48)),
                both_or(both_and(both_right(a, 4), 15), both_and(h, 48)),
                both_or(both_and(both_right(e, 4), 15), both_and(both_right(h, 2), 48)),
            };
            UNROLL(2) for (int i = 0; i < 4; i += 2) {
                const both scale = copy_scale(eight, copy_16[i]);
                const both next = copy_scale(eight, copy_16[i + 1]);
                UNROLL(4) for (int c = 0; c < n; ++c) {
                    const block_q8_K * x = column_block(columns, c * stride, b);
                    const __m256i *    q = (const __m256i *) (x->qs + 128 * j + 32 * i);
                    sum[c] = both_add(sum[c], both_dot(w[i], _mm256_loadu_si256(q), scale, w[i + 1],
                                                      _mm256_loadu_si256(q + 1), next));
                }
            }
        }
        const __m128 factors = _mm_cvtph_ps(_mm_set_epi32(0, 0, v1->d, v0->d)); // [d, 0, d', 0]
        UNROLL(4) for (int c = 0; c < n; ++c) {
            const block_q8_K * x = column_block(columns, c * stride, b);
            acc[c] = both_fma(_mm_mul_ps(_mm_set1_ps(x->d), factors), sum[c], acc[c]);
        }
    }
    UNROLL(4) for (int c = 0; c < n; ++c) {
        float * y = (float *) (void *) (p->y + c * p->y_nb1);
        y[0] = sum_eight(both_row(acc[c], 0));
        if (p->n == 2) {
            y[1] = sum_eight(both_row(acc[c], 1));
        }
    }
}

static void multiply_q4_k(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n) {
    switch (n) {
        case 1: multiply_4(p, columns, stride, K / QK_K, 1); break;
        case 2: multiply_4(p, columns, stride, K / QK_K, 2); break;
        case 3: multiply_4(p, columns, stride, K / QK_K, 3); break;
        default: multiply_4(p, columns, stride, K / QK_K, ROWS_TILE); break;
    }
}

static void multiply_q6_k(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n) {
    switch (n) {
        case 1: multiply_6(p, columns, stride, K / QK_K, 1); break;
        case 2: multiply_6(p, columns, stride, K / QK_K, 2); break;
        case 3: multiply_6(p, columns, stride, K / QK_K, 3); break;
        default: multiply_6(p, columns, stride, K / QK_K, ROWS_TILE); break;
    }
}

static void multiply(const struct product_part * part) {
    const int64_t stride = part->K / QK_K * (int64_t) sizeof(block_q8_K);
    multiply_pairs(part, stride, part->type == GGML_TYPE_Q4_K ? multiply_q4_k : multiply_q6_k);
}

static bool supports(const struct ggml_tensor * dst) {
    return dst->ne[1] <= PRODUCT_FEW_COLUMNS_K;
}

const struct product_kernel product_rows_k = {
    .name = "rows k",
    .types = PRODUCT_TYPE(Q4_K) | PRODUCT_TYPE(Q6_K),
    .supports = supports,
    .block = QK_K,
    .block_size = sizeof(block_q8_K),
    .round = round_blocks,
    .private_max = 4096,
    .height = 2,
    .slice_rows = 128,
    .slice_columns = 256,
    .min_slice_size = 16384,
    .multiply = multiply,
};

#endif
