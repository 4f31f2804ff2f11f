#include "launch-cuda.cuh"
#include "launch-signed.cuh"

void cuda_signed_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst) {
    const bool    tensor_cores = ampere_mma_available(ggml_cuda_info().devices[ctx.device].cc);
    const int64_t n            = signed_work_floats(dst, tensor_cores);

    // from ggml-cuda's pool, whose memory a captured graph may keep
    ggml_cuda_pool_alloc<float> work(ctx.pool());
    launch_signed(dst, n > 0 ? work.alloc((size_t) n) : nullptr, tensor_cores,
            stream_launch{ ctx.stream() });
}
