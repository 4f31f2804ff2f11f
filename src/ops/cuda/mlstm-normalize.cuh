#pragma once

// The gates and the normalizer of mLSTM, before the scan:
//
//     m' = max(log_f + m, log_i) ,   f' = exp(log_f + m − m') ,   i' = exp(log_i − m')
//     n ← f' n + i' b_t ,            below_t = max(|scale · n·c_t|, exp(−m')) + eps
//
// They do not depend on S. This kernel leaves f', i' and below_t of every token in the work buffer.
// The scan uses them as gate, as multiplier of x and as divisor of y.
//
// A block is one sequence and head and processes NORM_TOKENS tokens at a time: the gates with one
// token per thread, then n. Elements of n do not mix: each thread loads its elements of b and c of
// all these tokens, takes n through them, and sums its part of every n·c_t; then the parts are
// added. Between groups of tokens n is stored in slot_out. Any d_k.

#include "signed-step.cuh"

enum { NORM_THREADS = 128, NORM_TOKENS = 16 };

// One token of the running maximum. Both exponents are in double. f' makes up for the rounding of
// m'; otherwise S·eᵐ would drift. In F32 a difference of 30 would give i' a relative error of 1e-6,
// and a state that began with m = 0 and has seen only small inputs consists of nothing else.
static __device__ __forceinline__ void mlstm_gates(
        float log_f, float log_i, float * m, float * f, float * in) {
    const float m_new = fmaxf(log_f + *m, log_i);
    *f = (float) exp((double) log_f + (double) *m - (double) m_new);
    *in = (float) exp((double) log_i - (double) m_new);
    *m = m_new;
}

// Halves the tokens of a lane and doubles the lanes that are summed: 2·HALF values become HALF
template <int HALF> static __device__ __forceinline__ void mlstm_fold(float x[NORM_TOKENS]) {
    const bool upper = ((int) threadIdx.x & 2 * HALF) != 0;
#pragma unroll
    for (int t = 0; t < HALF; ++t) {
        const float mine = upper ? x[t + HALF] : x[t];
        const float give = upper ? x[t] : x[t + HALF];
        x[t] = mine + __shfl_xor_sync(0xFFFFFFFF, give, 2 * HALF);
    }
}

// Sums x[t] over the lanes of a warp; lane l gets the sum of token l / 2. 16 sums take 16 shuffles.
static __device__ __forceinline__ float mlstm_sum(float x[NORM_TOKENS]) {
    static_assert(NORM_TOKENS == 16, "two lanes per token");
    mlstm_fold<8>(x);
    mlstm_fold<4>(x);
    mlstm_fold<2>(x);
    mlstm_fold<1>(x);
    return x[0] + __shfl_xor_sync(0xFFFFFFFF, x[0], 1);
}

// grid: sequences · heads, block: NORM_THREADS
static __global__ void __launch_bounds__(NORM_THREADS, 2)
        mlstm_normalize(const signed_cuda_args a) {
    __shared__ float sh_log_f[NORM_TOKENS], sh_log_i[NORM_TOKENS];
    __shared__ float sh_f[NORM_TOKENS], sh_in[NORM_TOKENS];  // f', i'
    __shared__ float sh_sum[NORM_THREADS / 32][NORM_TOKENS]; // part of n·c_t per warp

    const cuda_batch & b = a.batch;
    cuda_wait();

    const int h = (int) (blockIdx.x % b.n_head);
    const int tid = (int) threadIdx.x;

    cuda_seq seq;
    if (!cuda_seq_get(b, (int) (blockIdx.x / b.n_head), &seq)) {
        return; // the scan writes NaN
    }
    const int64_t at = (int64_t) b.d_k * b.d_v; // offset of n in a head
    float *       norm = cuda_head(b, seq.slot_out, h) + at;
    const float * in_b = cuda_row(a.b, h, 0, seq.first);
    const float * in_c = cuda_row(a.c, h, 0, seq.first);
    const float * log_f = cuda_row(a.gate, h, 0, seq.first);
    const float * log_i = cuda_row(a.aux, h, 0, seq.first);
    float *       f = a.mlstm + h * b.n_tokens + seq.first; // [3][heads][tokens]
    const int64_t plane = b.n_head * b.n_tokens;

    // m before the first token of the group; the same in all threads
    float m = seq.slot_in < 0 ? 0.0f : cuda_head(b, seq.slot_in, h)[b.head_size - 1];
    __syncthreads(); // all threads have read m; it may be overwritten

    // n and m before the first token, into a snapshot if there is one; n also into slot_out
    const int before = cuda_slot_after(b, seq, 0);
    for (int i = tid; i < b.d_k; i += NORM_THREADS) {
        const float n = seq.slot_in < 0 ? 0.0f : cuda_head(b, seq.slot_in, h)[at + i];
        norm[i] = n;
        if (before >= 0) {
            cuda_head(b, before, h)[at + i] = n;
        }
    }
    if (before >= 0 && tid == 0) {
        cuda_head(b, before, h)[at + b.d_k] = m;
    }

    for (int64_t t0 = 0; t0 < seq.count; t0 += NORM_TOKENS) {
        const int  n_t = seq.count - t0 < NORM_TOKENS ? (int) (seq.count - t0) : NORM_TOKENS;
        const bool snaps = seq.count - t0 - n_t <= b.n_snap; // a token here may have a snapshot

        if (tid < n_t) {
            sh_log_f[tid] = log_f[(t0 + tid) * a.gate.token];
            sh_log_i[tid] = log_i[(t0 + tid) * a.aux.token];
        }
        __syncthreads();
        float m_mine = m; // before token tid, then after it
        for (int t = 0; t < n_t; ++t) {
            m_mine = t == tid ? m : m_mine;
            m = fmaxf(sh_log_f[t] + m, sh_log_i[t]);
        }
        if (tid < n_t) {
            mlstm_gates(sh_log_f[tid], sh_log_i[tid], &m_mine, &sh_f[tid], &sh_in[tid]);
        }
        __syncthreads();

        float sum[NORM_TOKENS] = {};
        for (int i = tid; i < b.d_k; i += NORM_THREADS) {
            float row_b[NORM_TOKENS], row_c[NORM_TOKENS];
#pragma unroll
            for (int t = 0; t < NORM_TOKENS; ++t) {
                row_b[t] = t < n_t ? in_b[(t0 + t) * a.b.token + i] : 0.0f;
                row_c[t] = t < n_t ? in_c[(t0 + t) * a.c.token + i] : 0.0f;
            }
            float n = norm[i];
#pragma unroll
            for (int t = 0; t < NORM_TOKENS; ++t) {
                if (t < n_t) {
                    n = fmaf(sh_in[t], row_b[t], sh_f[t] * n);
                    sum[t] = fmaf(n, row_c[t], sum[t]);
                }
                if (snaps && t < n_t) {
                    const int slot = cuda_slot_after(b, seq, t0 + t + 1);
                    if (slot >= 0) {
                        cuda_head(b, slot, h)[at + i] = n;
                    }
                }
            }
            norm[i] = n;
        }
        const float part = mlstm_sum(sum);
        if (tid % 2 == 0) {
            sh_sum[tid / 32][tid % 32 / 2] = part;
        }
        __syncthreads();

        if (tid < n_t) {
            float nc = 0.0f; // n·c_t
            for (int w = 0; w < NORM_THREADS / 32; ++w) {
                nc += sh_sum[w][tid];
            }
            f[t0 + tid] = sh_f[tid];
            f[t0 + tid + plane] = sh_in[tid];
            f[t0 + tid + 2 * plane] = fmaxf(fabsf(a.scale * nc), cuda_exp(-m_mine)) + a.eps;

            const int slot = cuda_slot_after(b, seq, t0 + tid + 1);
            if (slot >= 0) {
                cuda_head(b, slot, h)[at + b.d_k] = m_mine;
            }
        }
        // the next group writes sh_log_* now, the others after a barrier that follows this reading
    }
}
