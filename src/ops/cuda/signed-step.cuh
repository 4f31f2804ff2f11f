#pragma once

// Signed-gate scan, token by token, with the state in registers.
//
//     S ← A_t ∘ S + b_t (f_t ∘ x_t)ᵀ ,   y_t = scale · Sᵀ c_t
//
// or, with a bonus, y_t = scale · (S + (bonus ∘ b_t) x_tᵀ)ᵀ c_t before the update.
//
// In most forms A_t is one number per head: 1, the gate, exp(dt A) or the gate f' of mLSTM, with
// f_t = 1, 1, dt or i', so one kernel serves all of them. Gates and normalizer of mLSTM are a
// separate recurrence, which runs first (mlstm-normalize.cuh); here its results are the gate, the
// multiplier of x and the divisor of y.

#include "scan-common.h"

#include "scan-device.cuh"

struct signed_cuda_args {
    cuda_batch    batch;
    cuda_rows     c, b, x;
    cuda_rows     gate;  // gate, dt or f'; log_f for mlstm_normalize
    cuda_rows     aux;   // bonus or i'; log_i for mlstm_normalize
    cuda_rows     below; // divisor of y; NULL: none
    const float * A;     // [d_v, d_k, heads] or [1, 1, heads], strides in floats
    int64_t       A_col, A_row, A_head;
    int           A_share;
    int           kind; // enum signed_scan_kind
    bool          two_exp_m1;
    float         scale, eps;
    float *       out;   // [tokens][heads][d_v]
    float *       mlstm; // [3][heads][tokens]: f', i' and the divisor of y
};

static __device__ __forceinline__ float signed_decay(float dt, float A, bool two_exp_m1) {
    const float e = cuda_exp(dt * A);
    return two_exp_m1 ? fmaf(2.0f, e, -1.0f) : e;
}

enum signed_cuda_mode { SIGNED_MODE_HEAD, SIGNED_MODE_CHANNEL, SIGNED_MODE_ELEMENT };

// grid: (sequences · heads, column groups), block: 32 · warps
template <int DK, int MODE, bool BONUS>
static __global__ void __launch_bounds__(cuda_tile<DK>::THREADS,
        cuda_tile<DK>::MIN_BLOCKS - (MODE == SIGNED_MODE_ELEMENT)) // room for A
        signed_step(const signed_cuda_args a) {
    using tile = cuda_tile<DK>;
    constexpr int  TOKENS = tile::FACTORS;
    constexpr bool HEAD = MODE == SIGNED_MODE_HEAD;
    constexpr bool CHANNEL = MODE == SIGNED_MODE_CHANNEL;
    constexpr bool ELEMENT = MODE == SIGNED_MODE_ELEMENT;

    // two buffers: one is used while the other is filled
    __shared__ float4 sh_c[2][TOKENS][DK / 4];
    __shared__ float4 sh_b[2][TOKENS][DK / 4];
    __shared__ float4 sh_g[2][CHANNEL ? TOKENS : 1][DK / 4];
    __shared__ float4 sh_x[2][TOKENS][tile::MAX_COLS / 4];
    __shared__ float4 sh_dt[2][ELEMENT ? TOKENS : 1][tile::MAX_COLS / 4];
    __shared__ float  sh_raw[2][TOKENS];   // gate, dt or f'
    __shared__ float  sh_aux[2][TOKENS];   // i'
    __shared__ float  sh_below[2][TOKENS]; // divisor of y

    __shared__ float4 sh_u[BONUS ? DK / 4 : 1]; // bonus
    __shared__ float  sh_gate[TOKENS];
    __shared__ float  sh_in[TOKENS]; // f_t

    const cuda_batch & b = a.batch;
    cuda_wait();

    const int h = (int) (blockIdx.x % b.n_head);
    const int n_thr = (int) blockDim.x;
    const int tid = (int) threadIdx.x;
    const int width = n_thr / 32 * tile::WARP_COLS;
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
    const int64_t last = seq.first + seq.count;

    // rows of keys, and columns of this block
    const auto copy_keys = [&](float4 * to, const cuda_rows & from, int64_t t) {
        cuda_copy_row<DK>(to, cuda_row(from, h, 0, t), b.d_k, DK, from.aligned);
    };
    const auto copy_columns = [&](float4 * to, const cuda_rows & from, int64_t t) {
        cuda_copy_row<tile::MAX_COLS>(
                to, cuda_row(from, h, 0, t) + begin, end - begin, width, from.aligned);
    };

    // starts to copy up to TOKENS tokens from t0 into buffer z: each warp copies every n_warps-th
    const int  n_warps = n_thr / 32;
    const auto fetch = [&](int64_t t0, int z) {
#pragma unroll 1
        for (int e = tid / 32; e < TOKENS && t0 + e < last; e += n_warps) {
            copy_keys(sh_b[z][e], a.b, t0 + e);
            copy_keys(sh_c[z][e], a.c, t0 + e);
            copy_columns(sh_x[z][e], a.x, t0 + e);
            if (CHANNEL) {
                copy_keys(sh_g[z][CHANNEL ? e : 0], a.gate, t0 + e);
            }
            if (ELEMENT) {
                copy_columns(sh_dt[z][ELEMENT ? e : 0], a.gate, t0 + e);
            }
        }
        if (HEAD && tid < TOKENS && t0 + tid < last && a.kind != SIGNED_SCAN_NONE) {
            cuda_copy(&sh_raw[z][tid], cuda_row(a.gate, h, 0, t0 + tid), true);
            if (a.kind == SIGNED_SCAN_MLSTM) {
                cuda_copy(&sh_aux[z][tid], cuda_row(a.aux, h, 0, t0 + tid), true);
                cuda_copy(&sh_below[z][tid], cuda_row(a.below, h, 0, t0 + tid), true);
            }
        }
        cuda_copy_commit();
    };
    if (BONUS && tid < 32) {
        copy_keys(sh_u, a.aux, 0);
    }
    fetch(seq.first, 0);

    tile S;
    S.place();
    S.load(b, seq, h, begin);
    S.store(b, seq, h, begin, 0);

    float A[tile::COLS][ELEMENT ? tile::ROWS : 1];
    if (ELEMENT) {
#pragma unroll
        for (int i = 0; i < (ELEMENT ? tile::ROWS : 0); ++i) {
#pragma unroll
            for (int n = 0; n < tile::COLS; ++n) {
                const int r = S.row(i / 4, i % 4);
                const int j = begin + S.col(n);
                A[n][i] = r < b.d_k && j < b.d_v
                                  ? a.A[(h / a.A_share) * a.A_head + r * a.A_row + j * a.A_col]
                                  : 0.0f;
            }
        }
    }
    const bool mlstm = HEAD && a.kind == SIGNED_SCAN_MLSTM;
    int        z = 0; // buffer in use

    for (int64_t n0 = 0; n0 < seq.count; n0 += TOKENS, z = 1 - z) {
        const int     n_now = seq.count - n0 < TOKENS ? (int) (seq.count - n0) : TOKENS;
        const int64_t t0 = seq.first + n0;

        fetch(t0 + TOKENS, 1 - z);
        cuda_copy_wait<1>();
        __syncthreads();

        if (HEAD) {
            if (tid < n_now) {
                const float gate = a.kind == SIGNED_SCAN_NONE ? 1.0f : sh_raw[z][tid];
                const bool  ssm = a.kind == SIGNED_SCAN_SCALAR;
                sh_gate[tid] =
                        ssm ? signed_decay(gate, a.A[(h / a.A_share) * a.A_head], a.two_exp_m1)
                            : gate;
                sh_in[tid] = ssm ? gate : mlstm ? sh_aux[z][tid] : 1.0f;
            }
            __syncthreads();
        }

        for (int e = 0; e < n_now; ++e) {
            float x[tile::COLS];
            float y[tile::COLS];
            S.columns(sh_x[z][e], x);
            if (BONUS) { // y = Σ_i (S + (bonus ∘ b) xᵀ) c
#pragma unroll
                for (int n = 0; n < tile::COLS; ++n) {
                    y[n] = 0.0f;
                }
#pragma unroll
                for (int q = 0; q < tile::QUADS; ++q) {
                    const float4 u = sh_u[BONUS ? S.quad(q) : 0];
                    const float4 k = sh_b[z][e][S.quad(q)];
                    const float4 c = sh_c[z][e][S.quad(q)];
#pragma unroll
                    for (int n = 0; n < tile::COLS; ++n) {
                        y[n] = fmaf(fmaf(u.x * k.x, x[n], S.S[n][4 * q + 0]), c.x, y[n]);
                        y[n] = fmaf(fmaf(u.y * k.y, x[n], S.S[n][4 * q + 1]), c.y, y[n]);
                        y[n] = fmaf(fmaf(u.z * k.z, x[n], S.S[n][4 * q + 2]), c.z, y[n]);
                        y[n] = fmaf(fmaf(u.w * k.w, x[n], S.S[n][4 * q + 3]), c.w, y[n]);
                    }
                }
#pragma unroll
                for (int n = 0; n < tile::COLS; ++n) {
                    y[n] = tile::sum_rows(y[n]);
                }
            }
            if (ELEMENT) { // S ← A ∘ S
                float dt[tile::COLS];
                S.columns(sh_dt[z][ELEMENT ? e : 0], dt);
#pragma unroll
                for (int n = 0; n < tile::COLS; ++n) {
                    x[n] *= dt[n];
#pragma unroll
                    for (int i = 0; i < (ELEMENT ? tile::ROWS : 0); ++i) {
                        S.S[n][i] *= signed_decay(dt[n], A[n][i], a.two_exp_m1);
                    }
                }
            } else if (CHANNEL) {
                S.scale_rows(sh_g[z][CHANNEL ? e : 0]);
            } else {
                S.scale(sh_gate[e]);
#pragma unroll
                for (int n = 0; n < tile::COLS; ++n) {
                    x[n] *= sh_in[e];
                }
            }
            S.add(sh_b[z][e], x); // S ← S + b xᵀ
            if (!BONUS) {
                S.dot(sh_c[z][e], y);
            }
            S.put(b, h, begin, t0 + e, y, a.scale, mlstm, mlstm ? sh_below[z][e] : 1.0f, a.out);
            S.store(b, seq, h, begin, n0 + e + 1);
        }
        __syncthreads(); // all threads have used these tokens
    }
    cuda_copy_wait<0>(); // without tokens, the copy of the bonus is still pending
}
