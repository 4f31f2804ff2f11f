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

    const unsigned groups = (unsigned) ((dims.d_v + CONV_CHANNELS - 1) / CONV_CHANNELS);
    launch(short_conv, dim3((unsigned) dims.n_seqs, groups), dim3(CONV_CHANNELS, CONV_TOKENS),
            args);
}
