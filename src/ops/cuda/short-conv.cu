#include "launch-cuda.cuh"
#include "launch-short-conv.cuh"

void cuda_short_conv(cudaStream_t stream, const ggml_tensor * dst) {
    launch_short_conv(dst, stream_launch { stream });
}
