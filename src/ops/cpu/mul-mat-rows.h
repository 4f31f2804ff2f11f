#pragma once

// Matrix products with few columns, row by row, on CPUs with AVX2. They round x to 8 bits and give
// the bits of ggml's dot products.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], Q8_0 or Q4_0; x [K, C] and y [R, C], F32

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define MUL_MAT_ROWS 1
#else
#    define MUL_MAT_ROWS 0
#endif

#if MUL_MAT_ROWS
struct ggml_compute_params;

bool rows_supported(const struct ggml_tensor * dst);

// Bytes of the work buffer.
size_t rows_work_size(const struct ggml_tensor * dst, int n_threads);

// The share of a thread.
void rows_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work);
#endif
