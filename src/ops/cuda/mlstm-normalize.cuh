#pragma once

// The normalizer of mLSTM, after signed-step.cuh or signed-plain.cuh has left scale · Sᵀ c_t in y:
//
//     n ← f' n + i' b_t ,   y_t ← y_t / (max(|scale · n·c_t|, exp(−m')) + eps)
//
// A block is one sequence and head and processes NORM_TOKENS tokens at a time. Elements of n do not
// mix: each thread takes its elements through these tokens and sums its part of every n·c_t; then
// the parts are added. Between groups of tokens n is stored in slot_out. Any d_k.

#include "signed-step.cuh"

enum { NORM_THREADS = 128, NORM_TOKENS = 16 };

// grid: sequences · heads, block: NORM_THREADS
static __global__ void __launch_bounds__(NORM_THREADS) mlstm_normalize(const signed_cuda_args a) {
    __shared__ float sh_log_f[NORM_TOKENS], sh_log_i[NORM_TOKENS];
    __shared__ float sh_f[NORM_TOKENS], sh_in[NORM_TOKENS], sh_max[NORM_TOKENS]; // f', i', m'
    __shared__ float sh_sum[NORM_THREADS / 32][NORM_TOKENS]; // part of n·c_t per warp

    const cuda_batch & b = a.batch;
    cuda_wait();

    const int h   = (int) (blockIdx.x % b.n_head);
    const int tid = (int) threadIdx.x;

    cuda_seq seq;
    if (!cuda_seq_get(b, (int) (blockIdx.x / b.n_head), &seq)) {
        return; // y is already NaN
    }
    const int64_t at   = (int64_t) b.d_k * b.d_v; // offset of n in a head
    float *       norm = cuda_head(b, seq.slot_out, h) + at;
    float         m    = mlstm_max(b, seq, h); // before the first token of the group
    __syncthreads();                           // all threads have read m; it may be overwritten

    // n and m before the first token, into a snapshot if there is one; n also into slot_out
    const int before = cuda_slot_after(b, seq, 0);
    for (int i = tid; i < b.d_k; i += NORM_THREADS) {
        const float n = seq.slot_in < 0 ? 0.0f : cuda_head(b, seq.slot_in, h)[at + i];
        norm[i]       = n;
        if (before >= 0) {
            cuda_head(b, before, h)[at + i] = n;
        }
    }
    if (before >= 0 && tid == 0) {
        cuda_head(b, before, h)[at + b.d_k] = m;
    }

    for (int64_t t0 = 0; t0 < seq.count; t0 += NORM_TOKENS) {
        const int     n_t   = seq.count - t0 < NORM_TOKENS ? (int) (seq.count - t0) : NORM_TOKENS;
        const int64_t first = seq.first + t0;

        if (tid < n_t) {
            sh_log_f[tid] = cuda_row(a.gate, h, 0, first + tid)[0];
            sh_log_i[tid] = cuda_row(a.aux, h, 0, first + tid)[0];
        }
        __syncthreads();
        if (tid < n_t) { // one token per thread, with the maximum up to it
            for (int t = 0; t < tid; ++t) {
                m = fmaxf(sh_log_f[t] + m, sh_log_i[t]);
            }
            mlstm_gates(sh_log_f[tid], sh_log_i[tid], &m, &sh_f[tid], &sh_in[tid]);
            sh_max[tid] = m;
        }
        __syncthreads();

        float sum[NORM_TOKENS] = {};
        for (int i = tid; i < b.d_k; i += NORM_THREADS) {
            float n = norm[i];
#pragma unroll
            for (int t = 0; t < NORM_TOKENS; ++t) {
                if (t < n_t) {
                    n      = fmaf(sh_in[t], cuda_row(a.b, h, 0, first + t)[i], sh_f[t] * n);
                    sum[t] = fmaf(n, cuda_row(a.c, h, 0, first + t)[i], sum[t]);

                    const int slot = cuda_slot_after(b, seq, t0 + t + 1);
                    if (slot >= 0) {
                        cuda_head(b, slot, h)[at + i] = n;
                    }
                }
            }
            norm[i] = n;
        }
#pragma unroll
        for (int t = 0; t < NORM_TOKENS; ++t) {
#pragma unroll
            for (int x = 16; x > 0; x /= 2) {
                sum[t] += __shfl_xor_sync(0xFFFFFFFF, sum[t], x);
            }
            if (tid % 32 == 0) {
                sh_sum[tid / 32][t] = sum[t];
            }
        }
        __syncthreads();

        for (int t = 0; t < n_t; ++t) {
            float nc = 0.0f; // n·c_t
            for (int w = 0; w < NORM_THREADS / 32; ++w) {
                nc += sh_sum[w][t];
            }
            const float below = fmaxf(fabsf(a.scale * nc), cuda_exp(-sh_max[t])) + a.eps;
            for (int j = tid; j < b.d_v; j += NORM_THREADS) {
                float * y = a.out + ((first + t) * b.n_head + h) * b.d_v + j;
                *y        = __fdiv_rn(*y, below);
            }
            const int slot = cuda_slot_after(b, seq, t0 + t + 1);
            if (slot >= 0 && tid == 0) {
                cuda_head(b, slot, h)[at + b.d_k] = sh_max[t];
            }
        }
        m = sh_max[n_t - 1];
        __syncthreads(); // all threads have used these tokens
    }
}
