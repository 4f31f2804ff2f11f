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

// ggml-cpu: matrix products with many columns, and some with few; false if ggml computes the
// product. And its bytes of work buffer; 0 for other ops.
bool ggml_lrnn_cpu_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t ggml_lrnn_cpu_mul_mat_work_size(const struct ggml_tensor * dst, int n_threads);

// True if each thread uses only its own part of the work buffer for a product and waits for no
// other.
bool ggml_lrnn_cpu_mul_mat_is_own(const struct ggml_tensor * dst);

// The weights that thread ith of nth reads in such a product, if no other thread helps.
void ggml_lrnn_cpu_mul_mat_share(
        const struct ggml_tensor * dst, int ith, int nth, const char ** begin, const char ** end);

// The part of the work buffer that belongs to a thread, in lines of the cache, and the size of a
// buffer in which each of n threads has a part of `size` bytes.
void * ggml_lrnn_cpu_own_work(const struct ggml_compute_params * params);
size_t ggml_lrnn_cpu_own_work_size(size_t size, int n);

// ggml-cpu: exp, sigmoid and softplus of contiguous tensors in F32; false for other activations.
bool ggml_lrnn_cpu_unary(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// ggml-cpu: what the nodes since the last barrier use.
enum { GGML_LRNN_CPU_MAX_BYTES = 64 };

struct ggml_lrnn_cpu_bytes { // ranges of addresses
    uintptr_t begin[GGML_LRNN_CPU_MAX_BYTES], end[GGML_LRNN_CPU_MAX_BYTES];
    int       n;
};

struct ggml_lrnn_cpu_use {
    struct ggml_lrnn_cpu_bytes reads, writes;
    int                        work; // enum work of order.c
};

// ggml-cpu: how much of the rows of a product each thread has taken (src/ops/cpu/share.h). Products
// between two barriers have a counter each, and those after the next barrier others.
enum { GGML_LRNN_CPU_MAX_PRODUCTS = 8, GGML_LRNN_CPU_MAX_THREADS = 16 };

struct ggml_lrnn_cpu_taken {
    uint64_t n;
    char     line[64 - sizeof(uint64_t)]; // threads do not write to the same line of the cache
};

struct ggml_lrnn_cpu_shares {
    struct ggml_lrnn_cpu_taken taken[2][GGML_LRNN_CPU_MAX_PRODUCTS][GGML_LRNN_CPU_MAX_THREADS];
};

// ggml-cpu: weights that a thread fetches while it waits (src/ops/cpu/fetch-ahead.c).
struct ggml_lrnn_cpu_ahead {
    int          node; // the product they belong to
    const char * at;   // what comes next
    const char * end;
    int64_t      n_bytes; // that may still be fetched
};

// ggml-cpu: a graph as one of its threads sees it.
struct ggml_lrnn_cpu_order {
    const struct ggml_cgraph *    graph;
    int                           ith, nth;
    struct ggml_lrnn_cpu_shares * shares; // of all threads

    struct ggml_lrnn_cpu_use     all, one;      // nodes of all threads, and of thread 0 alone
    bool                         is_unknown;    // the last node may use anything
    int                          n_waits;       // barriers so far
    int                          n_products[2]; // counters in use, of each set
    struct ggml_lrnn_cpu_taken * taken; // of the present product, for each thread; may be NULL
    struct ggml_lrnn_cpu_ahead   ahead;
};

void ggml_lrnn_cpu_order_init(struct ggml_lrnn_cpu_order * order, const struct ggml_cgraph * graph,
        const struct ggml_compute_params * params, struct ggml_lrnn_cpu_shares * shares);

// ggml-cpu: called by every thread before node `i`. Waits for the other threads if the node needs
// it. True: thread 0 computes the node alone, as if it were the only thread.
bool ggml_lrnn_cpu_before_node(
        struct ggml_lrnn_cpu_order * order, const struct ggml_compute_params * params, int i);

// ggml-cpu: called again and again by a thread that waits for the others at a barrier. Fetches
// weights that it will need, if `order` is not NULL; then spins for about 50 microseconds; then
// yields its core each time. *n_spins is 0 at first.
void ggml_lrnn_cpu_wait(int * n_spins, struct ggml_lrnn_cpu_order * order);

// ggml-cpu: ggml_barrier with weights to fetch. The glue defines it.
void ggml_lrnn_cpu_barrier(struct ggml_threadpool * tp, struct ggml_lrnn_cpu_order * order);

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

// ggml-cuda: true if this build has no code that a GPU can run, because all of it is for later
// ones. Sets the compute capabilities: 75 for 7.5. The registry of the backend returns the function
// by its name.
typedef bool (*ggml_lrnn_cuda_is_too_old_t)(ggml_backend_dev_t dev, int * found, int * oldest);
bool ggml_lrnn_cuda_is_too_old(ggml_backend_dev_t dev, int * found, int * oldest);

#ifdef __cplusplus
}

#    include <new> // std::nothrow, for ggml-cpu

// ggml-cuda
struct ggml_backend_cuda_context;

bool ggml_lrnn_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
bool ggml_lrnn_cuda_supports_op(const ggml_tensor * op);
#endif
