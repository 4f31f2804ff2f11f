#pragma once

// GGML_OP_LSTM_SCAN: the kernel, and from the node to it.
//
//     (i, f, z, o) = x_t + Rᵀ y
//     LSTM    c ← σ(f) c + σ(i) tanh(z) ,        y = σ(o) tanh(c)
//     sLSTM   m' = max(log σ(f) + m, i) ,        with n = 0: m' = i
//             f' = exp(log σ(f) + m − m') ,      i' = exp(i − m') ,      both at most 1
//             c ← f' c + i' tanh(z) ,            n ← f' n + i' ,     y = σ(o) c / n
//
// A block is one head of one sequence; a thread has elements j, j + blockDim, … of it and keeps
// their cells in registers. All threads need the whole y of the token before. They read it from the
// output, and at the first token from the state.

#include "lrnn-ops.h"

#include "launch.cuh"

enum { LSTM_WARPS = 16, LSTM_THREADS = 32 * LSTM_WARPS, LSTM_MAX_ELEMENTS = 4 };

struct lstm_cuda_args {
    cuda_batch    batch; // d_k: rows of the state, 2 or 4; d_v = d
    cuda_rows     x;     // [d, H, 4, T]
    const float * R;     // [H][d][4·d]
    float *       out;   // [T][H][d]
};

struct lstm_cell {
    float y, c, n, m;
};

CUDA_INLINE float lstm_sigmoid(float x) {
    return __fdiv_rn(1.0f, 1.0f + cuda_exp(-x));
}

// (1 − e)/(1 + e), e = exp(−2|x|)
CUDA_INLINE float lstm_tanh(float x) {
    const float e = cuda_exp(-2.0f * fabsf(x));
    const float t = __fdiv_rn(1.0f - e, 1.0f + e);
    return x < 0.0f ? -t : t;
}

// log σ(x) = min(x, 0) − log(1 + e), e = exp(−|x|);
// log(1 + e) = 2 s (1 + s²/3 + s⁴/5 + …), s = e/(2 + e) ≤ 1/3
CUDA_INLINE float lstm_log_sigmoid(float x) {
    const float e = cuda_exp(-fabsf(x));
    const float s = __fdiv_rn(e, 2.0f + e), s2 = s * s;
    float       p = 1.0f / 13.0f;
    p = fmaf(p, s2, 1.0f / 11.0f);
    p = fmaf(p, s2, 1.0f / 9.0f);
    p = fmaf(p, s2, 1.0f / 7.0f);
    p = fmaf(p, s2, 1.0f / 5.0f);
    p = fmaf(p, s2, 1.0f / 3.0f);
    p = fmaf(p, s2, 1.0f);
    return (x < 0.0f ? x : 0.0f) - 2.0f * s * p;
}

template <bool SLSTM>
CUDA_INLINE void lstm_step(lstm_cell & s, float i, float f, float z, float o) {
    if constexpr (SLSTM) {
        const float log_f = lstm_log_sigmoid(f) + s.m;
        const float m = s.n == 0.0f || i > log_f ? i : log_f;
        const float keep = cuda_exp(m > log_f ? log_f - m : 0.0f); // at the first token m < log_f
        const float add = cuda_exp(i - m);
        s.c = fmaf(keep, s.c, add * lstm_tanh(z));
        s.n = fmaf(keep, s.n, add);
        s.m = m;
        s.y = __fdiv_rn(lstm_sigmoid(o) * s.c, s.n);
    } else {
        s.c = fmaf(lstm_sigmoid(f), s.c, lstm_sigmoid(i) * lstm_tanh(z));
        s.y = lstm_sigmoid(o) * lstm_tanh(s.c);
    }
}

template <bool SLSTM>
CUDA_INLINE void lstm_store(const cuda_batch & b, int slot, int h, int j, const lstm_cell & s) {
    if (slot >= 0) {
        float * to = cuda_head(b, slot, h) + j;
        to[0] = s.y;
        to[b.d_v] = s.c;
        if constexpr (SLSTM) {
            to[2 * (int64_t) b.d_v] = s.n;
            to[3 * (int64_t) b.d_v] = s.m;
        }
    }
}

// grid: sequences × heads, block: LSTM_THREADS or fewer; ELEMENTS · blockDim is at least d
template <bool SLSTM, int ELEMENTS>
static __global__ void __launch_bounds__(LSTM_THREADS, 1) lstm_scan(const lstm_cuda_args a) {
    const cuda_batch & b = a.batch;
    const int          h = (int) blockIdx.x % b.n_head;
    const int          d = b.d_v;
    const int          stride = (int) blockDim.x;
    const int64_t      row = 4 * (int64_t) d; // of R
    cuda_wait();

    cuda_seq seq;
    if (!cuda_seq_get(b, (int) blockIdx.x / b.n_head, &seq)) {
        cuda_fill_nan(b, seq, h, 0, d, a.out, (int) threadIdx.x, stride);
        return;
    }
    const float * last = seq.slot_in < 0 ? nullptr : cuda_head(b, seq.slot_in, h); // y
    lstm_cell     cells[ELEMENTS];
    UNROLL for (int e = 0; e < ELEMENTS; ++e) {
        const int j = (int) threadIdx.x + e * stride;
        cells[e] = { 0.0f, 0.0f, 0.0f, 0.0f };
        if (j < d) {
            if (last != nullptr) {
                cells[e].y = last[j];
                cells[e].c = last[d + j];
                cells[e].n = SLSTM ? last[2 * (int64_t) d + j] : 0.0f;
                cells[e].m = SLSTM ? last[3 * (int64_t) d + j] : 0.0f;
            }
            lstm_store<SLSTM>(b, cuda_slot_after(b, seq, 0), h, j, cells[e]);
        }
    }
    for (int64_t done = 0; done < seq.count; ++done) {
        const int64_t t = seq.first + done;
        float         gates[ELEMENTS][4] = {};
        UNROLL for (int e = 0; e < ELEMENTS; ++e) {
            const int j = (int) threadIdx.x + e * stride;
            if (j < d) {
                UNROLL for (int g = 0; g < 4; ++g) {
                    gates[e][g] = cuda_row(a.x, h, g, t)[j];
                }
                const float * r = a.R + (int64_t) h * d * row + j;
                for (int k = 0; last != nullptr && k < d; ++k, r += row) {
                    UNROLL for (int g = 0; g < 4; ++g) {
                        gates[e][g] = fmaf(r[(int64_t) g * d], last[k], gates[e][g]);
                    }
                }
            }
        }
        if (done == 0) { // the state may be replaced from here on
            __syncthreads();
        }
        float * y = a.out + (t * b.n_head + h) * d;
        UNROLL for (int e = 0; e < ELEMENTS; ++e) {
            const int j = (int) threadIdx.x + e * stride;
            if (j < d) {
                lstm_step<SLSTM>(cells[e], gates[e][0], gates[e][1], gates[e][2], gates[e][3]);
                y[j] = cells[e].y;
                lstm_store<SLSTM>(b, cuda_slot_after(b, seq, done + 1), h, j, cells[e]);
            }
        }
        __syncthreads();
        last = y;
    }
}

static inline bool lstm_fits(const struct ggml_tensor * op) {
    return ggml_scan_dims_get(op).d_v <= LSTM_THREADS * LSTM_MAX_ELEMENTS;
}

template <typename Launch>
static void launch_lstm(const struct ggml_tensor * dst, Launch && launch) {
    const struct scan_dims dims = ggml_scan_dims_get(dst);
    lstm_cuda_args         args;
    args.batch = cuda_batch_of(dst);
    args.x = cuda_rows_of(dst->src[LSTM_SRC_X], dims.n_head);
    args.R = (const float *) dst->src[LSTM_SRC_R]->data;
    args.out = (float *) dst->data;

    const bool     slstm = ggml_scan_params_get(dst).form == GGML_LSTM_SCAN_SLSTM;
    const int64_t  warps = (dims.d_v + 31) / 32;
    const unsigned threads = 32 * (unsigned) (warps < LSTM_WARPS ? warps : (int64_t) LSTM_WARPS);
    const dim3     grid((unsigned) (dims.n_seqs * dims.n_head));
    with_constant<1, 2, LSTM_MAX_ELEMENTS>((dims.d_v + threads - 1) / threads, [&](auto n) {
        constexpr int ELEMENTS = decltype(n)::value;
        if (slstm) {
            launch(lstm_scan<true, ELEMENTS>, grid, dim3(threads), args);
        } else {
            launch(lstm_scan<false, ELEMENTS>, grid, dim3(threads), args);
        }
    });
}
