// What ggml-cuda asks about our ops: whether it can run one, and to run it.

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

// True if the kernels can write this buffer. Which card it is on, ggml-cuda has compared for all
// sources by now.
static bool on_card(const ggml_backend_buffer_t buffer) {
    const ggml_backend_dev_t dev =
            ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer));
    return !ggml_backend_buffer_is_host(buffer) && dev != nullptr &&
           ggml_backend_dev_backend_reg(dev) == ggml_backend_cuda_reg();
}

// Every shape that a builder lets through can be computed here, if it fits a grid. The state must
// lie in the memory of a card: the scheduler would hand over a copy of any other, and the update
// would be lost.
bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op) {
    const ggml_tensor * state = op->src[SCAN_SRC_STATE];
    if (state->view_src != nullptr) {
        state = state->view_src;
    }
    return launch_fits(op) && (state->buffer == nullptr || on_card(state->buffer));
}
