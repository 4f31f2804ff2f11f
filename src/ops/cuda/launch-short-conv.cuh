#pragma once

// GGML_OP_SHORT_CONV: the kernel, and from the node to it.
//
//     y_t[c] = f( bias[c] + Σ_w weight[w][c] · x_{t − (width − 1) + w}[c] )
//     y_t[c] = x_{t − 1}[c]                                                   token shift
//
// A block is CONV_PIECE tokens of one sequence and CONV_CHANNELS channels. A thread has one channel
// of CONV_RUN tokens in a row, so it reads each input once. Only the first block of a sequence
// reads the old tail, and it alone writes the tails, after its outputs: they need only inputs and
// the old tail.

#include "lrnn-ops.h"

#include "launch.cuh"

enum {
    CONV_CHANNELS = 32,
    CONV_THREADS = 8, // per channel
    CONV_RUN = 8,
    CONV_PIECE = CONV_THREADS * CONV_RUN,
};

struct conv_cuda_args {
    cuda_batch    batch; // d_k = width − 1, d_v = channels, one head
    const float * x;     // [tokens], rows of channels
    int64_t       x_token;
    const float * weight;     // [channels][width]; NULL: token shift
    bool          aligned;    // weight starts at a multiple of 16 bytes
    const float * bias;       // NULL: none
    int           activation; // enum ggml_short_conv_activation
    float *       out;        // [tokens][channels]
    int           n_seqs;
    int64_t       piece; // tokens per block: CONV_PIECE; INT32_MAX: a block has a sequence
};

// Channel c of input i of the sequence; i < 0 counts back into the tail.
CUDA_INLINE float conv_input(const conv_cuda_args & a, const cuda_seq & seq, int64_t i, int c) {
    if (i >= 0) {
        return a.x[(seq.first + i) * a.x_token + c];
    }
    return seq.slot_in < 0
                   ? 0.0f
                   : cuda_head(a.batch, seq.slot_in, 0)[(a.batch.d_k + i) * a.batch.d_v + c];
}

CUDA_INLINE float conv_activate(int activation, float x) {
    switch (activation) {
        case GGML_SHORT_CONV_SILU: return __fdiv_rn(x, 1.0f + cuda_exp(-x));
        default: return x;
    }
}

template <int WIDTH>
CUDA_INLINE void conv_weights(const conv_cuda_args & a, int c, float weight[WIDTH]) {
    const float * from = a.weight + (int64_t) c * WIDTH;
    if constexpr (WIDTH == 4) {
        if (a.aligned) {
            const float4 four = cuda_load_four(from);
            weight[0] = four.x;
            weight[1] = four.y;
            weight[2] = four.z;
            weight[3] = four.w;
            return;
        }
    }
    UNROLL for (int w = 0; w < WIDTH; ++w) {
        weight[w] = from[w];
    }
}

// Tokens [begin, end) of a sequence, at most RUN of them, for one channel. WIDTH: a.batch.d_k + 1,
// or 0 for any; a token shift has 2.
template <int WIDTH, int RUN>
CUDA_INLINE void conv_run(
        const conv_cuda_args & a, const cuda_seq & seq, int64_t begin, int64_t end, int c) {
    const cuda_batch & b = a.batch;
    const float        bias = a.bias != nullptr ? a.bias[c] : 0.0f;
    float *            y = a.out + (seq.first + begin) * b.d_v + c;
    if constexpr (WIDTH == 0) {
        for (int64_t n = begin; n < end; ++n, y += b.d_v) {
            float sum = bias;
            for (int w = 0; w <= b.d_k; ++w) {
                sum = fmaf(a.weight[(int64_t) c * (b.d_k + 1) + w],
                        conv_input(a, seq, n - b.d_k + w, c), sum);
            }
            *y = conv_activate(a.activation, sum);
        }
    } else {
        constexpr int TAIL = WIDTH - 1;
        const int     n = (int) (end - begin);
        const bool    shift = WIDTH == 2 && a.weight == nullptr; // needs no input of its last token
        const float * from = a.x + (seq.first + begin) * a.x_token + c;

        float x[RUN + TAIL]; // input begin − TAIL and those after it
        UNROLL for (int i = 0; i < TAIL; ++i) {
            x[i] = conv_input(a, seq, begin - TAIL + i, c);
        }
        UNROLL for (int i = 0; i < RUN; ++i, from += a.x_token) {
            x[TAIL + i] = i + shift < n ? *from : 0.0f;
        }
        if (shift) {
            UNROLL for (int i = 0; i < RUN; ++i, y += b.d_v) {
                if (i < n) {
                    *y = x[i];
                }
            }
            return;
        }
        float weight[WIDTH];
        conv_weights<WIDTH>(a, c, weight);
        UNROLL for (int i = 0; i < RUN; ++i, y += b.d_v) {
            if (i < n) {
                float sum = bias;
                UNROLL for (int w = 0; w < WIDTH; ++w) {
                    sum = fmaf(weight[w], x[i + w], sum);
                }
                *y = conv_activate(a.activation, sum);
            }
        }
    }
}

// grid: (maximum number of pieces, groups of channels)
// block: (CONV_CHANNELS, CONV_THREADS or fewer)
template <int WIDTH>
static __global__ void __launch_bounds__(CONV_CHANNELS * CONV_THREADS)
        short_conv(const conv_cuda_args a) {
    const cuda_batch & b = a.batch;
    cuda_wait();

    const int  c = (int) blockIdx.y * CONV_CHANNELS + (int) threadIdx.x;
    const bool there = c < b.d_v;

    // a sequence that is empty or out of range is one piece
    cuda_seq seq;
    int      piece = 0;
    int      s = (int) blockIdx.x;
    if (a.piece == CONV_PIECE && a.n_seqs == 1) {
        s = 0;
        piece = (int) blockIdx.x;
    } else if (a.piece == CONV_PIECE) {
        s = cuda_find_piece(a.n_seqs, (int) blockIdx.x, &piece, [&](int i) {
            const bool some = cuda_seq_get(b, i, &seq) && seq.count > 0;
            return some ? (int) ((seq.count - 1) / CONV_PIECE) + 1 : 1;
        });
    }
    if (s < 0) {
        return;
    }
    if (!cuda_seq_get(b, s, &seq)) {
        if (there && threadIdx.y == 0 && piece == 0) {
            cuda_fill_nan(b, seq, 0, c, c + 1, a.out, 0, 1);
        }
        return;
    }

    const int64_t begin = piece * a.piece;
    const int64_t end = seq.count - begin < a.piece ? seq.count : begin + a.piece;
    if (there && end - begin == 1 && threadIdx.y == 0) { // generation
        conv_run<WIDTH, 1>(a, seq, begin, end, c);
    } else if (end - begin > 1) {
        const int step = (int) blockDim.y * CONV_RUN;
        for (int64_t n = begin + threadIdx.y * CONV_RUN; there && n < end; n += step) {
            conv_run<WIDTH, CONV_RUN>(a, seq, n, end - n < CONV_RUN ? end : n + CONV_RUN, c);
        }
    }
    if (piece > 0) {
        return;
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

template <typename Launch>
static void launch_short_conv(const struct ggml_tensor * dst, Launch && launch) {
    const struct scan_dims     dims = ggml_scan_dims_get(dst);
    const struct ggml_tensor * x = dst->src[CONV_SRC_X];
    const struct ggml_tensor * weight = dst->src[CONV_SRC_WEIGHT];
    const struct ggml_tensor * bias = dst->src[CONV_SRC_BIAS];

    conv_cuda_args args;
    args.batch = cuda_batch_of(dst);
    args.x = (const float *) x->data;
    args.x_token = (int64_t) (x->nb[1] / sizeof(float));
    args.weight = weight != nullptr ? (const float *) weight->data : nullptr;
    args.aligned = (uintptr_t) args.weight % 16 == 0;
    args.bias = bias != nullptr ? (const float *) bias->data : nullptr;
    args.activation = ggml_scan_params_get(dst).activation;
    args.out = (float *) dst->data;

    // The lengths are on the device. Unless a sequence is empty, none is longer than this. A tail
    // that is longer than a piece is read by one block.
    const int64_t longest = dims.n_tokens - dims.n_seqs + 1;
    const bool    whole = longest <= CONV_PIECE || dims.d_k > CONV_PIECE;
    const int64_t runs = longest < CONV_RUN ? 1 : (longest + CONV_RUN - 1) / CONV_RUN;
    const int64_t threads = runs < CONV_THREADS ? runs : (int64_t) CONV_THREADS;

    // The maximum for any batch: the full pieces, and one partial or empty piece per sequence
    args.n_seqs = (int) dims.n_seqs;
    args.piece = whole ? INT32_MAX : (int64_t) CONV_PIECE;
    const unsigned pieces = (unsigned) (dims.n_tokens / args.piece + dims.n_seqs);
    const unsigned channels = (unsigned) ((dims.d_v + CONV_CHANNELS - 1) / CONV_CHANNELS);
    const dim3     grid(pieces, channels);
    const dim3     block(CONV_CHANNELS, (unsigned) threads);
    switch (dims.d_k + 1) {
        case 2: launch(short_conv<2>, grid, block, args); break;
        case 3: launch(short_conv<3>, grid, block, args); break;
        case 4: launch(short_conv<4>, grid, block, args); break;
        default: launch(short_conv<0>, grid, block, args); break;
    }
}
