#pragma once

// The columns of a product.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R, ..]; x [K, C, ..] and y [R, C, ..], F32

#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    // Weights are converted to F32 for this many columns. For fewer, less than three tiles of them,
    // that costs too much, and a column of a product with a Q8_0 or Q4_0 matrix must have the bits
    // that it has alone, so that sequences that are decoded together do not affect each other.
    COLUMNS_MANY = 48,

    // Up to this many columns, products with weights in blocks of 256 go row by row
    // (mul-mat-rows.c, or ggml's); with more, by panels in bytes (mul-mat-bytes.c).
    COLUMNS_FEW_256 = 12,
};

// Matrices of one column that share a matrix of w count as columns of one matrix.
struct columns {
    int64_t C, n2, n3;    // columns of a matrix; matrices
    int64_t x_nb1, y_nb1; // bytes between columns
};

static inline struct columns columns_of(const struct ggml_tensor * dst) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    const bool                one = x->ne[1] == 1 && x->ne[3] == 1 && w->ne[2] == 1;
    return one ? (struct columns) { x->ne[2], 1, 1, (int64_t) x->nb[2], (int64_t) dst->nb[2] }
               : (struct columns) { x->ne[1], x->ne[2], x->ne[3], (int64_t) x->nb[1],
                     (int64_t) dst->nb[1] };
}

// Column j of all matrices
static inline const char * columns_x(
        const struct columns * s, const struct ggml_tensor * x, int64_t j) {
    return (const char *) x->data + j % s->C * s->x_nb1 + j / s->C % s->n2 * (int64_t) x->nb[2] +
           j / s->C / s->n2 * (int64_t) x->nb[3];
}
