#pragma once

// Matrix products in bytes, on CPUs with AVX2 or VNNI. They round x to 8 bits.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R] in blocks; x [K, C] and y [R, C], F32

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define MUL_MAT_BYTES 1
#else
#    define MUL_MAT_BYTES 0
#endif

#if MUL_MAT_BYTES && defined(__AVX512VNNI__)
#    define MUL_MAT_VNNI 1
#else
#    define MUL_MAT_VNNI 0
#endif

#if MUL_MAT_BYTES
struct ggml_compute_params;

bool bytes_supported(const struct ggml_tensor * dst);

// Bytes of the work buffer.
size_t bytes_work_size(const struct ggml_tensor * dst, int n_threads);

// True if each thread uses only its own part of the work buffer, and no thread waits.
bool bytes_is_own(const struct ggml_tensor * dst);

// The first row of thread i of n, if bytes_is_own.
int64_t bytes_begin(const struct ggml_tensor * dst, int i, int n);

// The share of a thread.
void bytes_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work);
#endif
