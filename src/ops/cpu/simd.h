#pragma once

// Float vectors of the CPU's width, with the vector extensions of GCC and Clang.
//
// Files that include this header are compiled with -ffp-contract=off: only vec_fma and fma1 fuse a
// product and a sum. So all instances of an inlined function round alike, and results do not depend
// on how a sequence is cut into calls.

#include "ggml.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#    define VEC_BYTES 64
#elif defined(__AVX__)
#    define VEC_BYTES 32
#else
#    define VEC_BYTES 16
#endif

#if defined(__AVX__)
#    include <immintrin.h>
#elif defined(__ARM_NEON)
#    include <arm_neon.h>
#endif

#define VEC (VEC_BYTES / 4) // floats in a vector

typedef float   vec __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vec_i __attribute__((vector_size(VEC_BYTES)));

#define SIMD_INLINE       static inline __attribute__((always_inline))

// UNROLL(4) for (…): n times in a row
#define UNROLL(n)         UNROLL_TEXT(GCC unroll n)
#define UNROLL_TEXT(text) _Pragma(#text)

SIMD_INLINE vec vec_load(const float * p) {
    vec v;
    memcpy(&v, p, sizeof(v));
    return v;
}

SIMD_INLINE void vec_store(float * p, vec v) {
    memcpy(p, &v, sizeof(v));
}

// x, in a register. Compilers may otherwise load it again for every use, as an operand in memory.
SIMD_INLINE vec vec_keep(vec x) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(x));
#elif defined(__SSE__)
    __asm__("" : "+x"(x));
#elif defined(__aarch64__)
    __asm__("" : "+w"(x));
#endif
    return x;
}

// The first n floats of a vector; the others are zero when loaded and are not stored.
SIMD_INLINE vec vec_load_n(const float * p, int64_t n) {
#if defined(__AVX512F__)
    return (vec) _mm512_maskz_loadu_ps((__mmask16) ((1u << n) - 1), p);
#else
    vec v = { 0.0f };
    memcpy(&v, p, (size_t) n * sizeof(float));
    return v;
#endif
}

SIMD_INLINE void vec_store_n(float * p, vec v, int64_t n) {
    memcpy(p, &v, (size_t) n * sizeof(float));
}

SIMD_INLINE vec vec_set1(float x) {
    return x - (vec) { 0.0f }; // x - 0 keeps the sign of -0
}

// a·b + c, rounded once if the CPU supports it
SIMD_INLINE vec vec_fma(vec a, vec b, vec c) {
#if defined(__AVX512F__)
    return (vec) _mm512_fmadd_ps((__m512) a, (__m512) b, (__m512) c);
#elif defined(__FMA__)
    return (vec) _mm256_fmadd_ps((__m256) a, (__m256) b, (__m256) c);
#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)
    return (vec) vfmaq_f32((float32x4_t) c, (float32x4_t) a, (float32x4_t) b);
#else
    return a * b + c;
#endif
}

SIMD_INLINE float fma1(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// VEC small integers as floats
SIMD_INLINE vec vec_from_i8(const int8_t * p) {
#if defined(__AVX512F__)
    return (vec) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p)));
#elif defined(__AVX2__)
    return (vec) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) p)));
#else
    vec v;
    for (int i = 0; i < VEC; ++i) {
        v[i] = (float) p[i];
    }
    return v;
#endif
}

// VEC numbers of 16 bits as floats
SIMD_INLINE vec vec_from_f16(const uint16_t * p) {
#if defined(__AVX512F__)
    return (vec) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
#elif defined(__AVX__) && defined(__F16C__)
    return (vec) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
#elif defined(__aarch64__)
    return (vec) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    vec v;
    for (int i = 0; i < VEC; ++i) {
        v[i] = ggml_fp16_to_fp32(p[i]);
    }
    return v;
#endif
}

// a where the mask is set, b elsewhere
SIMD_INLINE vec vec_select(vec_i mask, vec a, vec b) {
    return (vec) ((mask & (vec_i) a) | (~mask & (vec_i) b));
}

// Two adjacent vectors, the unit of the kernels. A struct instead of an array, because compilers
// keep its members in registers without unrolling a loop first.
typedef struct {
    vec a, b;
} vec2;

#define VEC2 (2 * VEC)

SIMD_INLINE vec2 vec2_load(const float * p) {
    return (vec2) { vec_load(p), vec_load(p + VEC) };
}
SIMD_INLINE void vec2_store(float * p, vec2 x) {
    vec_store(p, x.a);
    vec_store(p + VEC, x.b);
}
SIMD_INLINE vec2 vec2_set1(float x) {
    return (vec2) { vec_set1(x), vec_set1(x) };
}
SIMD_INLINE vec2 vec2_sub(vec2 x, vec2 y) {
    return (vec2) { x.a - y.a, x.b - y.b };
}
SIMD_INLINE vec2 vec2_mul(vec2 x, vec2 y) {
    return (vec2) { x.a * y.a, x.b * y.b };
}
SIMD_INLINE vec2 vec2_div(vec2 x, vec2 y) {
    return (vec2) { x.a / y.a, x.b / y.b };
}
SIMD_INLINE vec2 vec2_scale(float x, vec2 y) {
    const vec s = vec_set1(x);
    return (vec2) { s * y.a, s * y.b };
}
SIMD_INLINE vec2 vec2_fma(float x, vec2 y, vec2 z) {
    const vec s = vec_set1(x);
    return (vec2) { vec_fma(s, y.a, z.a), vec_fma(s, y.b, z.b) };
}

// Σ a[i]·b[i], summed in a fixed order
SIMD_INLINE float vec_dot(const float * a, const float * b, int64_t n) {
    vec     s0 = { 0.0f }, s1 = { 0.0f };
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        s0 = vec_fma(vec_load(a + i), vec_load(b + i), s0);
        s1 = vec_fma(vec_load(a + i + VEC), vec_load(b + i + VEC), s1);
    }
    float lane[VEC];
    vec_store(lane, s0 + s1);
    for (int half = VEC / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) {
            lane[l] += lane[l + half];
        }
    }
    float sum = lane[0];
    for (; i < n; ++i) {
        sum = fma1(a[i], b[i], sum);
    }
    return sum;
}

// Lanes with even or odd numbers: of a in the lower half of the result, of b in the upper half.
#if defined(__clang__)
#    define VEC_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#    define VEC_PICK(a, b, ...) __builtin_shuffle(a, b, (vec_i) { __VA_ARGS__ })
#endif

SIMD_INLINE vec vec_even(vec a, vec b) {
#if VEC == 16
    return VEC_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif VEC == 8
    return VEC_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return VEC_PICK(a, b, 0, 2, 4, 6);
#endif
}

SIMD_INLINE vec vec_odd(vec a, vec b) {
#if VEC == 16
    return VEC_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif VEC == 8
    return VEC_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    return VEC_PICK(a, b, 1, 3, 5, 7);
#endif
}

// Sums of adjacent lanes: of a in the lower half of the result, of b in the upper half.
SIMD_INLINE vec vec_pair_sums(vec a, vec b) {
    return vec_even(a, b) + vec_odd(a, b);
}

SIMD_INLINE vec vec_max(vec a, vec b) {
#if defined(__AVX512F__)
    return (vec) _mm512_max_ps((__m512) a, (__m512) b);
#elif defined(__AVX__)
    return (vec) _mm256_max_ps((__m256) a, (__m256) b);
#else
    return vec_select(a > b, a, b);
#endif
}

// The largest lane
SIMD_INLINE float vec_max_lane(vec x) {
    UNROLL(4) for (int n = 1; n < VEC; n *= 2) {
        x = vec_max(vec_even(x, x), vec_odd(x, x));
    }
    return x[0];
}

// Pairs, pairs of pairs … of 4 or 8 vectors. Not a loop, so that compilers keep x in registers.
SIMD_INLINE vec vec_sums_4(const vec * x) {
    return vec_pair_sums(vec_pair_sums(x[0], x[1]), vec_pair_sums(x[2], x[3]));
}
SIMD_INLINE vec vec_sums_8(const vec * x) {
    return vec_pair_sums(vec_sums_4(x), vec_sums_4(x + 4));
}

// sums[i] = sum of the lanes of x[i], for VEC vectors
SIMD_INLINE void vec_sums(float * sums, const vec x[VEC]) {
#if VEC == 16
    vec_store(sums, vec_pair_sums(vec_sums_8(x), vec_sums_8(x + 8)));
#elif VEC == 8
    vec_store(sums, vec_sums_8(x));
#else
    vec_store(sums, vec_sums_4(x));
#endif
}

// out = x, and out = g ∘ x. Inline, because a row is often too short for a call.
SIMD_INLINE void row_copy(float * out, const float * x, int64_t n) {
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vec_store(out + i, vec_load(x + i));
    }
    for (; i < n; ++i) {
        out[i] = x[i];
    }
}

#if defined(__AVX512F__)

// 2^(j/16), j in the lowest four bits of each lane
SIMD_INLINE vec vec_power16(vec j) {
    static const float powers[VEC] = { // 2^(j/16)
        1.0f, 1.04427373f, 1.09050775f, 1.13878858f, 1.18920708f, 1.24185777f, 1.29683959f,
        1.35425556f, 1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f, 1.68179286f, 1.75625217f,
        1.8340081f, 1.91520655f
    };
    return (vec) _mm512_permutexvar_ps((__m512i) j, (__m512) vec_load(powers));
}

// e^x to one unit in the last place, for x in [-87.33, 88.72].
//
//     e^x = 2^n e^r,   n = round(16 x / ln 2) / 16,   |r| ≤ ln 2 / 32
//     2^n = 2^floor(n) 2^(j/16)
//     e^r = 1 + r + r² (c + r / 6),   relative error 2e-9
//
SIMD_INLINE vec vec_exp_near(vec x) {
    // 1.5·2^19: adding it rounds to a multiple of 1/16, with j in the lowest four bits
    const vec magic = vec_set1(786432.0f);
    const vec nm = vec_fma(x, vec_set1(1.442695041f), magic);
    const vec n = nm - magic;

    // ln 2 in two parts, the first with trailing zeros
    const vec r_hi = vec_fma(n, vec_set1(-0.693145752f), x);
    const vec r = vec_fma(n, vec_set1(-1.42860677e-6f), r_hi);

    const vec p = vec_fma(r, vec_set1(0.166666672f), vec_set1(0.5000162f));
    const vec q = vec_fma(p, r * r, r);
    const vec t = vec_power16(nm);
    return (vec) _mm512_scalef_ps((__m512) vec_fma(t, q, t), (__m512) n);
}

// e^x to one unit in the last place; 0 below -87.33, where the result would be subnormal; infinity
// above 88.72.
SIMD_INLINE vec vec_exp(vec x) {
    const __mmask16 kept =
            _mm512_cmp_ps_mask((__m512) x, (__m512) vec_set1(-87.33654f), _CMP_NLT_UQ);
    const vec e =
            vec_exp_near((vec) _mm512_min_ps((__m512) vec_set1(89.0f), (__m512) x)); // NaN stays
    return (vec) _mm512_maskz_mov_ps(kept, (__m512) e);
}

// e^(x y) for y that is multiplied with log₂ e before, which saves two operations; x y is not
// rounded. To one unit in the last place, for |x y| ≤ 125.
//
//     2^(x y) = 2^n 2^f,   n = round(16 x y) / 16,   |f| ≤ 1/32
//     2^f = 1 + f (c₁ + f (c₂ + f c₃)),   relative error 2e-9
//
#    define EXP_SCALE 1.44269504f

SIMD_INLINE vec vec_exp_scaled_near(vec x, vec y) {
    const vec magic = vec_set1(786432.0f); // as above
    const vec nm = vec_fma(x, y, magic);
    const vec n = nm - magic;
    const vec f = vec_fma(x, y, -n);
    const vec p = vec_fma(f, vec_set1(0.0555021364f), vec_set1(0.240234288f));
    const vec q = vec_fma(p, f, vec_set1(0.693147183f)) * f;
    const vec t = vec_power16(nm);
    return (vec) _mm512_scalef_ps((__m512) vec_fma(t, q, t), (__m512) n);
}

// The same for any x and y; 0 below x y = -126, where the result would be subnormal; infinity from
// 128 on.
SIMD_INLINE vec vec_exp_scaled(vec x, vec y) {
    const __m512    z = (__m512) (x * y);
    const __mmask16 kept = _mm512_cmp_ps_mask(z, (__m512) vec_set1(-126.0f), _CMP_NLT_UQ);
    const __mmask16 over = _mm512_cmp_ps_mask(z, (__m512) vec_set1(128.0f), _CMP_GE_OQ);
    const __m512    e = _mm512_maskz_mov_ps(kept, (__m512) vec_exp_scaled_near(x, y)); // NaN stays
    return (vec) _mm512_mask_mov_ps(e, over, (__m512) vec_set1(INFINITY));
}

// Whether |x| ≤ bound in all lanes; false where vec_exp_scaled_near is no faster.
SIMD_INLINE bool vec_is_near(vec x, float bound) {
    const __m512 abs = _mm512_abs_ps((__m512) x);
    return _mm512_cmp_ps_mask(abs, (__m512) vec_set1(bound), _CMP_LE_OQ) == 0xffff;
}

#else

// e^x to one unit in the last place; 0 below -87.33, where the result would be subnormal; infinity
// above 88.72.
//
//     e^x = 2^n e^r,   n = round(x / ln 2),   |r| ≤ ln 2 / 2
//     e^r = 1 + r + r² q(r),   relative error 4e-9
//
SIMD_INLINE vec vec_exp(vec x) {
    const vec   lo = vec_set1(-87.33654f);
    const vec   hi = vec_set1(88.72283f);
    const vec_i under = x < lo;
    const vec_i over = x > hi;
    const vec   xc = vec_select(under, lo, vec_select(over, hi, x));
    // 1.5·2^23: adding it rounds to an integer in the low bits
    const vec magic = vec_set1(12582912.0f);
    const vec nm = vec_fma(xc, vec_set1(1.442695041f), magic);
    const vec n = nm - magic;

    // ln 2 in two parts, the first with trailing zeros
    const vec r_hi = vec_fma(n, vec_set1(-0.693145752f), xc);
    const vec r = vec_fma(n, vec_set1(-1.42860677e-6f), r_hi);

    vec p = vec_set1(0.001381454f);
    p = vec_fma(p, r, vec_set1(0.008368745f));
    p = vec_fma(p, r, vec_set1(0.041668389f));
    p = vec_fma(p, r, vec_set1(0.166665211f));
    p = vec_fma(p, r, vec_set1(0.499999940f));
    p = vec_fma(p, r, vec_set1(1.0f));
    p = vec_fma(p, r, vec_set1(1.0f));
    // 2^n as two factors, because 2^128 is not representable
    const vec_i bits = (vec_i) nm - (vec_i) magic;
    const vec_i half = bits >> 1;
    const vec   scale1 = (vec) ((half + 127) << 23);
    const vec   scale2 = (vec) ((bits - half + 127) << 23);
    const vec   e = p * scale1 * scale2;
    return vec_select(under, (vec) { 0.0f }, vec_select(over, vec_set1(INFINITY), e));
}

// e^(x y)
#    define EXP_SCALE 1.0f

SIMD_INLINE vec vec_exp_scaled(vec x, vec y) {
    return vec_exp(x * y);
}

SIMD_INLINE vec vec_exp_scaled_near(vec x, vec y) {
    return vec_exp_scaled(x, y);
}

SIMD_INLINE bool vec_is_near(vec x, float bound) {
    (void) x;
    (void) bound;
    return false;
}

#endif

// softplus x = max(x, 0) + log(1 + t),   t = e^-|x| in [0, 1]
//
//     log(1 + t) = 2 (s + s³/3 + s⁵/5 + … + s¹⁵/15),   s = t / (2 + t) ≤ 1/3
//
SIMD_INLINE vec vec_softplus(vec x) {
    const vec zero = { 0.0f };
    const vec t = vec_exp(vec_select(x > zero, -x, x));
    const vec s = t / (vec_set1(2.0f) + t);
    const vec q = s * s;
    vec       p = vec_set1(2.0f / 15);
    p = vec_fma(p, q, vec_set1(2.0f / 13));
    p = vec_fma(p, q, vec_set1(2.0f / 11));
    p = vec_fma(p, q, vec_set1(2.0f / 9));
    p = vec_fma(p, q, vec_set1(2.0f / 7));
    p = vec_fma(p, q, vec_set1(2.0f / 5));
    p = vec_fma(p, q, vec_set1(2.0f / 3));
    p = vec_fma(p, q, vec_set1(2.0f));
    return vec_fma(p, s, vec_select(x > zero, x, zero));
}

SIMD_INLINE vec vec_sigmoid(vec x) {
    return vec_set1(1.0f) / (vec_set1(1.0f) + vec_exp(-x));
}

// tanh x = 2 sigmoid(2 x) − 1, with an absolute error of 2e-7
SIMD_INLINE vec vec_tanh(vec x) {
    return vec_set1(2.0f) * vec_sigmoid(x + x) - vec_set1(1.0f);
}
