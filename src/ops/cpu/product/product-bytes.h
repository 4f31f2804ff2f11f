#pragma once

// Weights and columns in 8 bits. A vector holds four weights of each of HEIGHT rows: 16 rows in 512
// bits, 8 in 256, 4 in 128.
//
// The weights of a block are transposed, so that no sum goes across a vector. They are stored as
// w + o, because the instructions of x86 multiply unsigned by signed numbers. A strip is unpacked
// once and multiplied with every column, while the next one is fetched into the second-level cache.
//
// Sums of integers are exact, and blocks are added in increasing order.

#include "product.h"
#include "simd.h"

#include "ggml-cpu-impl.h"
#define GGML_COMMON_DECL_C
#include "ggml-common.h"

enum {
    FOURS = 8, // vectors of 32 bytes of each row
};

// What the codes of IQ4_NL and IQ4_XS stand for
static const int8_t values_iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53,
    69, 89, 113 };

#if PRODUCT_512

enum { HEIGHT = 16 };

typedef __m512i rows_i;
typedef __m512  rows_f;

SIMD_INLINE rows_f rows_zero(void) {
    return _mm512_setzero_ps();
}

// The first n of HEIGHT numbers
SIMD_INLINE rows_f rows_load(const void * p, int64_t n) {
    return _mm512_maskz_loadu_ps((__mmask16) ((1u << n) - 1), p);
}
SIMD_INLINE void rows_store(void * p, rows_f x, int64_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16) ((1u << n) - 1), x);
}

SIMD_INLINE rows_f rows_from_f16(const uint16_t * p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
}

SIMD_INLINE rows_f rows_from_bf16(const uint16_t * p) {
    return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p)), 16));
}

// The bytes that 16 codes stand for
SIMD_INLINE rows_i rows_lookup(const int8_t table[16], rows_i codes) {
    return _mm512_shuffle_epi8(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) table)), codes);
}

// acc + dot e d, for each row
SIMD_INLINE rows_f rows_add(rows_f acc, rows_i dot, float e, rows_f d) {
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(e)), d, acc);
}

// Transposes 4 × 4 numbers in each 128 bits.
SIMD_INLINE void transpose_quarters(rows_i v[4]) {
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

// 32 bytes of each row, which begin at p[r] + offset → v[i]: bytes 4 i … 4 i + 3 of each row
SIMD_INLINE void rows_load_32(const char * const p[HEIGHT], int64_t offset, rows_i v[FOURS]) {
    __m512i u[FOURS]; // two rows in each: [bytes 0 … 15, bytes 16 … 31] of r and of r + 4
    UNROLL(8) for (int i = 0; i < FOURS; ++i) {
        const int r = i % 4 + i / 4 * 8;
        u[i] = _mm512_inserti64x4(
                _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *) (p[r] + offset))),
                _mm256_loadu_si256((const __m256i *) (p[r + 4] + offset)), 1);
    }
    transpose_quarters(u);
    transpose_quarters(u + 4);
    UNROLL(4) for (int i = 0; i < 4; ++i) {
        v[i] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0xdd);
    }
}

// The same for 16 bytes
SIMD_INLINE void rows_load_16(const char * const p[HEIGHT], int64_t offset, rows_i v[4]) {
    UNROLL(4) for (int r = 0; r < 4; ++r) { // rows r, r + 4, r + 8 and r + 12
        __m128i q[4];
        UNROLL(4) for (int i = 0; i < 4; ++i) {
            q[i] = _mm_loadu_si128((const __m128i *) (p[r + 4 * i] + offset));
        }
        v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(q[1], q[0])),
                _mm256_set_m128i(q[3], q[2]), 1);
    }
    transpose_quarters(v);
}

SIMD_INLINE rows_i rows_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}

// sum + Σ w x over four weights of each row, with four numbers in x[i]
SIMD_INLINE rows_i rows_dot_bytes(rows_i sum, rows_i w, const int32_t * x, int i) {
    return _mm512_dpbusd_epi32(sum, w, rows_set1(x[i]));
}

// sum + Σ a b over two numbers of 16 bits
SIMD_INLINE rows_i rows_dot_words(rows_i sum, rows_i a, rows_i b) {
    return _mm512_dpwssd_epi32(sum, a, b);
}

#elif PRODUCT_AVX2

enum { HEIGHT = 8 };

typedef __m256i rows_i;
typedef __m256  rows_f;

SIMD_INLINE rows_f rows_zero(void) {
    return _mm256_setzero_ps();
}

SIMD_INLINE __m256i rows_mask(int64_t n) {
    return _mm256_cmpgt_epi32(
            _mm256_set1_epi32((int32_t) n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_INLINE rows_f rows_load(const void * p, int64_t n) {
    return _mm256_maskload_ps(p, rows_mask(n));
}
SIMD_INLINE void rows_store(void * p, rows_f x, int64_t n) {
    _mm256_maskstore_ps(p, rows_mask(n), x);
}

SIMD_INLINE rows_f rows_from_f16(const uint16_t * p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
}

SIMD_INLINE rows_f rows_from_bf16(const uint16_t * p) {
    return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p)), 16));
}

SIMD_INLINE rows_i rows_lookup(const int8_t table[16], rows_i codes) {
    return _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) table)), codes);
}

SIMD_INLINE rows_f rows_add(rows_f acc, rows_i dot, float e, rows_f d) {
    return _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(e)), d, acc);
}

SIMD_INLINE void transpose_quarters(rows_i v[4]) {
    const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(a, c);
    v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d);
    v[3] = _mm256_unpackhi_epi64(b, d);
}

SIMD_INLINE void rows_load_32(const char * const p[HEIGHT], int64_t offset, rows_i v[FOURS]) {
    __m256i u[FOURS]; // [bytes 0 … 15, bytes 16 … 31] of a row
    UNROLL(8) for (int r = 0; r < HEIGHT; ++r) {
        u[r] = _mm256_loadu_si256((const __m256i *) (p[r] + offset));
    }
    transpose_quarters(u);
    transpose_quarters(u + 4);
    UNROLL(4) for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

SIMD_INLINE void rows_load_16(const char * const p[HEIGHT], int64_t offset, rows_i v[4]) {
    UNROLL(4) for (int r = 0; r < 4; ++r) { // rows r and r + 4
        v[r] = _mm256_set_m128i(_mm_loadu_si128((const __m128i *) (p[r + 4] + offset)),
                _mm_loadu_si128((const __m128i *) (p[r] + offset)));
    }
    transpose_quarters(v);
}

SIMD_INLINE rows_i rows_set1(int32_t x) {
    return _mm256_set1_epi32(x);
}

#    if PRODUCT_VNNI
SIMD_INLINE rows_i rows_dot_bytes(rows_i sum, rows_i w, const int32_t * x, int i) {
    return _mm256_dpbusd_avx_epi32(sum, w, rows_set1(x[i]));
}
SIMD_INLINE rows_i rows_dot_words(rows_i sum, rows_i a, rows_i b) {
    return _mm256_dpwssd_avx_epi32(sum, a, b);
}
#    else
// AVX2 has only 16-bit accumulators for bytes: two sums per row
SIMD_INLINE rows_i rows_dot_bytes(rows_i sum, rows_i w, const int32_t * x, int i) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, rows_set1(x[i])));
    __asm__("" : "+x"(sum)); // GCC would add in another order, for which there are no registers
    return sum;
}
// The same for signed weights, without an accumulator
SIMD_INLINE rows_i rows_dot_signed(rows_i w, int32_t x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(rows_set1(x), w));
}
SIMD_INLINE rows_i rows_dot_words(rows_i sum, rows_i a, rows_i b) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum)); // as above
    return sum;
}
#    endif

#else

enum { HEIGHT = 4 };

typedef int32x4_t   rows_i;
typedef float32x4_t rows_f;

SIMD_INLINE rows_f rows_zero(void) {
    return vdupq_n_f32(0.0f);
}

SIMD_INLINE rows_f rows_load(const void * p, int64_t n) {
    rows_f x = rows_zero();
    memcpy(&x, p, (size_t) (n >= HEIGHT ? HEIGHT : n > 0 ? n : 0) * sizeof(float));
    return x;
}
SIMD_INLINE void rows_store(void * p, rows_f x, int64_t n) {
    memcpy(p, &x, (size_t) (n >= HEIGHT ? HEIGHT : n > 0 ? n : 0) * sizeof(float));
}

SIMD_INLINE rows_f rows_from_f16(const uint16_t * p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

SIMD_INLINE rows_f rows_from_bf16(const uint16_t * p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

SIMD_INLINE rows_i rows_lookup(const int8_t table[16], rows_i codes) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(codes)));
}

SIMD_INLINE rows_f rows_add(rows_f acc, rows_i dot, float e, rows_f d) {
    return vfmaq_f32(acc, vmulq_n_f32(vcvtq_f32_s32(dot), e), d);
}

SIMD_INLINE int32x4_t zip_low(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
SIMD_INLINE int32x4_t zip_high(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

SIMD_INLINE void rows_load_16(const char * const p[HEIGHT], int64_t offset, rows_i v[4]) {
    UNROLL(4) for (int r = 0; r < HEIGHT; ++r) {
        v[r] = vreinterpretq_s32_s8(vld1q_s8((const int8_t *) p[r] + offset));
    }
    const int32x4_t a = vzip1q_s32(v[0], v[1]), b = vzip2q_s32(v[0], v[1]);
    const int32x4_t c = vzip1q_s32(v[2], v[3]), d = vzip2q_s32(v[2], v[3]);
    v[0] = zip_low(a, c);
    v[1] = zip_high(a, c);
    v[2] = zip_low(b, d);
    v[3] = zip_high(b, d);
}

SIMD_INLINE void rows_load_32(const char * const p[HEIGHT], int64_t offset, rows_i v[FOURS]) {
    rows_load_16(p, offset, v);
    rows_load_16(p, offset + 16, v + 4);
}

SIMD_INLINE rows_i rows_set1(int32_t x) {
    return vdupq_n_s32(x);
}

// A vector has four x[i]; `i` is a constant once loops are unrolled.
SIMD_INLINE rows_i rows_dot_bytes(rows_i sum, rows_i w, const int32_t * x, int i) {
    const int8x16_t a = vreinterpretq_s8_s32(w);
    const int8x16_t b = vreinterpretq_s8_s32(vld1q_s32(x + i / 4 * 4));
    switch (i % 4) {
        case 0: return vdotq_laneq_s32(sum, a, b, 0);
        case 1: return vdotq_laneq_s32(sum, a, b, 1);
        case 2: return vdotq_laneq_s32(sum, a, b, 2);
        default: return vdotq_laneq_s32(sum, a, b, 3);
    }
}

SIMD_INLINE rows_i rows_dot_words(rows_i sum, rows_i a, rows_i b) {
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(x, y)));
}

#endif

typedef int32_t  rows_i32 __attribute__((vector_size(sizeof(rows_i))));
typedef uint8_t  rows_u8 __attribute__((vector_size(sizeof(rows_i))));
typedef uint32_t rows_u32 __attribute__((vector_size(sizeof(rows_i))));

enum { STRIP_MAX = 32 };

// A strip of rows and the columns it is multiplied with.
struct strip {
    const struct product_part * part;
    const char *                rows[STRIP_MAX]; // those past the end repeat the last one
    int64_t                     n_rows;          // that exist
    const char *                next;            // rows of the next strip, neighbors; may be NULL
    int64_t                     r;               // the first row
};

static inline void multiply_strips(const struct product_part * part, int64_t height,
        void (*multiply)(const struct strip * s)) {
    for (int64_t r = 0; r < part->n_rows; r += height) {
        const int64_t left = part->n_rows - r;
        const char *  rows = part->rows + r * part->row_size;
        struct strip  s = {
             .part = part,
             .n_rows = left < height ? left : height,
             .next = left > height ? rows + height * part->row_size : part->next,
             .r = r,
        };
        for (int64_t i = 0; i < height; ++i) {
            s.rows[i] = rows + (i < s.n_rows ? i : s.n_rows - 1) * part->row_size;
        }
        multiply(&s);
    }
}
