#pragma once

// Functions that the glue (cmake/glue.cmake) calls from inside ggml: each case that it inserts into
// a switch calls one of them.

#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct ggml_compute_params;
struct ggml_cplan;
struct ggml_lrnn_cpu_plan;   // of a graph: src/ops/cpu/barriers.h
struct ggml_lrnn_cpu_thread; // one of its threads
struct ggml_threadpool;

// ggml-cpu: compute, number of threads, bytes of work buffer, and whether the op can run there. All
// shapes can; the state must be in memory that the CPU can write directly.
void ggml_lrnn_cpu_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst);
int ggml_lrnn_cpu_n_tasks(const struct ggml_tensor * op, int n_threads);
size_t ggml_lrnn_cpu_work_size(const struct ggml_tensor * op, int n_tasks);
bool ggml_lrnn_cpu_supports_op(const struct ggml_tensor * op);

// ggml-cpu: attention as the graphs of lrnn use it; false if the op has another form, which ggml
// then computes. And its bytes of work buffer; 0 for other ops.
bool ggml_lrnn_cpu_attention(const struct ggml_compute_params * params, struct ggml_tensor * op);
size_t ggml_lrnn_cpu_attention_size(struct ggml_tensor * op, int n_threads);

// ggml-cpu: matrix products, also of experts; false if ggml computes the product. And its bytes of
// work buffer; 0 for other ops.
bool ggml_lrnn_cpu_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t ggml_lrnn_cpu_mul_mat_work_size(const struct ggml_tensor * dst, int n_threads);

// ggml-cpu: exp, sigmoid and softplus of contiguous tensors in F32; false for other activations.
bool ggml_lrnn_cpu_unary(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// ggml-cpu: the descending order of contiguous rows, a permutation even if there is a NaN; false
// for other orders and layouts.
bool ggml_lrnn_cpu_argsort(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// ggml-cpu: ggml_graph_plan, and where the threads of the graph wait for each other. *plan is NULL
// at first and keeps the plan of the last graph, which is not made again if the graph is the same.
struct ggml_cplan ggml_lrnn_cpu_plan_graph(struct ggml_lrnn_cpu_plan ** plan,
        const struct ggml_cgraph * graph, int n_threads, struct ggml_threadpool * threadpool);
void ggml_lrnn_cpu_plan_free(struct ggml_lrnn_cpu_plan * plan);

// ggml-cpu: a thread begins to compute a planned graph. NULL if `plan` is.
struct ggml_lrnn_cpu_thread * ggml_lrnn_cpu_begin(
        struct ggml_lrnn_cpu_plan * plan, const struct ggml_compute_params * params);

// ggml-cpu: called by every thread before node i. Waits for the other threads if the node needs it.
// True: thread 0 computes the node alone, as if it were the only thread.
bool ggml_lrnn_cpu_before_node(
        struct ggml_lrnn_cpu_thread * thread, const struct ggml_compute_params * params, int i);

// ggml-cpu: called repeatedly by a thread that waits for the others at a barrier. Fetches
// weights that it will need, if `thread` is not NULL; then spins for about 50 microseconds; then
// yields its core each time. *n_spins is 0 at first.
void ggml_lrnn_cpu_wait(int * n_spins, struct ggml_lrnn_cpu_thread * thread);

// ggml-cpu: ggml_barrier with weights to fetch. The glue defines it.
void ggml_lrnn_cpu_barrier(struct ggml_threadpool * tp, struct ggml_lrnn_cpu_thread * thread);

// ggml-rpc, server: checks of what a client sends. If one returns false, the server drops the
// client.

// A tensor: known type and op, aligned data and strides, sizes that do not overflow.
bool ggml_lrnn_rpc_tensor_ok(
        uint32_t type, uint32_t op, const uint32_t * ne, const uint32_t * nb, uint64_t data);

// COPY_TENSOR: the same layout, and no partial overlap.
bool ggml_lrnn_rpc_copy_ok(const struct ggml_tensor * from, const struct ggml_tensor * to);

// ALLOC_BUFFER: all buffers of a client fit into the memory of the device.
bool ggml_lrnn_rpc_alloc_ok(
        ggml_backend_t backend, uint64_t size, uint64_t n_buffers, uint64_t in_use);

// INIT_TENSOR: the buffer has room for the padding that its device adds to the tensor.
bool ggml_lrnn_rpc_init_ok(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor);

// GRAPH_COMPUTE: limits of the message, then every rule of the kernels for every node. Of a graph
// that was computed before, only the ids may have changed.
bool ggml_lrnn_rpc_graph_size_ok(uint64_t n_nodes, uint64_t n_tensors);
bool ggml_lrnn_rpc_graph_ok(
        ggml_backend_t backend, const struct ggml_cgraph * graph, bool computed_before);

// ggml-cuda: true if all code of this build is for newer GPUs. Sets the compute capabilities: 75
// for 7.5. The registry of the backend returns the function by its name.
typedef bool (*ggml_lrnn_cuda_is_too_old_t)(ggml_backend_dev_t dev, int * found, int * oldest);
bool ggml_lrnn_cuda_is_too_old(ggml_backend_dev_t dev, int * found, int * oldest);

#ifdef __cplusplus
}

#    include <new> // std::nothrow, for ggml-cpu

// ggml-cuda
struct ggml_backend_cuda_context;

bool ggml_lrnn_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op);

// Attention: false if ggml-cuda shall compute it.
bool ggml_lrnn_cuda_attention(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
bool ggml_lrnn_cuda_attention_supports(const ggml_tensor * op);
#endif
