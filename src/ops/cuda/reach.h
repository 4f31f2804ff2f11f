#pragma once

// The part of ggml-cuda that our graphs reach. The rest is not compiled (cmake/ggml.cmake), and
// supports_op refuses it.

#include "ggml.h"

// Quantized matrices with kernels of their own. Others, such as Q3_K, are converted to F16 for each
// product.
constexpr bool ggml_lrnn_cuda_reaches_type(enum ggml_type type) {
    return type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1 ||
           type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K ||
           type == GGML_TYPE_Q6_K;
}

// Lengths of attention heads with tensor-core kernels; those of the published checkpoints of our
// families. attention.cu does the others.
constexpr bool ggml_lrnn_cuda_reaches_head(int64_t length) {
    return length == 64 || length == 128 || length == 256;
}

bool ggml_lrnn_cuda_reaches_op(enum ggml_op op);
