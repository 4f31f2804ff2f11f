#pragma once

// GGML_OP_SHORT_CONV: from the node to its kernel.

#include "launch.cuh"
#include "short-conv.cuh"

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
