#pragma once

// A graph on several threads: where they wait for each other (barriers.c) and how (barrier-wait.c).

#include "glue.h"
#include "product/row-queue.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"

enum { CACHE_LINE = 64 }; // bytes

// What the threads do at a node.
struct plan_step {
    const struct product_kernel * kernel;     // of a product; NULL: ggml's
    bool                          is_private; // each thread has its own rows of this product
    bool                          is_alone;   // thread 0 computes the node
    bool                          barrier;    // all threads wait before the node
    int8_t clear;    // counters that each thread clears after the barrier: set 0 or 1; −1: none
    int8_t counters; // of a private product; −1: none
};

// Weights that a thread fetches while it waits.
struct prefetch {
    int          node; // the product they belong to
    const char * at;   // what comes next
    const char * end;
    int64_t      n_bytes; // that may still be fetched
};

struct ggml_lrnn_cpu_thread {
    _Alignas(CACHE_LINE) const struct ggml_lrnn_cpu_plan * plan;
    const struct plan_step * step; // of the present node
    int                      ith, nth;
    struct prefetch          prefetch;
};

struct ggml_lrnn_cpu_plan {
    // the graph that was planned
    uint64_t              uid; // 0: it may change without notice
    struct ggml_tensor ** nodes;
    int                   n_nodes;
    int                   n_threads; // that were asked for
    struct ggml_cplan     cplan;

    struct plan_step *            steps; // one for each node
    struct ggml_lrnn_cpu_thread * threads;
    struct row_counter *          counters; // [threads, products, 2 sets]
    int                           max_nodes, max_threads;
};

// The thread has come to node i: it may fetch weights of the products from there on.
void prefetch_from(struct ggml_lrnn_cpu_thread * thread, int i);

// Row counters of the present product; NULL: each thread computes its own rows.
struct row_counter * plan_counters(const struct ggml_lrnn_cpu_thread * thread);

// The part of the work buffer that belongs to a thread, and the size of a buffer in which each of n
// threads has `size` bytes. Parts do not share a line of the cache.
void * private_work(const struct ggml_compute_params * params);
size_t private_work_size(size_t size, int n);

static inline void * align_line(const void * p) {
    return (void *) (((uintptr_t) p + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
}
