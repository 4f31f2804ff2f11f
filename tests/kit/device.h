#pragma once

// The device on which the tests of the scans compute: the CPU, or the one that the environment
// variable LRNN_TEST_DEVICE names.

#include "ggml-backend.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// The device; NULL: the CPU. Ends the program if it does not exist, as skipped.
ggml_backend_t test_device(void);

// Computes a node whose sources are in host memory on the device, and copies the result and the
// state, which is source 0, back. Views keep their place in the tensor that they view.
bool test_compute_on_device(ggml_backend_t device, struct ggml_tensor * op);

#ifdef __cplusplus
}
#endif
