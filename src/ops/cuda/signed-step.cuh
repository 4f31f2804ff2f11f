#pragma once

// Signed-gate scan, token by token, with the state in registers.
//
//     S ← A_t ∘ S + b_t (f_t ∘ x_t)ᵀ ,   y_t = scale · Sᵀ c_t
//
// or, with a bonus, y_t = scale · (S + (bonus ∘ b_t) x_tᵀ)ᵀ c_t before the update.
//
// In most forms A_t is one number per head: 1, the gate, exp(dt A) or the gate f' of mLSTM, with
// f_t = 1, 1, dt or i', so one kernel serves all of them. Gates and normalizer of mLSTM are a
// separate recurrence, which runs first (mlstm_normalize below); here its results are the gate, the
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

CUDA_INLINE float signed_decay(float dt, float A, bool two_exp_m1) {
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
        UNROLL_BY(1) for (int e = tid / 32; e < TOKENS && t0 + e < last; e += n_warps) {
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
        UNROLL for (int i = 0; i < (ELEMENT ? tile::ROWS : 0); ++i) {
            UNROLL for (int n = 0; n < tile::COLS; ++n) {
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
                UNROLL for (int n = 0; n < tile::COLS; ++n) {
                    y[n] = 0.0f;
                }
                UNROLL for (int q = 0; q < tile::QUADS; ++q) {
                    const float4 u = sh_u[BONUS ? S.quad(q) : 0];
                    const float4 k = sh_b[z][e][S.quad(q)];
                    const float4 c = sh_c[z][e][S.quad(q)];
                    UNROLL for (int n = 0; n < tile::COLS; ++n) {
                        y[n] = fmaf(fmaf(u.x * k.x, x[n], S.S[n][4 * q + 0]), c.x, y[n]);
                        y[n] = fmaf(fmaf(u.y * k.y, x[n], S.S[n][4 * q + 1]), c.y, y[n]);
                        y[n] = fmaf(fmaf(u.z * k.z, x[n], S.S[n][4 * q + 2]), c.z, y[n]);
                        y[n] = fmaf(fmaf(u.w * k.w, x[n], S.S[n][4 * q + 3]), c.w, y[n]);
                    }
                }
                UNROLL for (int n = 0; n < tile::COLS; ++n) {
                    y[n] = tile::sum_rows(y[n]);
                }
            }
            if (ELEMENT) { // S ← A ∘ S
                float dt[tile::COLS];
                S.columns(sh_dt[z][ELEMENT ? e : 0], dt);
                UNROLL for (int n = 0; n < tile::COLS; ++n) {
                    x[n] *= dt[n];
                    UNROLL for (int i = 0; i < (ELEMENT ? tile::ROWS : 0); ++i) {
                        S.S[n][i] *= signed_decay(dt[n], A[n][i], a.two_exp_m1);
                    }
                }
            } else if (CHANNEL) {
                S.scale_rows(sh_g[z][CHANNEL ? e : 0]);
            } else {
                S.scale(sh_gate[e]);
                UNROLL for (int n = 0; n < tile::COLS; ++n) {
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

// ---- mLSTM --------------------------------------------------------------------------------------
//
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

enum { NORM_THREADS = 128, NORM_TOKENS = 16 };

// One token of the running maximum. Both exponents are in double. f' makes up for the rounding of
// m'; otherwise S·eᵐ would drift. In F32 a difference of 30 would give i' a relative error of 1e-6,
// and a state that began with m = 0 and has seen only small inputs consists of nothing else.
CUDA_INLINE void mlstm_gates(float log_f, float log_i, float * m, float * f, float * in) {
    const float m_new = fmaxf(log_f + *m, log_i);
    *f = (float) exp((double) log_f + (double) *m - (double) m_new);
    *in = (float) exp((double) log_i - (double) m_new);
    *m = m_new;
}

// Halves the tokens of a lane and doubles the lanes that are summed: 2·HALF values become HALF
template <int HALF> CUDA_INLINE void mlstm_fold(float x[NORM_TOKENS]) {
    const bool upper = ((int) threadIdx.x & 2 * HALF) != 0;
    UNROLL for (int t = 0; t < HALF; ++t) {
        const float mine = upper ? x[t + HALF] : x[t];
        const float give = upper ? x[t] : x[t + HALF];
        x[t] = mine + __shfl_xor_sync(0xFFFFFFFF, give, 2 * HALF);
    }
}

// Sums x[t] over the lanes of a warp; lane l gets the sum of token l / 2. 16 sums take 16 shuffles.
CUDA_INLINE float mlstm_sum(float x[NORM_TOKENS]) {
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
            UNROLL for (int t = 0; t < NORM_TOKENS; ++t) {
                row_b[t] = t < n_t ? in_b[(t0 + t) * a.b.token + i] : 0.0f;
                row_c[t] = t < n_t ? in_c[(t0 + t) * a.c.token + i] : 0.0f;
            }
            float n = norm[i];
            UNROLL for (int t = 0; t < NORM_TOKENS; ++t) {
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
