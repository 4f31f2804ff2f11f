#pragma once

// A model of the tensor-core instruction mma.sync.m16n8k8 of TF32: c (16 × 8) += a (16 × 8) · b
// (8 × 8), C++17.
//
// Each operand contributes its sign, its exponent and the upper 10 bits of its fraction. NVIDIA
// does not document how a tensor core adds. Fasi, Higham, Mikaitis, Pranesh (2021, "Numerical
// behavior of NVIDIA tensor cores") found by experiment: products are exact; they and c are aligned
// to the largest exponent among them and truncated there; the sum is not normalized in between; it
// is truncated to F32; subnormal numbers are not flushed. MMA_ALIGNED is
//
//     c' = cut₂₄(Σ cut(x)) ,   x over the eight products and c
//     cut: truncates to multiples of 2⁻²³ of the largest power of two in any |x|
//
// This is the coarsest adder that they found, that of the V100. Later GPUs keep more bits and add
// in groups of other sizes (Khattak, Mikaitis 2025, "Accurate Models of NVIDIA Tensor Cores", arXiv
// 2512.07004, up to the B200). The other orders stand for them: two groups of four, each truncated;
// and one product after the other, up or down, each sum rounded to nearest. A result must be
// correct in every order. The sign of a zero, and the result of a sum beyond the range of F32
// (here: infinity), are not known.

#include <cmath>
#include <cstdint>
#include <cstring>

enum mma_order { MMA_ALIGNED, MMA_GROUPS, MMA_UP, MMA_DOWN, N_MMA_ORDERS };

namespace mma_model {

inline float operand(uint32_t bits) {
    bits &= 0xFFFFE000u;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

// Two columns at a time: every x86-64 and aarch64 has such vectors.
using pair = double __attribute__((vector_size(16)));
using pair_u64 = uint64_t __attribute__((vector_size(16)));
using pair_i32 = int32_t __attribute__((vector_size(8)));

inline pair abs_of(pair x) {
    return (pair) ((pair_u64) x & 0x7FFFFFFFFFFFFFFFu);
}

// cut₂₄(c + Σ cut(x)) for the n products x[0 .. n − 1] and c
inline void add_aligned(float c[2], const pair * products, int n) {
    pair x[9];
    pair top = { 0x1p-300, 0x1p-300 }; // less than any product; used if all are zero
    x[n] = pair{ c[0], c[1] };
    for (int k = 0; k < n; ++k) {
        x[k] = products[k];
    }
    for (int k = 0; k <= n; ++k) {
        top = abs_of(x[k]) > top ? abs_of(x[k]) : top;
    }
    const pair_u64 e = (pair_u64) top >> 52; // exponents, with the bias of 1023
    const pair     to_units = (pair) ((2 * 1023 + 23 - e) << 52);
    const pair     unit = (pair) ((e - 23) << 52);
    pair_i32       sum = {};
    for (int k = 0; k <= n; ++k) {
        // each is below 2²⁴; the conversion truncates
        sum += __builtin_convertvector(x[k] * to_units, pair_i32);
    }
    const pair exact = __builtin_convertvector(sum, pair) * unit;
    const pair cut = (pair) ((pair_u64) exact & ~0x1FFFFFFFull); // 24 bits
    for (int j = 0; j < 2; ++j) {
        c[j] = fabs(exact[j]) < 0x1p-126 ? (float) (trunc(exact[j] * 0x1p149) * 0x1p-149)
                                         : (float) cut[j];
    }
}

// Two elements of the result, for finite operands. The product of two TF32 numbers is exact in a
// double, and so is its product with a power of two.
inline void two(float c[2], const double a[8], const double b[8][8], int col, mma_order order) {
    pair x[8];
    for (int k = 0; k < 8; ++k) {
        x[k] = a[k] * pair{ b[k][col], b[k][col + 1] };
    }
    if (order == MMA_ALIGNED) {
        add_aligned(c, x, 8);
    } else if (order == MMA_GROUPS) {
        add_aligned(c, x, 4);
        add_aligned(c, x + 4, 4);
    } else {
        for (int k = 0; k < 8; ++k) {
            const pair p = x[order == MMA_UP ? k : 7 - k];
            c[0] = (float) (c[0] + p[0]);
            c[1] = (float) (c[1] + p[1]);
        }
    }
}

struct matrices {
    double a[16][8], b[8][8];
    float  c[16][8];
};

// Stores the non-finite results in `special`, and replaces non-finite operands by zero.
inline void set_aside(matrices & x, float special[16][8]) {
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
            double sum = x.c[i][j];
            for (int k = 0; k < 8; ++k) {
                sum += x.a[i][k] * x.b[k][j];
            }
            special[i][j] = std::isfinite(sum) ? 0.0f : (float) sum;
        }
    }
    for (auto & row : x.a) {
        for (double & v : row) {
            v = std::isfinite(v) ? v : 0.0;
        }
    }
    for (auto & row : x.b) {
        for (double & v : row) {
            v = std::isfinite(v) ? v : 0.0;
        }
    }
    for (auto & row : x.c) {
        for (float & v : row) {
            v = std::isfinite(v) ? v : 0.0f;
        }
    }
}

// c += a·b by the 32 lanes of a warp. With g = lane/4 and m = lane % 4, a lane holds
//     a: [g][m], [g + 8][m], [g][m + 4], [g + 8][m + 4]
//     b: [m][g], [m + 4][g]
//     c: [g][2m], [g][2m + 1], [g + 8][2m], [g + 8][2m + 1]
// The arguments return element i of a lane: uint32_t a(lane, i), b(lane, i); float & c(lane, i).
template <typename A, typename B, typename C>
inline void multiply(A && a, B && b, C && c, mma_order order) {
    matrices x;
    bool     finite = true;
    for (int l = 0; l < 32; ++l) {
        const int g = l / 4, m = l % 4;
        for (int i = 0; i < 4; ++i) {
            const float v = operand(a(l, i));
            x.a[g + i % 2 * 8][m + i / 2 * 4] = v;
            x.c[g + i / 2 * 8][2 * m + i % 2] = c(l, i);
            finite = finite && std::isfinite(v) && std::isfinite(c(l, i));
        }
        for (int i = 0; i < 2; ++i) {
            const float v = operand(b(l, i));
            x.b[m + 4 * i][g] = v;
            finite = finite && std::isfinite(v);
        }
    }
    float special[16][8];
    if (!finite) {
        set_aside(x, special);
    }
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; j += 2) {
            two(&x.c[i][j], x.a[i], x.b, j, order);
        }
    }
    for (int l = 0; l < 32; ++l) {
        for (int i = 0; i < 4; ++i) {
            const int row = l / 4 + i / 2 * 8, col = 2 * (l % 4) + i % 2;
            c(l, i) =
                    finite || std::isfinite(special[row][col]) ? x.c[row][col] : special[row][col];
        }
    }
}

} // namespace mma_model
