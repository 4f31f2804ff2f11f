#pragma once

// Columns in 8 bits, rounded as ggml does.

#include "product.h"
#include "simd.h"

#if PRODUCT_AVX2

// The largest |x| of n numbers; NaN if a number is not finite. Without their sign, floats have the
// order of the integers with the same bits, and those of infinity and NaN are the largest.
static inline float largest(const float * x, int n) {
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    __m256i       max = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) {
        const __m256i v = _mm256_loadu_si256((const __m256i *) (const void *) (x + i));
        max = _mm256_max_epu32(max, _mm256_and_si256(magnitude, v));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    const float top = _mm_cvtss_f32(_mm_castsi128_ps(m));
    return isfinite(top) ? top : NAN;
}

// Rounds 32 numbers times `scale` → q, four numbers in each.
static inline void round_32(const float * x, float scale, int32_t q[8]) {
    __m256i r[4];
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(scale)));
    }
    // packs interleaves the halves of its operands
    const __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    _mm256_storeu_si256((__m256i *) q,
            _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

// sums[i]: of the four numbers in q[i]
static inline void sum_fours(const int32_t q[8], int32_t sums[8]) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i *) q);
    const __m256i two = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    _mm256_storeu_si256((__m256i *) sums, _mm256_madd_epi16(two, _mm256_set1_epi16(1)));
}

// Sums of two neighbors among 16 n numbers
static inline void sum_neighbors(const int32_t * x, int n, int32_t * sums) {
    for (int i = 0; i < n; ++i) {
        const __m256i a = _mm256_loadu_si256((const __m256i *) x + 2 * i);
        const __m256i b = _mm256_loadu_si256((const __m256i *) x + 2 * i + 1);
        _mm256_storeu_si256(
                (__m256i *) sums + i, _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8));
    }
}

static inline float round_f16(float x) {
    return _cvtsh_ss(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline float scale_of(float top) {
    return 127.0f / top;
}

#else // NEON

static inline float largest(const float * x, int n) {
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < n; i += 4) {
        max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    }
    const uint32_t bits = vmaxvq_u32(max);
    float          top;
    memcpy(&top, &bits, sizeof(top));
    return isfinite(top) ? top : NAN;
}

static inline void round_32(const float * x, float scale, int32_t q[8]) {
    for (int i = 0; i < 8; i += 4, x += 16) {
        int16x4_t r[4];
        for (int j = 0; j < 4; ++j) {
            r[j] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * j), scale)));
        }
        const int8x16_t bytes = vcombine_s8(
                vqmovn_s16(vcombine_s16(r[0], r[1])), vqmovn_s16(vcombine_s16(r[2], r[3])));
        vst1q_s32(q + i, vreinterpretq_s32_s8(bytes));
    }
}

static inline void sum_fours(const int32_t q[8], int32_t sums[8]) {
    for (int i = 0; i < 8; i += 4) {
        const int8x16_t bytes = vreinterpretq_s8_s32(vld1q_s32(q + i));
        vst1q_s32(sums + i, vdotq_s32(vdupq_n_s32(0), bytes, vdupq_n_s8(1)));
    }
}

static inline void sum_neighbors(const int32_t * x, int n, int32_t * sums) {
    for (int i = 0; i < 8 * n; i += 4) {
        vst1q_s32(sums + i, vpaddq_s32(vld1q_s32(x + 2 * i), vld1q_s32(x + 2 * i + 4)));
    }
}

static inline float round_f16(float x) {
    return (float) (__fp16) x;
}

static inline float scale_of(float top) { // in ggml's order
    return 1.0f / (top / 127.0f);
}

#endif

// Rounds 32 numbers to multiples of e = max |x| / 127. e has the precision of F16, so that products
// with Q8_0 and Q4_0 weights differ from ggml's only by the order of their sums, if at all. e is
// NaN if a number is not finite.
static inline void round_block(const float * x, float * e, int32_t q[8]) {
    const float top = largest(x, 32);
    *e = round_f16(top / 127.0f);
    round_32(x, top > 0.0f ? scale_of(top) : 0.0f, q);
}
