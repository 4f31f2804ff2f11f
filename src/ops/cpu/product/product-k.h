#pragma once

// Weights in blocks of 256: Q4_K, Q5_K, Q6_K, IQ4_XS.
//
//     y[r, c] = Σ_b e[c, b] (d[r, b] Σ_i s[r, i] Σ_{k in part i} w[r, k] x[k, c]
//                            − m[r, b] Σ_i t[r, i] Σ_{k in part i} x[k, c])
//
// A block has 8 or 16 parts, and w, x, s and t are integers, so the sums over a block are exact. In
// F32, a block is the first sum times d, minus the second one times m, times e, added to the blocks
// before it; the last two steps are fused. Both ways to multiply compute this, strip by strip
// (product-k.c) and two rows at a time (product-rows-k.c), so their results are bit-identical.

#include "product.h"

// A block of a column. Block b of all columns is followed by block b + 1.
struct column_block {
    int32_t q[64];     // four numbers in each
    int32_t start[32]; // −o Σ q of each run (product-k.c), with VNNI
    int16_t sums[16];  // Σ q of each part
    float   e;         // x = e q
};

// Rows of Q4_K or Q6_K, for few columns
void product_rows_k(const struct product_part * part);
