#pragma once

// lrnn: linear recurrent language models whose state transitions may have negative eigenvalues, on ggml.

#if defined(_WIN32) && defined(LRNN_SHARED)
#    ifdef LRNN_BUILD
#        define LRNN_API __declspec(dllexport)
#    else
#        define LRNN_API __declspec(dllimport)
#    endif
#elif defined(__GNUC__)
#    define LRNN_API __attribute__((visibility("default")))
#else
#    define LRNN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The version of this library, "0.1.0".
LRNN_API const char * lrnn_version(void);

// The version and commit of the ggml it was built with, "0.25.3 (353b63b4+lrnn)"; "+lrnn" says that our ops are in it.
LRNN_API const char * lrnn_ggml_version(void);

#ifdef __cplusplus
}
#endif
