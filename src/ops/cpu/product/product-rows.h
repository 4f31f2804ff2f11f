#pragma once

// Few columns, two rows at a time. A single column reads each weight once, so memory sets the pace
// if everything else is faster:
//
// - The sums of two rows do not wait for each other, and both use the numbers of a column that are
//   in registers.
// - Weights are prefetched. Two rows are neighbors in memory; the prefetch goes straight through
//   them while the blocks alternate, far enough ahead that it is always past the second row.
//
// Results are bit-identical, alone and among other columns; those of F32 and F16 also to those of
// ggml's dot products.

#include "product.h"

enum {
    ROWS_TILE = 4,   // columns of a register tile
    ROWS_FAR = 2048, // bytes from the second of two rows to what is prefetched

// weights in F32 or F16: K must be a multiple
#if defined(__AVX512F__)
    ROWS_STEP = 64,
#else
    ROWS_STEP = 32,
#endif
};

// Two rows that are multiplied together.
struct row_pair {
    const struct product_part * part;
    const char *                rows[2];  // may be the same
    int                         n;        // rows to store: 1 or 2
    bool                        prefetch; // the rows that follow
    int64_t                     r, c;     // the first row and column
};

// Multiplies two rows with n columns, at most ROWS_TILE, which are `stride` bytes apart.
typedef void multiply_pair(
        const struct row_pair * p, const char * columns, int64_t stride, int64_t K, int n);

static inline void multiply_pairs(
        const struct product_part * part, int64_t stride, multiply_pair * multiply) {
    for (int64_t r = 0; r < part->n_rows; r += 2) {
        const char *    row = part->rows + r * part->row_size;
        const bool      two = r + 1 < part->n_rows;
        struct row_pair p = {
            .rows = { row, two ? row + part->row_size : row },
            .part = part,
            .n = two ? 2 : 1,
            .r = r,
        };
        for (int64_t c = 0; c < part->n_columns; c += ROWS_TILE) {
            const int64_t n = part->n_columns - c;
            p.prefetch = c == 0;
            p.c = c;
            multiply(&p, part->columns + (part->first + c) * stride, stride, part->K,
                    n < ROWS_TILE ? (int) n : ROWS_TILE);
        }
    }
}
