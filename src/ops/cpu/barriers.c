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
// All of this depends on the graph only, and so does the kernel of a product. It is planned once and
// kept as long as the graph stays the same. Results are bit-identical: a node computes the same
// numbers on any number of threads.

#include "barriers.h"

#include "product/product.h"
#include "scan/scan-cpu.h"

#include "ggml-backend.h"
#include "ggml-impl.h"

#include <stdlib.h>

enum { SMALL = 8192 }; // numbers of a node that thread 0 computes alone, at most

// How a node uses the work buffer.
enum work {
    WORK_NONE,
    WORK_PRIVATE, // the part of each thread: private_work
    WORK_SHARED,  // any other way; also the common counter of ggml_threadpool_chunk_add
};

struct use {
    bool      is_known; // false: wait before and after the node
    bool      is_alone; // on thread 0
    enum work work;
};

// The numbers that a node computes or reads, if it has no other work.
static int64_t size_of(const struct ggml_tensor * node) {
    const int64_t in = ggml_nelements(node->src[0]), out = ggml_nelements(node);
    return node->op == GGML_OP_GET_ROWS || in < out ? out : in;
}

static bool is_float(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16;
}

static struct use use_of(const struct ggml_tensor * node, bool is_private) {
    switch (node->op) {
        case GGML_OP_ADD:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV:
        case GGML_OP_SQR:
        case GGML_OP_SQRT:
        case GGML_OP_SCALE:
        case GGML_OP_SUM_ROWS:
        case GGML_OP_NORM:
        case GGML_OP_RMS_NORM:
        case GGML_OP_L2_NORM:
        case GGML_OP_UNARY:
        case GGML_OP_GLU: {
            const bool is_known = node->type == GGML_TYPE_F32 && is_float(node->src[0]) &&
                                  (node->src[1] == NULL || is_float(node->src[1]));
            return (struct use) { is_known, size_of(node) <= SMALL, WORK_NONE };
        }
        case GGML_OP_GET_ROWS: return (struct use) { true, size_of(node) <= SMALL, WORK_NONE };
        case GGML_OP_CPY:
        case GGML_OP_CONT:
            return (struct use) { node->src[0]->type == GGML_TYPE_F32 && is_float(node),
                size_of(node) <= SMALL, WORK_NONE };
        case GGML_OP_SHORT_CONV: {
            // the work of thread 0 alone is at the beginning of its part
            const bool is_alone = ggml_nelements(node) <= SMALL;
            return (struct use) { true, is_alone, is_alone ? WORK_PRIVATE : WORK_SHARED };
        }
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN: return (struct use) { true, false, WORK_SHARED };
        case GGML_OP_MUL_MAT:
            return (struct use) { true, false, is_private ? WORK_PRIVATE : WORK_SHARED };
        default: return (struct use) { false, false, WORK_SHARED };
    }
}

//
// Bytes in use
//

struct range {
    uintptr_t begin, end;
};

enum { MAX_RANGES = 64 };

struct ranges {
    struct range at[MAX_RANGES];
    int          n;
};

static struct range bytes_of(const struct ggml_tensor * t) {
    return (struct range) { (uintptr_t) t->data, (uintptr_t) t->data + ggml_nbytes(t) };
}

static bool overlaps(const struct ranges * list, struct range b) {
    for (int i = 0; i < list->n; ++i) {
        if (b.begin < list->at[i].end && list->at[i].begin < b.end) {
            return true;
        }
    }
    return false;
}

static bool is_weight(const struct ggml_tensor * t) {
    const struct ggml_tensor * base = t->view_src != NULL ? t->view_src : t;
    return base->op == GGML_OP_NONE && base->buffer != NULL &&
           ggml_backend_buffer_get_usage(base->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

// What a node reads and writes.
struct access {
    struct range reads[GGML_MAX_SRC];
    struct range writes[2];
    int          n_reads, n_writes;
};

static struct access access_of(const struct ggml_tensor * node) {
    struct access a        = { .n_reads = 0 };
    a.writes[a.n_writes++] = bytes_of(node);
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        const struct ggml_tensor * src = node->src[i];
        if (src == NULL || is_weight(src)) {
            continue; // nothing writes weights
        }
        if (i == SCAN_SRC_STATE && ggml_is_scan(node)) {
            a.writes[a.n_writes++] = bytes_of(src);
        } else {
            a.reads[a.n_reads++] = bytes_of(src);
        }
    }
    return a;
}

//
// Barriers
//

// What nodes since the last barrier use.
struct in_use {
    struct ranges reads, writes;
    enum work     work;
};

static bool has_room(const struct in_use * u) {
    return u->reads.n + GGML_MAX_SRC <= MAX_RANGES && u->writes.n + 2 <= MAX_RANGES;
}

// True if a node that reads and writes `a` must wait for nodes that use `u`.
static bool conflicts(const struct in_use * u, const struct access * a) {
    for (int i = 0; i < a->n_reads; ++i) {
        if (overlaps(&u->writes, a->reads[i])) {
            return true;
        }
    }
    for (int i = 0; i < a->n_writes; ++i) {
        if (overlaps(&u->writes, a->writes[i]) || overlaps(&u->reads, a->writes[i])) {
            return true;
        }
    }
    return false;
}

static void add(struct in_use * u, const struct access * a, enum work work) {
    memcpy(u->reads.at + u->reads.n, a->reads, (size_t) a->n_reads * sizeof(a->reads[0]));
    memcpy(u->writes.at + u->writes.n, a->writes, (size_t) a->n_writes * sizeof(a->writes[0]));
    u->reads.n += a->n_reads;
    u->writes.n += a->n_writes;
    u->work = work > u->work ? work : u->work;
}

// Private products between two barriers have row counters each, and those after the next barrier
// others, from the second set. So a thread can clear its counters of the set that is not in use.
enum { MAX_PRODUCTS = 8 };

struct planner {
    struct in_use all, one;     // nodes of all threads, and of thread 0 alone
    bool          is_unknown;   // the last node may use anything
    bool          has_counters; // not before the first barrier: another graph may have used them
    int           set;          // of counters
    int           n_products;   // with counters, since the last barrier
};

// True if another thread may be using what a node needs.
static bool must_wait(const struct planner * p, const struct access * a, const struct use * use) {
    if (!use->is_known || p->is_unknown || !has_room(&p->all) || !has_room(&p->one)) {
        return true;
    }
    if (use->work == WORK_PRIVATE ? p->all.work == WORK_SHARED
                                  : use->work == WORK_SHARED && (p->all.work != WORK_NONE ||
                                                                        p->one.work != WORK_NONE)) {
        return true;
    }
    return conflicts(&p->all, a) || (!use->is_alone && conflicts(&p->one, a));
}

static void plan_barrier(struct planner * p, struct plan_step * step) {
    step->barrier = true;
    if (p->n_products > 0) {
        step->clear = (int8_t) p->set;
        p->set      = 1 - p->set;
    }
    p->n_products   = 0;
    p->has_counters = true;
    p->all.reads.n = p->all.writes.n = p->one.reads.n = p->one.writes.n = 0;
    p->all.work = p->one.work = WORK_NONE;
}

// ggml may compute RMS_NORM and the MUL that follows at the same time, without a look at the second
// node, so there is a barrier before, between and after them. It does not do that on thread 0 alone.
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
    *step                           = (struct plan_step) { .clear = -1, .counters = -1 };
    if (ggml_op_is_empty(node->op) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
        return;
    }
    if (node->op == GGML_OP_MUL_MAT) {
        // ggml has buffers with weights in another order, for kernels of its own
        ggml_backend_buffer_t buffer = node->src[0]->buffer;
        step->kernel                 = product_kernel_of(node);
        step->is_private = step->kernel != NULL && product_is_private(step->kernel, node) &&
                           (buffer == NULL || ggml_backend_buffer_is_host(buffer));
    }
    struct use use = use_of(node, step->is_private);
    step->is_alone = use.is_alone;
    if (may_be_fused(graph, i, steps)) {
        use.is_known = false;
    }
    const struct access a = access_of(node);
    if (must_wait(p, &a, &use)) {
        plan_barrier(p, step);
    }
    add(use.is_alone ? &p->one : &p->all, &a, use.work);
    p->is_unknown = !use.is_known;
    if (step->is_private && p->has_counters && p->n_products < MAX_PRODUCTS) {
        step->counters = (int8_t) (p->set * MAX_PRODUCTS + p->n_products++);
    }
}

//
// The plan of a graph
//

// Without memory there is no plan, and the threads wait after every node.
static bool reserve(struct ggml_lrnn_cpu_plan * plan, int n_nodes, int n_threads) {
    if (n_nodes > plan->max_nodes) {
        free(plan->steps);
        plan->steps     = malloc((size_t) n_nodes * sizeof(*plan->steps));
        plan->max_nodes = plan->steps != NULL ? n_nodes : 0;
    }
    if (n_threads > plan->max_threads) {
        const size_t n = (size_t) n_threads;
        free(plan->threads);
        free(plan->counters);
        plan->threads  = aligned_alloc(CACHE_LINE, n * sizeof(*plan->threads));
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
    struct planner planner = { .is_unknown = false };
    for (int i = 0; i < graph->n_nodes; ++i) {
        plan_node(&planner, graph, i, plan->steps);
    }
    plan->uid       = graph->uid;
    plan->nodes     = graph->nodes;
    plan->n_nodes   = graph->n_nodes;
    plan->n_threads = n_threads;
    cplan.lrnn_plan = plan;
    plan->cplan     = cplan;
    return cplan;
}

//
// One of its threads
//

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

//
// Work buffer
//

void * private_work(const struct ggml_compute_params * params) {
    const size_t size =
            (params->wsize - CACHE_LINE) / (size_t) params->nth / CACHE_LINE * CACHE_LINE;
    return (char *) align_line(params->wdata) + (size_t) params->ith * size;
}

size_t private_work_size(size_t size, int n) {
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE * (size_t) n + CACHE_LINE;
}
