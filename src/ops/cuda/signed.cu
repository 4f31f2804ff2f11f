#include "launch-cuda.cuh"
#include "launch-signed.cuh"

void cuda_signed_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    launch_signed(dst, stream_launch{ ctx.stream() });
}
