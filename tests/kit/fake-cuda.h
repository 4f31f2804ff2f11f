#pragma once

// A CUDA runtime that computes nothing: the functions of the CUDA runtime and cuBLAS that ggml-cuda
// calls, with host memory and one device of compute capability 8.0. It records kernel launches but
// does not run them; every number it returns is zero. A program that contains fake-cuda.c uses
// these functions instead of those of NVIDIA's libraries.
//
// It counts launches and reports errors: an invalid grid, block or size of shared memory, an
// unknown kernel, and allocations, frees or waits while a graph is captured.

#include <stdbool.h>
#include <stdint.h>

struct fake_cuda_count {
    int64_t kernels;       // kernel launches, including captured ones
    int64_t captures;      // captured graphs
    int64_t graphs;        // launches of captured graphs
    int64_t tf32_products; // cuBLAS products that may round F32 to TF32
};

// All results are since the last call of fake_cuda_reset.
struct fake_cuda_count fake_cuda_get(void);
bool fake_cuda_ran(const char * part); // a kernel with `part` in its mangled name ran
const char * fake_cuda_error(void);    // the first error, one sentence; "": none
void fake_cuda_reset(void);
