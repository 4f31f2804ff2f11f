#include "launch-cuda.cuh"
#include "launch-signed.cuh"

void cuda_signed_scan(cudaStream_t stream, const ggml_tensor * dst) {
    launch_signed(dst, stream_launch { stream });
}
