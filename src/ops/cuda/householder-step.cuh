#pragma once

// Householder scan, token by token, with the state in registers.
//
//     S ← g_t ∘ S;   for j = 1 .. n_h:  S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ;   o_t = scale · Sᵀ q_t
//
// or, with r and w:  u = Sᵀ r;   S ← g_t ∘ S − w uᵀ + k vᵀ;   o_t = scale · Sᵀ q_t
//
// A block is one sequence, one head and up to MAX_COLS columns. Its threads fetch the rows of EVENTS factors at a time into shared memory, padded
// with zeros; each warp then takes its own columns through them. Every token goes through the same operations wherever a call begins or ends, so
// any cut of a sequence into calls gives the same bits.

#include "scan-device.cuh"

struct householder_cuda_args {
    cuda_batch batch;
    cuda_rows  q, k, v, beta, gate, r, w;
    int        n_h;
    int        gate_width; // 0: no gate, 1: one a head, d_k: one a key channel
    float      scale;
    float *    out;        // [tokens][heads][d_v]
};

enum householder_cuda_gate { HOUSEHOLDER_GATE_NONE, HOUSEHOLDER_GATE_HEAD, HOUSEHOLDER_GATE_CHANNEL };

// grid: (sequences · heads, column groups), block: 32 · warps
template <int DK, int GATE, bool RW>
static __global__ void __launch_bounds__(cuda_tile<DK>::THREADS, cuda_tile<DK>::MIN_BLOCKS) householder_step(const householder_cuda_args a) {
    using tile = cuda_tile<DK>;
    constexpr int  EVENTS  = tile::EVENTS;
    constexpr bool CHANNEL = GATE == HOUSEHOLDER_GATE_CHANNEL;

    __shared__ float4 sh_q[EVENTS][DK/4];
    __shared__ float4 sh_k[EVENTS][DK/4];
    __shared__ float4 sh_g[CHANNEL ? EVENTS : 1][DK/4];
    __shared__ float4 sh_r[RW ? EVENTS : 1][DK/4];
    __shared__ float4 sh_w[RW ? EVENTS : 1][DK/4];
    __shared__ float  sh_v[EVENTS][tile::MAX_COLS];
    __shared__ float  sh_beta[EVENTS];
    __shared__ float  sh_gate[EVENTS];

    const cuda_batch & b = a.batch;
    cuda_wait();

    const int h     = (int) (blockIdx.x % b.n_head);
    const int n_thr = (int) blockDim.x;
    const int tid   = (int) threadIdx.x;
    const int width = n_thr/32*tile::WARP_COLS; // columns of this block
    const int begin = (int) blockIdx.y*width;
    const int end   = begin + width < b.d_v ? begin + width : b.d_v;

    cuda_seq seq;
    if (!cuda_seq_get(b, (int) (blockIdx.x/b.n_head), &seq)) {
        cuda_fill_nan(b, seq, h, begin, end, a.out, tid, n_thr);
        return;
    }

    tile S;
    S.place();
    S.load (b, seq, h, begin);
    S.store(b, seq, h, begin, 0);

    const int64_t total  = seq.count*a.n_h; // events: factors of tokens
    int64_t       n      = 0;               // token of the sequence
    int           factor = 0;

    for (int64_t e0 = 0; e0 < total; e0 += EVENTS) {
        const int n_ev = total - e0 < EVENTS ? (int) (total - e0) : EVENTS;

        __syncthreads(); // the events before these have been used by all
        for (int x = tid; x < n_ev*DK; x += n_thr) {
            const int     e = x/DK;
            const int     i = x % DK;
            const int64_t t = seq.first + (e0 + e)/a.n_h;
            const int     f = (int) ((e0 + e) % a.n_h);
            ((float *) sh_k[e])[i] = cuda_padded(cuda_row(a.k, h, f, t), i, b.d_k);
            if (f == a.n_h - 1) {
                ((float *) sh_q[e])[i] = cuda_padded(cuda_row(a.q, h, 0, t), i, b.d_k);
            }
            if (CHANNEL && f == 0) {
                ((float *) sh_g[e])[i] = cuda_padded(cuda_row(a.gate, h, 0, t), i, b.d_k);
            }
            if (RW) {
                ((float *) sh_r[e])[i] = cuda_padded(cuda_row(a.r, h, 0, t), i, b.d_k);
                ((float *) sh_w[e])[i] = cuda_padded(cuda_row(a.w, h, 0, t), i, b.d_k);
            }
        }
        for (int x = tid; x < n_ev*width; x += n_thr) {
            const int     e = x/width;
            const int     j = x % width;
            const int64_t t = seq.first + (e0 + e)/a.n_h;
            sh_v[e][j] = begin + j < b.d_v ? cuda_row(a.v, h, (e0 + e) % a.n_h, t)[begin + j] : 0.0f;
        }
        for (int e = tid; e < n_ev; e += n_thr) {
            const int64_t t = seq.first + (e0 + e)/a.n_h;
            if (!RW) {
                sh_beta[e] = cuda_row(a.beta, h, (e0 + e) % a.n_h, t)[0];
            }
            if (GATE == HOUSEHOLDER_GATE_HEAD) {
                sh_gate[e] = cuda_row(a.gate, h, 0, t)[0];
            }
        }
        __syncthreads();

        for (int e = 0; e < n_ev; ++e) {
            float u[tile::COLS];
            if (RW) { // u = Sᵀ r, before the gate
                S.dot(sh_r[RW ? e : 0], u);
            }
            if (factor == 0) { // S ← g ∘ S
                if (CHANNEL) {
                    S.scale_rows(sh_g[CHANNEL ? e : 0]);
                } else if (GATE == HOUSEHOLDER_GATE_HEAD) {
                    S.scale(sh_gate[e]);
                }
            }
            float y[tile::COLS];
            if (RW) { // S ← S − w uᵀ + k vᵀ
#pragma unroll
                for (int c = 0; c < tile::COLS; ++c) {
                    u[c] = -u[c];
                    y[c] = sh_v[e][S.col(c)];
                }
                S.add(sh_w[RW ? e : 0], u);
            } else { // S ← S + k δᵀ,  δ = β (v − Sᵀ k)
                S.dot(sh_k[e], u);
#pragma unroll
                for (int c = 0; c < tile::COLS; ++c) {
                    y[c] = sh_beta[e]*(sh_v[e][S.col(c)] - u[c]);
                }
            }
            S.add(sh_k[e], y);

            if (++factor == a.n_h) { // o = scale · Sᵀ q
                S.dot(sh_q[e], u);
                S.put(b, h, begin, seq.first + n, u, a.scale, a.out);
                ++n;
                factor = 0;
                S.store(b, seq, h, begin, n);
            }
        }
    }
}
