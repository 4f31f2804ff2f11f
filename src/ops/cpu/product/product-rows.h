#pragma once

// Matrix products with few columns, row by row, on CPUs with AVX2. They round x to 8 bits and give
// the bits of ggml's dot products.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R] in blocks; x [K, C] and y [R, C], F32

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

// True if each thread uses only its own part of the work buffer, and no thread waits.
bool rows_is_own(const struct ggml_tensor * dst);

// The first row of thread i of n, if rows_is_own.
int64_t rows_begin(const struct ggml_tensor * dst, int i, int n);

// The share of a thread.
void rows_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work);

//
// Kernels
//

enum {
    ROWS_TILE = 4,    // columns of a register tile
    ROWS_FAR  = 2048, // bytes from the second of two rows to what is prefetched

// weights in F32: K must be a multiple
#    if defined(__AVX512F__)
    ROWS_F32_STEP = 64,
#    else
    ROWS_F32_STEP = 32,
#    endif
};

// Two rows that are multiplied together.
struct row_pair {
    const char * rows[2];  // may be the same
    int          n;        // rows to store: 1 or 2
    bool         prefetch; // the rows that follow
    char *       y;        // of the first row and column
    int64_t      nb1;      // bytes between columns of y
};

struct row_kernel {
    int64_t block;                    // weights
    size_t (*column_size)(int64_t K); // of a rounded column; NULL if columns are used as they are
    void (*round)(enum ggml_type type, const float * x, int64_t K, int64_t begin, int64_t end,
            char * column); // blocks begin … end
    void (*multiply)(const struct row_pair * p, const char * columns, int64_t stride, int64_t K,
            int n); // n columns, at most ROWS_TILE, which are `stride` bytes apart
};

extern const struct row_kernel row_kernel_q4_k, row_kernel_q6_k; // mul-mat-rows-k.c
extern const struct row_kernel row_kernel_f32, row_kernel_f16;   // mul-mat-rows-f32.c
#endif
