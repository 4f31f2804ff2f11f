#include "launch-cuda.cuh"
#include "launch-signed.cuh"

void cuda_signed_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    const path_gpu gpu = gpu_of(ctx);
    work_buffer    work(ctx, signed_work_floats(dst, gpu));
    launch_signed(dst, gpu, work.data, stream_launch{ ctx.stream() });
}
