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
        case GGML_OP_LSTM_SCAN: cuda_lstm_scan(ctx, dst); return true;
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

// The kernels support every shape that a builder accepts, if it fits a grid; the LSTM scan has
// limits of its own. The state must be in the memory of a CUDA device: the scheduler would copy any
// other state, and the update of the copy would be lost.
bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op) {
    const ggml_tensor * state = op->src[SCAN_SRC_STATE];
    if (state->view_src != nullptr) {
        state = state->view_src;
    }
    return (op->op != GGML_OP_LSTM_SCAN || cuda_lstm_fits(op)) && launch_fits(op) &&
           (state->buffer == nullptr || on_cuda_device(state->buffer));
}

// nvcc lists the architectures of a build in ascending order: 10 times their number
static int cuda_oldest() {
    const int all[] = { __CUDA_ARCH_LIST__ };
    return all[0] / 10;
}

bool ggml_lrnn_cuda_is_too_old(ggml_backend_dev_t dev, int * found, int * oldest) {
    const ggml_backend_reg_t reg = ggml_backend_cuda_reg();
    *oldest = cuda_oldest();
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
        if (ggml_backend_reg_dev_get(reg, i) == dev) {
            *found = ggml_cuda_info().devices[i].cc / 10;
            return *found < *oldest;
        }
    }
    return false;
}
