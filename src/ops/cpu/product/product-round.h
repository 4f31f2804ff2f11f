#pragma once

// Columns in 8 bits, rounded as ggml does.

#include <immintrin.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

// The largest |x| of n numbers; NaN if a number is not finite
static inline float largest(const float * x, int n) {
    const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
    __m256       max = zero, none = zero; // none: 0 or NaN
    for (int i = 0; i < n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        max = _mm256_max_ps(max, _mm256_andnot_ps(sign, v));
        none = _mm256_fmadd_ps(v, zero, none);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    const bool ok = _mm256_movemask_ps(_mm256_cmp_ps(none, zero, _CMP_NEQ_UQ)) == 0;
    return ok ? _mm_cvtss_f32(m) : NAN;
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

// Rounds 32 numbers to multiples of e = max |x| / 127; returns e, which has the precision of F16,
// so that products with weights of type Q8_0 and Q4_0 differ from ggml's by the order of the sums
// at most. e is NaN if a number is not finite.
static inline float round_block(const float * x, int8_t * q) {
    const float top = largest(x, 32);
    _mm256_storeu_si256((__m256i *) q, round_32(x, top > 0.0f ? 127.0f / top : 0.0f));
    return _cvtsh_ss(_cvtss_sh(top / 127.0f, _MM_FROUND_TO_NEAREST_INT));
}
