#pragma once

// Matrix products with few columns and short rows of odd lengths, on CPUs with AVX2.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], F32 or F16; x [K, C] and y [R, C], F32

#include "product-rows.h"

#if MUL_MAT_ROWS
bool short_supported(const struct ggml_tensor * dst);

// The first row of thread i of n.
int64_t short_begin(const struct ggml_tensor * dst, int i, int n);

// The share of a thread. No thread waits or uses the work buffer.
void short_multiply(const struct ggml_compute_params * params, struct ggml_tensor * dst);
#endif
