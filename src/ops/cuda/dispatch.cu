// The CUDA side of the glue: whether ggml-cuda can run a node, and running it.

#include "launch-cuda.cuh"

#include "ggml-backend.h"
#include "ggml-cuda.h"
#include "glue.h"

bool ggml_lrnn_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    switch (dst->op) {
        case GGML_OP_HOUSEHOLDER_SCAN: cuda_householder_scan(ctx, dst); return true;
        case GGML_OP_SIGNED_SCAN: cuda_signed_scan(ctx, dst); return true;
        case GGML_OP_SHORT_CONV: cuda_short_conv(ctx, dst); return true;
        default: return false;
    }
}

// True if the kernels can write this buffer. ggml-cuda has already checked that all sources are on
// the same device.
static bool on_cuda_device(const ggml_backend_buffer_t buffer) {
    const ggml_backend_dev_t dev =
            ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer));
    return !ggml_backend_buffer_is_host(buffer) && dev != nullptr &&
           ggml_backend_dev_backend_reg(dev) == ggml_backend_cuda_reg();
}

// The kernels support every shape that a builder accepts, if it fits a grid. The state must be in
// the memory of a CUDA device: the scheduler would copy any other state, and the update of the copy
// would be lost.
bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op) {
    const ggml_tensor * state = op->src[SCAN_SRC_STATE];
    if (state->view_src != nullptr) {
        state = state->view_src;
    }
    return launch_fits(op) && (state->buffer == nullptr || on_cuda_device(state->buffer));
}
