#pragma once

// Products of F32 matrices on tensor cores, with nearly the accuracy of F32.
//
// A tensor core multiplies TF32 numbers: F32 with 10 fraction bits. Each number is split into two
// of them, x = hi + lo with an error of at most 2⁻²³ |x|, and
//     A B ≈ A_lo B_hi + A_hi B_lo + A_hi B_hi
// omits A_lo B_lo, 2⁻²² of the product. A tensor core rounds its sums toward zero (Fasi, Higham,
// Mikaitis, Pranesh 2021). Over many steps this error would exceed that of the split, so a tensor
// core sums only eight products, and ordinary additions, rounded to nearest, sum the results
// (Ootomo, Yokota 2022). Numbers with few bits, such as 1, ½ and small integers, are multiplied
// exactly: their lo is zero.
//
// One multiplication is 16×8 += 16×8 · 8×8. Each lane of a warp holds these elements, with
// g = lane / 4 and m = lane % 4:
//     A: [g][m], [g + 8][m], [g][m + 4], [g + 8][m + 4]
//     B: [m][g], [m + 4][g]
//     C: [g][2m], [g][2m + 1], [g + 8][2m], [g + 8][2m + 1]

#include "scan-device.cuh"

#include <stdint.h>

struct mma_split {
    uint32_t hi, lo; // bits of a TF32 and of an F32 number
};

// hi is rounded to nearest with integer arithmetic; the conversion instruction has an eighth of the
// speed. lo is F32: a tensor core ignores its last 13 bits, and at most one of them is set, worth
// 2⁻²³ of x. The carry may turn the hi of a NaN into zero or infinity; its lo is NaN.
CUDA_INLINE mma_split mma_split_of(float x) {
    mma_split s;
    s.hi = ((uint32_t) __float_as_int(x) + 0x1000u) & 0xFFFFE000u;
    s.lo = (uint32_t) __float_as_int(x - __int_as_float((int) s.hi));
    return s;
}

CUDA_INLINE void mma_split_four(const float x[4], mma_split s[4]) {
    UNROLL for (int i = 0; i < 4; ++i) {
        s[i] = mma_split_of(x[i]);
    }
}

// c += a·b, one tensor-core instruction, executed by all 32 lanes.
CUDA_INLINE void mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2]) {
#if !defined(__CUDACC__)
    cuda_emu::mma_m16n8k8_tf32(c, a, b, __LINE__);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap(); // no TF32 before sm_80; the launcher uses the step kernel there
#endif
}

// c += a·b in F32
CUDA_INLINE void mma_add(float c[4], const mma_split a[4], const mma_split b[2]) {
    const uint32_t a_hi[4] = { a[0].hi, a[1].hi, a[2].hi, a[3].hi };
    const uint32_t a_lo[4] = { a[0].lo, a[1].lo, a[2].lo, a[3].lo };
    const uint32_t b_hi[2] = { b[0].hi, b[1].hi };
    const uint32_t b_lo[2] = { b[0].lo, b[1].lo };

    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    mma_tf32(sum, a_lo, b_hi);
    mma_tf32(sum, a_hi, b_lo);
    mma_tf32(sum, a_hi, b_hi);
    UNROLL for (int i = 0; i < 4; ++i) {
        c[i] += sum[i];
    }
}
