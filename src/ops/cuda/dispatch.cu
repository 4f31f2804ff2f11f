// What ggml-cuda asks about our ops. There is no kernel for CUDA: every op is refused, and the scheduler places it on the CPU.

#include "glue.h"

#include "ggml-cuda/common.cuh"

bool ggml_lrnn_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    GGML_UNUSED(ctx);
    GGML_UNUSED(dst);
    return false;
}

bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op) {
    GGML_UNUSED(op);
    return false;
}
