#pragma once

// Short convolution.
//
//     y_t[c] = f( bias[c] + Σ_w weight[w][c] · x_{t − (width − 1) + w}[c] )
//     y_t[c] = x_{t − 1}[c]                                                   token shift
//
// A block is one sequence and CONV_CHANNELS channels and computes CONV_TOKENS tokens in parallel.
// The old tail is read in place and replaced after the block has computed all outputs.

#include "lrnn-ops.h"

#include "scan-device.cuh"

enum { CONV_CHANNELS = 32, CONV_TOKENS = 8 };

struct conv_cuda_args {
    cuda_batch    batch; // d_k = width − 1, d_v = channels, one head
    const float * x;     // [tokens], rows of channels
    int64_t       x_token;
    const float * weight;     // [channels][width]; NULL: token shift
    const float * bias;       // NULL: none
    int           activation; // enum ggml_short_conv_activation
    float *       out;        // [tokens][channels]
};

// Channel c of input i of the sequence; i < 0 counts back into the tail.
static __device__ __forceinline__ float conv_input(
        const conv_cuda_args & a, const cuda_seq & seq, int64_t i, int c) {
    if (i >= 0) {
        return a.x[(seq.first + i) * a.x_token + c];
    }
    return seq.slot_in < 0
                   ? 0.0f
                   : cuda_head(a.batch, seq.slot_in, 0)[(a.batch.d_k + i) * a.batch.d_v + c];
}

static __device__ __forceinline__ float conv_activate(int activation, float x) {
    switch (activation) {
        case GGML_SHORT_CONV_SILU: return __fdiv_rn(x, 1.0f + cuda_exp(-x));
        default: return x;
    }
}

// grid: (sequences, groups of channels), block: (CONV_CHANNELS, CONV_TOKENS)
static __global__ void __launch_bounds__(CONV_CHANNELS * CONV_TOKENS)
        short_conv(const conv_cuda_args a) {
    const cuda_batch & b = a.batch;
    cuda_wait();

    const int  begin = (int) blockIdx.y * CONV_CHANNELS;
    const int  c     = begin + (int) threadIdx.x;
    const bool there = c < b.d_v;

    cuda_seq seq;
    if (!cuda_seq_get(b, (int) blockIdx.x, &seq)) {
        if (there && threadIdx.y == 0) {
            cuda_fill_nan(b, seq, 0, c, c + 1, a.out, 0, 1);
        }
        return;
    }

    for (int64_t n = threadIdx.y; there && n < seq.count; n += CONV_TOKENS) {
        float * y = a.out + (seq.first + n) * b.d_v + c;
        if (a.weight == nullptr) {
            *y = conv_input(a, seq, n - 1, c);
            continue;
        }
        float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
        for (int w = 0; w <= b.d_k; ++w) {
            sum = fmaf(a.weight[(int64_t) c * (b.d_k + 1) + w],
                    conv_input(a, seq, n - b.d_k + w, c), sum);
        }
        *y = conv_activate(a.activation, sum);
    }
    __syncthreads();

    // The tails after all but the last `back` tokens. The one that replaces the old tail is written
    // last, in ascending order: element w comes from element w + count − back of the old tail, or
    // from an input.
    for (int last = 0; there && threadIdx.y == 0 && last < 2; ++last) {
        for (int64_t back = 0; back <= b.n_snap && back <= seq.count; ++back) {
            const int slot = cuda_slot_after(b, seq, seq.count - back);
            if (slot < 0 || (slot == seq.slot_in) != (last == 1)) {
                continue;
            }
            for (int w = 0; w < b.d_k; ++w) {
                cuda_head(b, slot, 0)[(int64_t) w * b.d_v + c] =
                        conv_input(a, seq, seq.count - back - b.d_k + w, c);
            }
        }
    }
}
