// Two rows in blocks of 256 weights (Q4_K, Q6_K) times a few columns. The equation is in
// product-k.h. A vector of 512 bits holds 32 weights of both rows; without AVX-512, each row has a
// vector of its own.

#include "product-k.h"
#include "product-rows.h"

#if PRODUCT_AVX2

#    include "simd.h"

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"

// ---- Vectors of both rows -----------------------------------------------------------------------

#    if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
            defined(__AVX512VNNI__)
typedef __m512i both;
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
// Four sums of each row
SIMD_INLINE __m256i both_fold(both x) {
    const __m256i a = _mm512_castsi512_si256(x), b = _mm512_extracti64x4_epi64(x, 1);
    return _mm256_add_epi32(
            _mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}
#    else
typedef struct {
    __m256i a, b;
} both;
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
SIMD_INLINE __m256i both_fold(both x) {
    return _mm256_add_epi32(
            _mm256_permute2x128_si256(x.a, x.b, 0x20), _mm256_permute2x128_si256(x.a, x.b, 0x31));
}
#    endif

SIMD_INLINE both both_load(const void * a, const void * b) {
    return both_set(_mm256_loadu_si256(a), _mm256_loadu_si256(b));
}

// ---- Products -----------------------------------------------------------------------------------

// Sums of the four numbers of each row of n vectors: [v[0], v[1], …] of row 0, then of row 1
SIMD_INLINE __m256i sum_rows(const __m256i v[ROWS_TILE], int n) {
    const __m256i a = _mm256_hadd_epi32(v[0], n > 1 ? v[1] : v[0]);
    return _mm256_hadd_epi32(a, n > 2 ? _mm256_hadd_epi32(v[2], n > 3 ? v[3] : v[2]) : a);
}

SIMD_INLINE const struct column_block * block_of(
        const struct row_pair * p, const char * columns, int64_t b, int c) {
    return (const struct column_block *) (const void *) columns + b * p->part->C + c;
}

SIMD_INLINE __m256i load_q(const struct column_block * x, int i) {
    return _mm256_loadu_si256((const __m256i *) x->q + i);
}

// The factors of n columns, for both rows
SIMD_INLINE __m256 load_e(const struct row_pair * p, const char * columns, int64_t b, int n) {
    float e[ROWS_TILE];
    UNROLL(4) for (int c = 0; c < ROWS_TILE; ++c) {
        e[c] = block_of(p, columns, b, c < n ? c : 0)->e;
    }
    return _mm256_broadcast_ps(&(const __m128) { e[0], e[1], e[2], e[3] });
}

// A factor of each row, for all columns
SIMD_INLINE __m256 copy_factor(__m128 factors, int first, int second) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(factors),
            _mm256_setr_epi32(first, first, first, first, second, second, second, second));
}

SIMD_INLINE void store_rows(const struct row_pair * p, __m256 sums, int n) {
    float y[2 * ROWS_TILE];
    _mm256_storeu_ps(y, sums);
    UNROLL(4) for (int c = 0; c < n; ++c) {
        float * out = (float *) (void *) product_y(p->part, p->r, p->c + c);
        out[0] = y[c];
        if (p->n == 2) {
            out[1] = y[ROWS_TILE + c];
        }
    }
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
        const struct row_pair * p, const char * columns, int64_t n_blocks, int n) {
    const char * far = p->rows[1] + ROWS_FAR;
    __m256       y = _mm256_setzero_ps(); // [columns, rows]
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
                const struct column_block * x = block_of(p, columns, b, c);
                sum[c] = both_add(sum[c], both_dot(low, load_q(x, 2 * j), scale_low, high,
                                                  load_q(x, 2 * j + 1), scale_high));
            }
        }
        const __m128 factors = load_factors(&v0->d, &v1->d); // d and m of each row
        __m256i      v[2 * ROWS_TILE];                       // dots, then minima
        UNROLL(4) for (int c = 0; c < n; ++c) {
            const struct column_block * x = block_of(p, columns, b, c);
            v[c] = both_fold(sum[c]);
            v[n + c] = _mm256_madd_epi16(
                    t, _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) x->sums)));
        }
        // one or two columns leave room for their minima
        const __m256i dots = sum_rows(v, n > 2 ? n : 2 * n);
        const __m256i minima = n > 2    ? sum_rows(v + n, n)
                               : n == 2 ? _mm256_shuffle_epi32(dots, 0x4e)
                                        : _mm256_shuffle_epi32(dots, 0xb1);
        const __m256  block = _mm256_mul_ps(_mm256_cvtepi32_ps(dots), copy_factor(factors, 0, 2));
        y = _mm256_fmadd_ps(
                _mm256_fnmadd_ps(_mm256_cvtepi32_ps(minima), copy_factor(factors, 1, 3), block),
                load_e(p, columns, b, n), y);
    }
    store_rows(p, y, n);
}

// Q6_K
SIMD_INLINE void multiply_6(
        const struct row_pair * p, const char * columns, int64_t n_blocks, int n) {
    const char * far = p->rows[1] + ROWS_FAR;
    __m256       y = _mm256_setzero_ps(); // [columns, rows]
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
            const struct column_block * x = block_of(p, columns, b, c);
            // weights are stored plus 32
            sum[c] = both_sub(both_zero(), both_times_32(both_madd(scales,
                                                   _mm256_loadu_si256((const __m256i *) x->sums))));
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
                    const struct column_block * x = block_of(p, columns, b, c);
                    sum[c] = both_add(sum[c], both_dot(w[i], load_q(x, 4 * j + i), scale, w[i + 1],
                                                      load_q(x, 4 * j + i + 1), next));
                }
            }
        }
        const __m128 factors = _mm_cvtph_ps(_mm_set_epi32(0, 0, v1->d, v0->d)); // [d, 0, d', 0]
        __m256i      dots[ROWS_TILE];
        UNROLL(4) for (int c = 0; c < n; ++c) {
            dots[c] = both_fold(sum[c]);
        }
        const __m256 block =
                _mm256_mul_ps(_mm256_cvtepi32_ps(sum_rows(dots, n)), copy_factor(factors, 0, 2));
        y = _mm256_fmadd_ps(block, load_e(p, columns, b, n), y);
    }
    store_rows(p, y, n);
}

static void multiply_q4_k(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n) {
    (void) stride;
    switch (n) {
        case 1: multiply_4(p, columns, K / QK_K, 1); break;
        case 2: multiply_4(p, columns, K / QK_K, 2); break;
        case 3: multiply_4(p, columns, K / QK_K, 3); break;
        default: multiply_4(p, columns, K / QK_K, ROWS_TILE); break;
    }
}

static void multiply_q6_k(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n) {
    (void) stride;
    switch (n) {
        case 1: multiply_6(p, columns, K / QK_K, 1); break;
        case 2: multiply_6(p, columns, K / QK_K, 2); break;
        case 3: multiply_6(p, columns, K / QK_K, 3); break;
        default: multiply_6(p, columns, K / QK_K, ROWS_TILE); break;
    }
}

void product_rows_k(const struct product_part * part) {
    multiply_pairs(part, sizeof(struct column_block),
            part->type == GGML_TYPE_Q4_K ? multiply_q4_k : multiply_q6_k);
}

#endif
