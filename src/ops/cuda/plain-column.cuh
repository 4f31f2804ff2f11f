#pragma once

// For heads with d_k > 256, which no step kernel can hold in registers: each thread keeps one
// column in memory, in slot_out. Slow, but correct for every valid shape, because a server without
// a scheduler has no other device to use.

#include "scan-device.cuh"

// One column of a head, in slot_out; element i at i·d_v.
struct plain_column {
    float * S;
    int     d_k;
    int64_t d_v;

    __device__ __forceinline__ void begin(
            const cuda_batch & b, const cuda_seq & seq, int h, int j) {
        S = cuda_head(b, seq.slot_out, h) + j;
        d_k = b.d_k;
        d_v = b.d_v;
        for (int i = 0; i < d_k; ++i) {
            S[i * d_v] = seq.slot_in < 0 ? 0.0f : (cuda_head(b, seq.slot_in, h) + j)[i * d_v];
        }
    }

    // Stores the state after `done` tokens if there is a slot for it; slot_out already has it.
    __device__ __forceinline__ void store(
            const cuda_batch & b, const cuda_seq & seq, int h, int j, int64_t done) const {
        const int slot = cuda_slot_after(b, seq, done);
        for (int i = 0; slot >= 0 && slot != seq.slot_out && i < d_k; ++i) {
            (cuda_head(b, slot, h) + j)[i * d_v] = S[i * d_v];
        }
    }

    __device__ __forceinline__ float dot(const float * x) const {
        float sum = 0.0f;
        for (int i = 0; i < d_k; ++i) {
            sum = fmaf(S[i * d_v], x[i], sum);
        }
        return sum;
    }
};
