#include "launch-cuda.cuh"
#include "launch-short-conv.cuh"

void cuda_short_conv(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    launch_short_conv(dst, stream_launch{ ctx.stream() });
}
