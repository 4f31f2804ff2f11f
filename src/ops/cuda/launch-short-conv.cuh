#pragma once

// GGML_OP_SHORT_CONV: from the node to its kernel.

#include "launch.cuh"
#include "short-conv.cuh"

template <typename Launch>
static void launch_short_conv(const struct ggml_tensor * dst, Launch && launch) {
    const struct scan_dims     dims   = scan_dims_get(dst);
    const struct ggml_tensor * x      = dst->src[CONV_SRC_X];
    const struct ggml_tensor * weight = dst->src[CONV_SRC_WEIGHT];
    const struct ggml_tensor * bias   = dst->src[CONV_SRC_BIAS];

    conv_cuda_args args;
    args.batch      = cuda_batch_of(dst);
    args.x          = (const float *) x->data;
    args.x_token    = (int64_t) (x->nb[1] / sizeof(float));
    args.weight     = weight != nullptr ? (const float *) weight->data : nullptr;
    args.bias       = bias != nullptr ? (const float *) bias->data : nullptr;
    args.activation = scan_params_get(dst).activation;
    args.out        = (float *) dst->data;

    // The lengths are on the device. This is the maximum for any batch: the full pieces, and one
    // partial or empty piece per sequence.
    args.n_seqs             = (int) dims.n_seqs;
    args.piece              = dims.d_k <= CONV_PIECE ? (int64_t) CONV_PIECE : INT32_MAX;
    const unsigned pieces   = (unsigned) (dims.n_tokens / args.piece + dims.n_seqs);
    const unsigned channels = (unsigned) ((dims.d_v + CONV_CHANNELS - 1) / CONV_CHANNELS);
    const dim3     grid(pieces, channels);
    const dim3     block(CONV_CHANNELS, CONV_THREADS);
    switch (dims.d_k + 1) {
        case 2: launch(short_conv<2>, grid, block, args); break;
        case 3: launch(short_conv<3>, grid, block, args); break;
        case 4: launch(short_conv<4>, grid, block, args); break;
        default: launch(short_conv<0>, grid, block, args); break;
    }
}
