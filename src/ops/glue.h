#pragma once

// Functions that the glue (cmake/glue.cmake) calls from inside ggml: each case that it inserts into
// a switch calls one of them.

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// ggml-cpu: compute, number of threads, bytes of work buffer, and whether the op can run there. All
// shapes can; the state must be in memory that the CPU can write directly.
void ggml_lrnn_cpu_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst);
int ggml_lrnn_cpu_n_tasks(const struct ggml_tensor * op, int n_threads);
size_t ggml_lrnn_cpu_work_size(const struct ggml_tensor * op, int n_tasks);
bool ggml_lrnn_cpu_supports_op(const struct ggml_tensor * op);

// ggml-cpu: called for the n-th time by a thread that waits for the others at a barrier. Spins for
// about 50 microseconds, then yields its core each time.
void ggml_lrnn_cpu_wait(int n);

#ifdef __cplusplus
}

#    include <new> // std::nothrow, for ggml-cpu

// ggml-cuda
struct ggml_backend_cuda_context;

bool ggml_lrnn_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op);
#endif
