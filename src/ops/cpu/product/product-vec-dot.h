#pragma once

// Matrix products by ggml's dot products, on CPUs without AVX2.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], Q8_0 or Q4_0; x [K, C] and y [R, C], F32

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

struct ggml_compute_params;

bool dots_supported(const struct ggml_tensor * dst);

// Bytes of the work buffer.
size_t dots_work_size(const struct ggml_tensor * dst);

// The share of a thread.
void dots_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, char * work);
