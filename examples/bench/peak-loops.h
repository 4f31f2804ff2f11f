#pragma once

#include <stdint.h>

// Runs n rounds of independent fused multiply-adds. Returns the number of floating-point
// operations. peak-loops.c is compiled with the flags of ggml's CPU backend, so that it uses the same
// vectors as the kernels.
double fma_loop(int64_t n);

int fma_loop_vector_bits(void);
