#include "lrnn.h"

// what is in capitals is defined by the build

const char * lrnn_version(void) {
    return LRNN_VERSION;
}

const char * lrnn_ggml_version(void) {
    return LRNN_GGML_VERSION;
}

const char * lrnn_cuda_notice(void) {
#ifdef LRNN_CUDA_COMPILED
    return "CUDA kernels: compiled (" LRNN_CUDA_COMPILED
           ") and emulated, not run on a card"; // nvcc 13.0.88, sm_80
#else
    return "";
#endif
}
