// Where the threads of a graph wait for each other.
//
// ggml makes all threads wait for each other after every node. For a single token most nodes take
// less time than that. Here, threads wait before a node only if it
//
// - reads what another thread may still be writing (R after W),
// - writes what another thread may still be reading or writing (W after R, W after W), or
// - uses the work buffer that another thread may still be using.
//
// Small nodes belong to thread 0 alone. Among them no thread waits; the others go ahead to the next
// node that needs a barrier.
//
// All of this depends on the graph only, and so does the kernel of a product. It is planned once
// and kept as long as the graph stays the same. Results are bit-identical: a node computes the same
// numbers on any number of threads.

#include "barriers.h"

#include "product/product.h"
#include "scan/scan-cpu.h"

#include "ggml-backend.h"
#include "ggml-impl.h"

#include <stdlib.h>

enum { SMALL = 8192 }; // thread 0 alone computes nodes of at most this many numbers

struct range { // of addresses
    uintptr_t begin, end;
};

// How a node uses the work buffer.
enum work {
    WORK_NONE,
    WORK_PRIVATE, // the part of each thread: private_work
    WORK_SHARED,  // any other way; also the common counter of ggml_threadpool_chunk_add
};

struct kind {
    bool      is_known; // false: wait before and after the node
    bool      is_alone; // on thread 0
    enum work work;
};

// What a node needs.
struct use {
    struct kind  kind;
    struct range reads[GGML_MAX_SRC], writes[2];
    int          n_reads, n_writes;
};

// The numbers that a node computes or reads, if it has no other work.
static int64_t size_of(const struct ggml_tensor * node) {
    const int64_t in = ggml_nelements(node->src[0]), out = ggml_nelements(node);
    return node->op == GGML_OP_GET_ROWS || in < out ? out : in;
}

static bool is_float(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16;
}

static struct kind kind_of(const struct ggml_tensor * node, bool is_private) {
    switch (node->op) {
        case GGML_OP_ADD:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV:
        case GGML_OP_SQR:
        case GGML_OP_SCALE:
        case GGML_OP_SUM_ROWS:
        case GGML_OP_NORM:
        case GGML_OP_RMS_NORM:
        case GGML_OP_L2_NORM:
        case GGML_OP_UNARY:
        case GGML_OP_GLU: {
            const bool is_known = node->type == GGML_TYPE_F32 && is_float(node->src[0]) &&
                                  (node->src[1] == NULL || is_float(node->src[1]));
            return (struct kind) { is_known, size_of(node) <= SMALL, WORK_NONE };
        }
        case GGML_OP_GET_ROWS: return (struct kind) { true, size_of(node) <= SMALL, WORK_NONE };
        case GGML_OP_CONT:
            return (struct kind) { node->src[0]->type == GGML_TYPE_F32 && is_float(node),
                size_of(node) <= SMALL, WORK_NONE };
        case GGML_OP_SHORT_CONV: {
            // the work of thread 0 alone is at the beginning of its part
            const bool is_alone = ggml_nelements(node) <= SMALL;
            return (struct kind) { true, is_alone, is_alone ? WORK_PRIVATE : WORK_SHARED };
        }
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_LSTM_SCAN: return (struct kind) { true, false, WORK_SHARED };
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID:
            return (struct kind) { true, false, is_private ? WORK_PRIVATE : WORK_SHARED };
        default: return (struct kind) { false, false, WORK_SHARED };
    }
}

static struct range bytes_of(const struct ggml_tensor * t) {
    return (struct range) { (uintptr_t) t->data, (uintptr_t) t->data + ggml_nbytes(t) };
}

static bool is_weight(const struct ggml_tensor * t) {
    const struct ggml_tensor * base = t->view_src != NULL ? t->view_src : t;
    return base->op == GGML_OP_NONE && base->buffer != NULL &&
           ggml_backend_buffer_get_usage(base->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

static struct use use_of(const struct ggml_tensor * node, bool is_private) {
    struct use u = { .kind = kind_of(node, is_private) };
    u.writes[u.n_writes++] = bytes_of(node);
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        const struct ggml_tensor * src = node->src[i];
        if (src == NULL || is_weight(src)) {
            continue; // nothing writes weights
        }
        if (i == SCAN_SRC_STATE && ggml_is_scan(node)) {
            u.writes[u.n_writes++] = bytes_of(src);
        } else {
            u.reads[u.n_reads++] = bytes_of(src);
        }
    }
    return u;
}

// ---- Barriers -----------------------------------------------------------------------------------

static bool overlap(const struct range * a, int n_a, const struct range * b, int n_b) {
    for (int i = 0; i < n_a * n_b; ++i) {
        const struct range *x = &a[i / n_b], *y = &b[i % n_b];
        if (x->begin < y->end && y->begin < x->end) {
            return true;
        }
    }
    return false;
}

// True if a node must wait for an earlier one, because another thread may still be computing it.
static bool must_wait(const struct use * node, const struct use * earlier) {
    if (!node->kind.is_known || !earlier->kind.is_known) {
        return true;
    }
    if (node->kind.work == WORK_SHARED && earlier->kind.work != WORK_NONE) {
        return true;
    }
    if (node->kind.is_alone && earlier->kind.is_alone) {
        return false;
    }
    return (node->kind.work == WORK_PRIVATE && earlier->kind.work == WORK_SHARED) ||
           overlap(node->reads, node->n_reads, earlier->writes, earlier->n_writes) ||
           overlap(node->writes, node->n_writes, earlier->writes, earlier->n_writes) ||
           overlap(node->writes, node->n_writes, earlier->reads, earlier->n_reads);
}

// Each private product between two barriers has its own row counters. There are two sets of them,
// used in turn from barrier to barrier, so a thread can clear its counters of the set not in use.
enum { MAX_PRODUCTS = 8 };

struct planner {
    struct use since[64]; // what the nodes since the last barrier need
    int        n_since;
    bool       has_counters; // not before the first barrier: another graph may have used them
    int        set;          // of counters
    int        n_products;   // with counters, since the last barrier
};

static void plan_barrier(struct planner * p, struct plan_step * step) {
    step->barrier = true;
    if (p->n_products > 0) {
        step->clear = (int8_t) p->set;
        p->set = 1 - p->set;
    }
    p->n_products = 0;
    p->has_counters = true;
    p->n_since = 0;
}

// ggml may fuse RMS_NORM with the MUL that follows and then never visits the second node, so there
// is a barrier before, between and after them. It does not fuse on thread 0 alone.
static bool may_be_fused(const struct ggml_cgraph * graph, int i, const struct plan_step * steps) {
    const struct ggml_tensor * node = graph->nodes[i];
    return (node->op == GGML_OP_RMS_NORM && !steps[i].is_alone) ||
           (node->op == GGML_OP_MUL && i > 0 && graph->nodes[i - 1]->op == GGML_OP_RMS_NORM &&
                   !steps[i - 1].is_alone);
}

static void plan_node(
        struct planner * p, const struct ggml_cgraph * graph, int i, struct plan_step * steps) {
    const struct ggml_tensor * node = graph->nodes[i];
    struct plan_step *         step = &steps[i];
    *step = (struct plan_step) { .clear = -1, .counters = -1 };
    if (ggml_op_is_empty(node->op) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
        return;
    }
    if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
        // ggml has buffers with weights in another order, for kernels of its own
        ggml_backend_buffer_t buffer = node->src[0]->buffer;
        step->kernel = product_kernel_of(node);
        step->is_private = step->kernel != NULL && product_is_private(step->kernel, node) &&
                           (buffer == NULL || ggml_backend_buffer_is_host(buffer));
    }
    struct use use = use_of(node, step->is_private);
    step->is_alone = use.kind.is_alone;
    if (may_be_fused(graph, i, steps)) {
        use.kind.is_known = false;
    }
    bool wait = p->n_since == (int) (sizeof(p->since) / sizeof(p->since[0]));
    for (int j = p->n_since - 1; j >= 0 && !wait; --j) {
        wait = must_wait(&use, &p->since[j]);
    }
    if (wait) {
        plan_barrier(p, step);
    }
    p->since[p->n_since++] = use;
    if (step->is_private && p->has_counters && p->n_products < MAX_PRODUCTS) {
        step->counters = (int8_t) (p->set * MAX_PRODUCTS + p->n_products++);
    }
}

// ---- The plan of a graph ------------------------------------------------------------------------

// Without memory there is no plan, and the threads wait after every node.
static bool reserve(struct ggml_lrnn_cpu_plan * plan, int n_nodes, int n_threads) {
    if (n_nodes > plan->max_nodes) {
        free(plan->steps);
        plan->steps = malloc((size_t) n_nodes * sizeof(*plan->steps));
        plan->max_nodes = plan->steps != NULL ? n_nodes : 0;
    }
    if (n_threads > plan->max_threads) {
        const size_t n = (size_t) n_threads;
        free(plan->threads);
        free(plan->counters);
        plan->threads = aligned_alloc(CACHE_LINE, n * sizeof(*plan->threads));
        plan->counters = aligned_alloc(CACHE_LINE, n * 2 * MAX_PRODUCTS * sizeof(*plan->counters));
        plan->max_threads = plan->threads != NULL && plan->counters != NULL ? n_threads : 0;
    }
    return n_nodes <= plan->max_nodes && n_threads <= plan->max_threads;
}

void ggml_lrnn_cpu_plan_free(struct ggml_lrnn_cpu_plan * plan) {
    if (plan != NULL) {
        free(plan->steps);
        free(plan->threads);
        free(plan->counters);
        free(plan);
    }
}

static bool is_plan_of(const struct ggml_lrnn_cpu_plan * plan, const struct ggml_cgraph * graph,
        int n_threads, const struct ggml_threadpool * threadpool) {
    return plan->uid != 0 && plan->uid == graph->uid && plan->nodes == graph->nodes &&
           plan->n_nodes == graph->n_nodes && plan->n_threads == n_threads &&
           plan->cplan.threadpool == threadpool;
}

struct ggml_cplan ggml_lrnn_cpu_plan_graph(struct ggml_lrnn_cpu_plan ** kept,
        const struct ggml_cgraph * graph, int n_threads, struct ggml_threadpool * threadpool) {
    if (*kept == NULL) {
        *kept = calloc(1, sizeof(**kept));
    }
    struct ggml_lrnn_cpu_plan * plan = *kept;
    if (plan != NULL && is_plan_of(plan, graph, n_threads, threadpool)) {
        return plan->cplan;
    }
    struct ggml_cplan cplan = ggml_graph_plan(graph, n_threads, threadpool);
    if (plan != NULL) {
        plan->uid = 0; // until it is complete
    }
    if (plan == NULL || !reserve(plan, graph->n_nodes, cplan.n_threads)) {
        return cplan;
    }
    struct planner planner; // not cleared: `since` is large
    planner.n_since = planner.set = planner.n_products = 0;
    planner.has_counters = false;
    for (int i = 0; i < graph->n_nodes; ++i) {
        plan_node(&planner, graph, i, plan->steps);
    }
    plan->uid = graph->uid;
    plan->nodes = graph->nodes;
    plan->n_nodes = graph->n_nodes;
    plan->n_threads = n_threads;
    cplan.lrnn_plan = plan;
    plan->cplan = cplan;
    return cplan;
}

// ---- One of its threads -------------------------------------------------------------------------

static void clear_counters(const struct ggml_lrnn_cpu_thread * t, int set) {
    for (int i = set * MAX_PRODUCTS; i < (set + 1) * MAX_PRODUCTS; ++i) {
        __atomic_store_n(
                &t->plan->counters[i * t->plan->max_threads + t->ith].n, 0, __ATOMIC_RELAXED);
    }
}

struct ggml_lrnn_cpu_thread * ggml_lrnn_cpu_begin(
        struct ggml_lrnn_cpu_plan * plan, const struct ggml_compute_params * params) {
    if (plan == NULL) {
        return NULL;
    }
    struct ggml_lrnn_cpu_thread * t = &plan->threads[params->ith];
    *t = (struct ggml_lrnn_cpu_thread) { .plan = plan, .ith = params->ith, .nth = params->nth };
    clear_counters(t, 0);
    clear_counters(t, 1);
    return t;
}

bool ggml_lrnn_cpu_before_node(
        struct ggml_lrnn_cpu_thread * t, const struct ggml_compute_params * params, int i) {
    t->step = &t->plan->steps[i];
    if (t->nth == 1) {
        return false;
    }
    if (t->step->barrier) {
        prefetch_from(t, i);
        ggml_lrnn_cpu_barrier(params->threadpool, t);
        if (t->step->clear >= 0) {
            clear_counters(t, t->step->clear);
        }
    }
    return t->step->is_alone;
}

struct row_counter * plan_counters(const struct ggml_lrnn_cpu_thread * t) {
    return t == NULL || t->nth == 1 || t->step->counters < 0
                   ? NULL
                   : t->plan->counters + t->step->counters * t->plan->max_threads;
}

// ---- Work buffer --------------------------------------------------------------------------------

void * private_work(const struct ggml_compute_params * params) {
    const size_t size =
            (params->wsize - CACHE_LINE) / (size_t) params->nth / CACHE_LINE * CACHE_LINE;
    return (char *) align_line(params->wdata) + (size_t) params->ith * size;
}

size_t private_work_size(size_t size, int n) {
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE * (size_t) n + CACHE_LINE;
}
