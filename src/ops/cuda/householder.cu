#include "launch-cuda.cuh"
#include "launch-householder.cuh"

void cuda_householder_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    const path_gpu gpu = gpu_of(ctx);
    work_buffer    work(ctx, householder_work_floats(dst, gpu));
    launch_householder(dst, gpu, work.data, stream_launch{ ctx.stream() });
}
