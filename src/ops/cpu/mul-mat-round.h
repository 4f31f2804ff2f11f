#pragma once

// Columns in 8 bits, rounded as ggml does for weights of type Q8_0 and Q4_0.

#include <immintrin.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

// Rounds 32 numbers to multiples of e = max |x| / 127; returns e, which has the precision of F16,
// so that products differ from ggml's by the order of the sums at most. e is NaN if a number is not
// finite.
static inline float round_block(const float * x, int8_t * q) {
    const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
    __m256       v[4], max = zero, none = zero; // none: 0 or NaN
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        max  = _mm256_max_ps(max, _mm256_andnot_ps(sign, v[i]));
        none = _mm256_fmadd_ps(v[i], zero, none);
    }
    __m128 m        = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    m               = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m               = _mm_max_ss(m, _mm_movehdup_ps(m));
    const float top = _mm_cvtss_f32(m);

    const __m256 scale = _mm256_set1_ps(top > 0.0f ? 127.0f / top : 0.0f);
    __m256i      r[4];
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], scale));
    }
    // packs interleaves the halves of its operands
    const __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    _mm256_storeu_si256((__m256i *) q,
            _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    const bool ok = _mm256_movemask_ps(_mm256_cmp_ps(none, zero, _CMP_NEQ_UQ)) == 0;
    return ok ? _cvtsh_ss(_cvtss_sh(top / 127.0f, _MM_FROUND_TO_NEAREST_INT)) : NAN;
}
