#pragma once

// What ran on the software device (device.h), for a program that links it.

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_device_counts {
    int64_t kernels;  // kernel launches, including captured ones
    int64_t captures; // captured graphs
    int64_t graphs;   // launches of captured graphs
};

// Results are since the last call of cuda_device_reset.
struct cuda_device_counts cuda_device_get(void);
bool cuda_device_ran(const char * part); // a kernel with `part` in its mangled name was launched
void cuda_device_reset(void);

#ifdef __cplusplus
}
#endif
