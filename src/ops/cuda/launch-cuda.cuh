#pragma once

// The launchers of ggml-cuda. Each stands in a file of its own, because each compiles many instances.

#include "launch.cuh"

#include "ggml-cuda/common.cuh"

void cuda_householder_scan(cudaStream_t stream, const ggml_tensor * dst);
void cuda_signed_scan     (cudaStream_t stream, const ggml_tensor * dst);
void cuda_short_conv      (cudaStream_t stream, const ggml_tensor * dst);

// A plain launch, not ggml_cuda_kernel_launch: that one lets a kernel begin before the one ahead of it has ended, and ours do not wait for it.
struct stream_launch {
    cudaStream_t stream;

    template <typename Kernel, typename Args>
    void operator()(Kernel kernel, dim3 grid, dim3 block, const Args & args) const {
        kernel<<<grid, block, 0, stream>>>(args);
        CUDA_CHECK(cudaGetLastError());
    }
};
