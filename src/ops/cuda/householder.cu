#include "launch-cuda.cuh"
#include "launch-householder.cuh"

void cuda_householder_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    ggml_cuda_pool_alloc<float> work(ctx.pool()); // from ggml-cuda's own pool, which a captured graph may hold on to
    const int64_t n = householder_work_floats(dst);
    launch_householder(dst, n > 0 ? work.alloc((size_t) n) : nullptr, stream_launch { ctx.stream() });
}
