#pragma once

// The gates of Mamba-2 for the chunk path: exp(dt A), or 2 exp(dt A) − 1, and f_t = dt. The chunk
// kernels find them as a gate per head and a multiplier of x_t.

#include "signed-step.cuh"

enum { CHUNK_GATE_THREADS = 64 };

struct signed_chunk_gates_args {
    signed_cuda_args scan;
    float *          gate; // [heads][tokens]
    float *          in;   // [heads][tokens]   f
};

// grid: (tokens / CHUNK_GATE_THREADS, heads), block: CHUNK_GATE_THREADS
static __global__ void __launch_bounds__(CHUNK_GATE_THREADS)
        signed_chunk_gates(const signed_chunk_gates_args a) {
    const signed_cuda_args & s = a.scan;
    cuda_wait();

    const int     h = (int) blockIdx.y;
    const int64_t t = (int64_t) blockIdx.x * CHUNK_GATE_THREADS + threadIdx.x;
    if (t < s.batch.n_tokens) {
        const float dt = cuda_row(s.gate, h, 0, t)[0];
        const float A = s.A[(h / s.A_share) * s.A_head];

        a.gate[h * s.batch.n_tokens + t] = signed_decay(dt, A, s.two_exp_m1);
        a.in[h * s.batch.n_tokens + t] = dt;
    }
}
