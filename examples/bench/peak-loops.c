#include "machine.h"

#if defined(__AVX2__)
#    include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#    include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#    define VECTOR_BYTES 64
#elif defined(__AVX__)
#    define VECTOR_BYTES 32
#else
#    define VECTOR_BYTES 16
#endif

int peak_loops_vector_bits(void) {
    return 8 * VECTOR_BYTES;
}

// An FMA takes 4 or 5 cycles, and two can start per cycle: 10 chains keep both units busy. 12 leave
// a margin, and with the two constants they fit into 16 registers.
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

enum { N_CHAINS = 12 };

//
// F32
//

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

double fma_loop(int64_t n) {
    // volatile, or the compiler would compute the result
    volatile float scale_source = 0.999f, shift_source = 0.001f;
    const vec      scale = (vec) { 0 } + scale_source;
    const vec      shift = (vec) { 0 } + shift_source;

#define DECLARE(i) vec x##i = shift * (float) (i + 1);
    CHAINS(DECLARE)

    for (int64_t r = 0; r < n; ++r) {
#define STEP(i) x##i = x##i * scale + shift;
        CHAINS(STEP)
    }

    vec sum = { 0 };
#define ADD(i) sum += x##i;
    CHAINS(ADD)
    volatile float sink = sum[0];
    (void) sink;

    return (double) n * N_CHAINS * 2.0 * (VECTOR_BYTES / sizeof(float));
}

//
// Bytes
//

// BYTE_STEP(x, y, z) adds products of the bytes of y and z to the sums x. BYTES_PER_STEP is the
// number of products.
#if defined(__AVX512VNNI__)
typedef __m512i byte_vec;
#    define BYTE_STEP(x, y, z) _mm512_dpbusd_epi32(x, y, z)
#    define BYTE_SPLAT(b)      _mm512_set1_epi8(b)
#    define BYTES_PER_STEP     64
#elif defined(__AVXVNNI__)
typedef __m256i byte_vec;
#    define BYTE_STEP(x, y, z) _mm256_dpbusd_avx_epi32(x, y, z)
#    define BYTE_SPLAT(b)      _mm256_set1_epi8(b)
#    define BYTES_PER_STEP     32
#elif defined(__AVX2__)
// Sums in 16 bits, as in the kernels. The factors include x, or the product would leave the loop.
typedef __m256i byte_vec;
#    define BYTE_STEP(x, y, z) _mm256_add_epi16(x, _mm256_maddubs_epi16(x, z))
#    define BYTE_SPLAT(b)      _mm256_set1_epi8(b)
#    define BYTES_PER_STEP     32
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t byte_vec;
#    define BYTE_STEP(x, y, z) vdotq_s32(x, vreinterpretq_s8_s32(y), vreinterpretq_s8_s32(z))
#    define BYTE_SPLAT(b)      vreinterpretq_s32_s8(vdupq_n_s8(b))
#    define BYTES_PER_STEP     16
#else
// No instruction for bytes: products and sums in 16 bits.
typedef uint16_t byte_vec __attribute__((vector_size(VECTOR_BYTES)));
#    define BYTE_STEP(x, y, z) ((x) * (y) + (z))
#    define BYTE_SPLAT(b)      ((byte_vec) { 0 } + (uint16_t) (b))
#    define BYTES_PER_STEP     (VECTOR_BYTES / 2)
#endif

double int8_loop(int64_t n) {
    volatile char  y_source = 3, z_source = 5;
    const byte_vec y = BYTE_SPLAT(y_source);
    const byte_vec z = BYTE_SPLAT(z_source);

#define DECLARE_BYTES(i) byte_vec x##i = BYTE_SPLAT((char) (i + 1));
    CHAINS(DECLARE_BYTES)

    for (int64_t r = 0; r < n; ++r) {
#define STEP_BYTES(i) x##i = BYTE_STEP(x##i, y, z);
        CHAINS(STEP_BYTES)
    }

    volatile byte_vec sink;
#define STORE_BYTES(i) sink = x##i;
    CHAINS(STORE_BYTES)
    (void) y;
    (void) sink;

    return (double) n * N_CHAINS * 2.0 * BYTES_PER_STEP;
}

//
// BF16
//

double bf16_loop(int64_t n) {
#if defined(__AVX512BF16__)
    volatile float source = 0.001f;
    const __m512bh y = _mm512_cvtne2ps_pbh(_mm512_set1_ps(source), _mm512_set1_ps(source));

#    define DECLARE_BF16(i) __m512 x##i = _mm512_set1_ps((float) (i + 1));
    CHAINS(DECLARE_BF16)

    for (int64_t r = 0; r < n; ++r) {
#    define STEP_BF16(i) x##i = _mm512_dpbf16_ps(x##i, y, y);
        CHAINS(STEP_BF16)
    }

    volatile __m512 sink;
#    define STORE_BF16(i) sink = x##i;
    CHAINS(STORE_BF16)
    (void) sink;

    return (double) n * N_CHAINS * 2.0 * 32.0;
#else
    (void) n;
    return 0.0;
#endif
}
