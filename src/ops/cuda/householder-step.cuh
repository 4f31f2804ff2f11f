#pragma once

// Householder scan, factor by factor, with the state in registers.
//
//     S ← g_t ∘ S;   for j = 1 .. n_h:  S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ;   o_t = scale · Sᵀ q_t
//
// or, with r and w:  u = Sᵀ r;   S ← g_t ∘ S − w uᵀ + k vᵀ;   o_t = scale · Sᵀ q_t
//
// A block is one sequence, one head and up to MAX_COLS columns. Its warps copy the rows of FACTORS
// factors at a time into shared memory, padded with zeros, one factor per warp, while each warp
// takes its columns through the previous ones. Every token goes through the same operations
// wherever a call begins or ends, so any cut of a sequence into calls gives the same bits.

#include "scan-device.cuh"

struct householder_cuda_args {
    cuda_batch batch;
    cuda_rows  q, k, v, beta, gate, r, w;
    int        n_h;
    int        gate_width; // 0: no gate, 1: per head, d_k: per key channel
    float      scale;
    float *    out; // [tokens][heads][d_v]
};

enum householder_cuda_gate {
    HOUSEHOLDER_GATE_NONE,
    HOUSEHOLDER_GATE_HEAD,
    HOUSEHOLDER_GATE_CHANNEL
};

// grid: (sequences · heads, column groups), block: 32 · warps
template <int DK, int GATE, bool RW>
static __global__ void __launch_bounds__(cuda_tile<DK>::THREADS, cuda_tile<DK>::MIN_BLOCKS)
        householder_step(const householder_cuda_args a) {
    using tile = cuda_tile<DK>;
    constexpr int  FACTORS = tile::FACTORS;
    constexpr bool CHANNEL = GATE == HOUSEHOLDER_GATE_CHANNEL;

    // two buffers: one is used while the other is filled
    __shared__ float4 sh_q[2][FACTORS][DK / 4];
    __shared__ float4 sh_k[2][FACTORS][DK / 4];
    __shared__ float4 sh_g[2][CHANNEL ? FACTORS : 1][DK / 4];
    __shared__ float4 sh_r[2][RW ? FACTORS : 1][DK / 4];
    __shared__ float4 sh_w[2][RW ? FACTORS : 1][DK / 4];
    __shared__ float4 sh_v[2][FACTORS][tile::MAX_COLS / 4];
    __shared__ float  sh_beta[2][FACTORS];
    __shared__ float  sh_gate[2][FACTORS];

    const cuda_batch & b = a.batch;
    cuda_wait();

    const int h = (int) (blockIdx.x % b.n_head);
    const int n_thr = (int) blockDim.x;
    const int tid = (int) threadIdx.x;
    const int width = n_thr / 32 * tile::WARP_COLS; // columns of this block
    const int begin = (int) blockIdx.y * width;
    const int end = begin + width < b.d_v ? begin + width : b.d_v;

    cuda_seq   seq;
    const bool ok = cuda_seq_get(b, (int) (blockIdx.x / b.n_head), &seq);
    if (!cuda_seq_is_mine(b, seq, ok)) {
        return; // the chunk kernels compute it
    }
    if (!ok) {
        cuda_fill_nan(b, seq, h, begin, end, a.out, tid, n_thr);
        return;
    }

    const int     n_warps = n_thr / 32;
    const int64_t total = seq.count * a.n_h; // factors

    // the next factor that this warp copies: factor f_next of token t_next of the batch
    int64_t t_next = seq.first;
    int     f_next = 0;

    const auto advance = [&](int by) {
        for (f_next += by; f_next >= a.n_h; f_next -= a.n_h) {
            ++t_next;
        }
    };
    const auto copy = [&](float4 * to, const cuda_rows & from, int f) {
        cuda_copy_row<DK>(to, cuda_row(from, h, f, t_next), b.d_k, DK, from.aligned);
    };
    int e_next = tid / 32; // its place in the buffer that is filled next

    const auto fetch = [&](int64_t e0, int x) { // starts to copy factors from e0 into buffer x
        UNROLL_BY(1)
        for (; e_next < FACTORS && e0 + e_next < total; e_next += n_warps, advance(n_warps)) {
            const int e = e_next;
            copy(sh_k[x][e], a.k, f_next);
            cuda_copy_row<tile::MAX_COLS>(sh_v[x][e], cuda_row(a.v, h, f_next, t_next) + begin,
                    end - begin, width, a.v.aligned);
            if (f_next == a.n_h - 1) {
                copy(sh_q[x][e], a.q, 0);
            }
            if (CHANNEL && f_next == 0) {
                copy(sh_g[x][CHANNEL ? e : 0], a.gate, 0);
            }
            if (RW) {
                copy(sh_r[x][RW ? e : 0], a.r, 0);
                copy(sh_w[x][RW ? e : 0], a.w, 0);
            }
            if (tid % 32 == 0 && !RW) {
                cuda_copy(&sh_beta[x][e], cuda_row(a.beta, h, f_next, t_next), true);
            }
            if (tid % 32 == 0 && GATE == HOUSEHOLDER_GATE_HEAD) {
                cuda_copy(&sh_gate[x][e], cuda_row(a.gate, h, 0, t_next), true);
            }
        }
        e_next -= FACTORS;
        cuda_copy_commit();
    };
    advance(e_next);
    fetch(0, 0);

    tile S;
    S.place();
    S.load(b, seq, h, begin);
    S.store(b, seq, h, begin, 0);

    int64_t n = 0; // token of the sequence
    int     factor = 0;
    int     x = 0; // buffer in use

    for (int64_t e0 = 0; e0 < total; e0 += FACTORS, x = 1 - x) {
        const int n_now = total - e0 < FACTORS ? (int) (total - e0) : FACTORS;

        fetch(e0 + FACTORS, 1 - x);
        cuda_copy_wait<1>();
        __syncthreads();

        for (int e = 0; e < n_now; ++e) {
            float u[tile::COLS];
            if (RW) { // before the gate: u = Sᵀ r
                S.dot(sh_r[x][RW ? e : 0], u);
            }
            if (factor == 0) { // S ← g ∘ S
                if (CHANNEL) {
                    S.scale_rows(sh_g[x][CHANNEL ? e : 0]);
                } else if (GATE == HOUSEHOLDER_GATE_HEAD) {
                    S.scale(sh_gate[x][e]);
                }
            }
            float y[tile::COLS];
            if (RW) { // S ← S − w uᵀ + k vᵀ
                S.columns(sh_v[x][e], y);
                UNROLL for (int c = 0; c < tile::COLS; ++c) {
                    u[c] = -u[c];
                }
                S.add(sh_w[x][RW ? e : 0], u);
            } else { // S ← S + k δᵀ,  δ = β (v − Sᵀ k)
                S.dot(sh_k[x][e], u);
                S.columns(sh_v[x][e], y);
                UNROLL for (int c = 0; c < tile::COLS; ++c) {
                    y[c] = sh_beta[x][e] * (y[c] - u[c]);
                }
            }
            S.add(sh_k[x][e], y);

            if (++factor == a.n_h) { // o = scale · Sᵀ q
                S.dot(sh_q[x][e], u);
                S.put(b, h, begin, seq.first + n, u, a.scale, false, 1.0f, a.out);
                ++n;
                factor = 0;
                S.store(b, seq, h, begin, n);
            }
        }
        __syncthreads(); // all threads have used these factors
    }
}
