#include "launch-cuda.cuh"
#include "launch-householder.cuh"

void cuda_householder_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    const path_gpu gpu = gpu_of(ctx);
    const int64_t  n = householder_work_floats(dst, gpu);

    // from ggml-cuda's pool, whose memory a captured graph may keep
    ggml_cuda_pool_alloc<float> work(ctx.pool());
    launch_householder(
            dst, gpu, n > 0 ? work.alloc((size_t) n) : nullptr, stream_launch{ ctx.stream() });
}
