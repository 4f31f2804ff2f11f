#include "launch-cuda.cuh"
#include "launch-lstm.cuh"

void cuda_lstm_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    launch_lstm(dst, stream_launch{ ctx.stream() });
}

bool cuda_lstm_fits(const ggml_tensor * op) {
    return lstm_fits(op);
}
