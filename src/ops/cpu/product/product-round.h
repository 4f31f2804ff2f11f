#pragma once

// Columns in 8 bits, rounded as ggml does.

#include <immintrin.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

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

// Rounds 32 numbers times `scale`.
static inline __m256i round_32(const float * x, float scale) {
    __m256i r[4];
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(scale)));
    }
    // packs interleaves the halves of its operands
    const __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of four numbers
static inline __m256i sum_fours(__m256i q) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
}

// Rounds 32 numbers to multiples of e = max |x| / 127. e has the precision of F16, so that products
// with weights of type Q8_0 and Q4_0 differ from ggml's by the order of the sums at most. e is NaN
// if a number is not finite.
static inline __m256i round_block(const float * x, float * e) {
    const float top = largest(x, 32);
    *e = _cvtsh_ss(_cvtss_sh(top / 127.0f, _MM_FROUND_TO_NEAREST_INT));
    return round_32(x, top > 0.0f ? 127.0f / top : 0.0f);
}
