# The CUDA architectures that the kernels are compiled for in the tests (test-nvcc-*). A build with
# LRNN_CUDA uses the first one unless CUDAARCHS or CMAKE_CUDA_ARCHITECTURES is set.

set(LRNN_CUDA_ARCHITECTURES 80 75 89 90 120)
