#include "launch-cuda.cuh"
#include "launch-householder.cuh"

void cuda_householder_scan(cudaStream_t stream, const ggml_tensor * dst) {
    launch_householder(dst, stream_launch { stream });
}
