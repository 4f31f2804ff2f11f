#pragma once

// The launchers for ggml-cuda. Each has its own file, because each compiles many instances.

#include "launch.cuh"
#include "path-cost.h"

#include "ggml-cuda/common.cuh"

void cuda_householder_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst);
void cuda_signed_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst);
void cuda_short_conv(ggml_backend_cuda_context & ctx, const ggml_tensor * dst);
void cuda_lstm_scan(ggml_backend_cuda_context & ctx, const ggml_tensor * dst);
bool cuda_lstm_fits(const ggml_tensor * op); // false: a head is too long for a block

// The device of a context, for path-cost.h
static inline path_gpu gpu_of(const ggml_backend_cuda_context & ctx) {
    const auto & device = ggml_cuda_info().devices[ctx.device];
    return { ampere_mma_available(device.cc), device.cc / 10, device.nsm };
}

// The work buffer of a node, from ggml-cuda's pool, whose memory a captured graph may keep
struct work_buffer {
    ggml_cuda_pool_alloc<float> memory;
    float *                     data;

    work_buffer(ggml_backend_cuda_context & ctx, int64_t floats)
        : memory(ctx.pool()), data(floats > 0 ? memory.alloc((size_t) floats) : nullptr) {}
};

struct stream_launch {
    cudaStream_t stream;

    template <typename Kernel, typename Args>
    void operator()(Kernel kernel, dim3 grid, dim3 block, const Args & args) const {
        ggml_cuda_kernel_launch(
                kernel, ggml_cuda_kernel_launch_params(grid, block, (size_t) 0, stream), args);
    }
};
