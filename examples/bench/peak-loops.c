#include "peak-loops.h"

#if defined(__AVX512F__)
#    define VECTOR_BYTES 64
#elif defined(__AVX__)
#    define VECTOR_BYTES 32
#else
#    define VECTOR_BYTES 16
#endif

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

int fma_loop_vector_bits(void) {
    return 8 * VECTOR_BYTES;
}

// An FMA takes 4 or 5 cycles, and two can start per cycle: 10 chains keep both units busy. 12 leave
// a margin, and with the two constants they fit into 16 registers.
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

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

    return (double) n * 12.0 * 2.0 * (VECTOR_BYTES / sizeof(float));
}
