#pragma once

#include <stdint.h>

// Loops of independent multiply-adds, the upper limit of a kernel. Each runs n rounds and returns
// the number of operations; a multiply-add counts as two. peak-loops.c is compiled with the flags
// of ggml's CPU backend, so that it uses the same vectors and instructions as the kernels.

double fma_loop(int64_t n);  // F32
double int8_loop(int64_t n); // products of bytes: dot-product instructions where the CPU has them
double bf16_loop(int64_t n); // dot products of BF16; 0 without instructions for them

int peak_loops_vector_bits(void);
