#include "lrnn.h"

// The build defines LRNN_VERSION and LRNN_GGML_VERSION.

const char * lrnn_version(void) {
    return LRNN_VERSION;
}

const char * lrnn_ggml_version(void) {
    return LRNN_GGML_VERSION;
}
