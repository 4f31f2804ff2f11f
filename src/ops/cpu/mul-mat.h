#pragma once

// Matrix products with many columns.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], of any type; x [K, C] and y [R, C], F32

#include "simd.h"

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ROWS  = 6,   // of a register tile
    PANEL = 48,  // rows of a panel: a multiple of ROWS and of VEC
    BLOCK = 512, // columns that are multiplied with a panel before the next panel

    // floats between two rows of sums; a power of two would map all rows to the same sets of a
    // cache
    SUMS_STRIDE = BLOCK + 16,
};

struct product {
    const struct ggml_tensor *w, *x, *y;
    int64_t                   K, R, C;
    int64_t                   C_padded;  // C, rounded up to whole vectors
    int64_t                   n_batches; // matrices of x
    bool                      in_bytes;  // computed by mul-mat-bytes.c
    float *                   columns;   // of x, packed: [C_padded, K] per batch
};

// Products in bytes, on CPUs with VNNI. They round x to 8 bits.
#if defined(__AVX512VNNI__)
#    define MUL_MAT_BYTES 1
#else
#    define MUL_MAT_BYTES 0
#endif

#if MUL_MAT_BYTES
enum { BYTES_PART_SIZE = 64 * 1024 };

bool bytes_supported(enum ggml_type type);

// Bytes of a packed column; fewer than in F32.
size_t bytes_column_size(int64_t K);

// Packs columns c … c + VEC of a matrix of x. Columns past the end are zero.
void bytes_pack(const struct product * p, const char * x, int64_t c, char * out);

// sums[r, c] = Σ_k w[r, k] x[k, c] for n_rows rows, which begin at `rows`, and n_columns packed
// columns, which begin at `columns`. part has BYTES_PART_SIZE bytes.
void bytes_multiply(const struct product * p, const char * rows, int64_t n_rows,
        const char * columns, int64_t n_columns, void * part, float * sums);
#endif
