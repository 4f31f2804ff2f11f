#include "lrnn.h"

// what is in capitals is defined by the build

const char * lrnn_version(void) {
    return LRNN_VERSION;
}

const char * lrnn_ggml_version(void) {
    return LRNN_GGML_VERSION;
}
