// The order of the nodes of a graph on several threads.
//
// ggml makes all threads wait for each other after every node. For a single token most nodes take
// less time than that. Here, threads wait before a node only if it
//
// - reads what another thread may still be writing (R after W),
// - writes what another thread may still be reading or writing (W after R, W after W), or
// - uses the work buffer that another thread may still be using.
//
// Small nodes belong to thread 0 alone. Among them no thread waits; the others go ahead to the next
// node that needs a wait.
//
// Every thread goes through the same nodes and comes to the same decisions by itself. Bits do not
// change: a node computes the same numbers on any number of threads.

#include "fetch-ahead.h"
#include "glue.h"
#include "scan/scan-cpu.h"

#include "ggml-backend.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

enum { SMALL = 8192 }; // numbers of a node that thread 0 computes alone, at most

// How a node uses the work buffer.
enum work {
    WORK_NONE,
    WORK_OWN,    // the part of each thread: ggml_lrnn_cpu_own_work
    WORK_SHARED, // any other way; also the common counter of ggml_threadpool_chunk_add
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

static struct use use_of(const struct ggml_tensor * node) {
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
            return (struct use) { true, is_alone, is_alone ? WORK_OWN : WORK_SHARED };
        }
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN: return (struct use) { true, false, WORK_SHARED };
        case GGML_OP_MUL_MAT:
            return (struct use) { true, false,
                ggml_lrnn_cpu_mul_mat_is_own(node) ? WORK_OWN : WORK_SHARED };
        default: return (struct use) { false, false, WORK_SHARED };
    }
}

enum { LINE = 64 }; // bytes of a line of the cache

void * ggml_lrnn_cpu_own_work(const struct ggml_compute_params * params) {
    const uintptr_t first = ((uintptr_t) params->wdata + LINE - 1) / LINE * LINE;
    const uintptr_t size  = (params->wsize - LINE) / (uintptr_t) params->nth / LINE * LINE;
    return (void *) (first + (uintptr_t) params->ith * size);
}

size_t ggml_lrnn_cpu_own_work_size(size_t size, int n) {
    return (size + LINE - 1) / LINE * LINE * (size_t) n + LINE;
}

//
// Bytes in use
//

struct bytes {
    uintptr_t begin, end;
};

static struct bytes bytes_of(const struct ggml_tensor * t) {
    return (struct bytes) { (uintptr_t) t->data, (uintptr_t) t->data + ggml_nbytes(t) };
}

static bool overlaps(const struct ggml_lrnn_cpu_bytes * list, struct bytes b) {
    for (int i = 0; i < list->n; ++i) {
        if (b.begin < list->end[i] && list->begin[i] < b.end) {
            return true;
        }
    }
    return false;
}

static void add(struct ggml_lrnn_cpu_bytes * list, struct bytes b) {
    list->begin[list->n] = b.begin;
    list->end[list->n]   = b.end;
    list->n++;
}

static bool is_weight(const struct ggml_tensor * t) {
    const struct ggml_tensor * base = t->view_src != NULL ? t->view_src : t;
    return base->op == GGML_OP_NONE && base->buffer != NULL &&
           ggml_backend_buffer_get_usage(base->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

static bool writes_state(const struct ggml_tensor * node) {
    return node->op == GGML_OP_HOUSEHOLDER_SCAN || node->op == GGML_OP_SIGNED_SCAN ||
           node->op == GGML_OP_SHORT_CONV;
}

//
// Nodes
//

// What a node reads and writes.
struct access {
    struct bytes reads[GGML_MAX_SRC];
    struct bytes writes[2];
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
        if (i == SCAN_SRC_STATE && writes_state(node)) {
            a.writes[a.n_writes++] = bytes_of(src);
        } else {
            a.reads[a.n_reads++] = bytes_of(src);
        }
    }
    return a;
}

// True if another thread may be using what a node needs. `all`: what nodes of all threads use since
// the last wait; `one`: what those of thread 0 use.
static bool must_wait(
        const struct ggml_lrnn_cpu_order * o, const struct access * a, const struct use * use) {
    const struct ggml_lrnn_cpu_use *all = &o->all, *one = &o->one;
    if (!use->is_known || o->is_unknown) {
        return true;
    }
    if (all->reads.n + GGML_MAX_SRC > GGML_LRNN_CPU_MAX_BYTES ||
            one->reads.n + GGML_MAX_SRC > GGML_LRNN_CPU_MAX_BYTES ||
            all->writes.n + 2 > GGML_LRNN_CPU_MAX_BYTES ||
            one->writes.n + 2 > GGML_LRNN_CPU_MAX_BYTES) {
        return true; // no room
    }
    if (use->work == WORK_OWN ? all->work == WORK_SHARED
                              : use->work == WORK_SHARED &&
                                        (all->work != WORK_NONE || one->work != WORK_NONE)) {
        return true;
    }
    for (int i = 0; i < a->n_reads; ++i) {
        if (overlaps(&all->writes, a->reads[i]) ||
                (!use->is_alone && overlaps(&one->writes, a->reads[i]))) {
            return true;
        }
    }
    for (int i = 0; i < a->n_writes; ++i) {
        if (overlaps(&all->writes, a->writes[i]) || overlaps(&all->reads, a->writes[i]) ||
                (!use->is_alone && (overlaps(&one->writes, a->writes[i]) ||
                                           overlaps(&one->reads, a->writes[i])))) {
            return true;
        }
    }
    return false;
}

//
// Counters of products: those between two barriers use one set, those after the next the other
//

// Clears the counters of a thread in the set that was used before barrier number `i`.
static void clear_taken(struct ggml_lrnn_cpu_order * o, int i) {
    const int set = (i + 1) % 2;
    for (int j = 0; o->nth <= GGML_LRNN_CPU_MAX_THREADS && j < o->n_products[set]; ++j) {
        __atomic_store_n(&o->shares->taken[set][j][o->ith].n, 0, __ATOMIC_RELAXED);
    }
    o->n_products[set] = 0;
}

static struct ggml_lrnn_cpu_taken * next_taken(struct ggml_lrnn_cpu_order * o) {
    const int set = o->n_waits % 2;
    return o->n_waits == 0 || o->nth > GGML_LRNN_CPU_MAX_THREADS ||
                           o->n_products[set] == GGML_LRNN_CPU_MAX_PRODUCTS
                   ? NULL
                   : o->shares->taken[set][o->n_products[set]++];
}

void ggml_lrnn_cpu_order_init(struct ggml_lrnn_cpu_order * o, const struct ggml_cgraph * graph,
        const struct ggml_compute_params * params, struct ggml_lrnn_cpu_shares * shares) {
    memset(o, 0, sizeof(*o));
    o->graph  = graph;
    o->ith    = params->ith;
    o->nth    = params->nth;
    o->shares = shares;
    // both sets may have been used by another graph; the first one is not used before a barrier
    o->n_products[0] = o->n_products[1] = GGML_LRNN_CPU_MAX_PRODUCTS;
    if (o->nth > 1) {
        clear_taken(o, 0);
    }
}

static void wait_for_all(
        struct ggml_lrnn_cpu_order * o, const struct ggml_compute_params * params, int i) {
    fetch_ahead_from(o, i);
    ggml_lrnn_cpu_barrier(params->threadpool, o);
    o->n_waits++;
    clear_taken(o, o->n_waits);
    o->all.reads.n = o->all.writes.n = o->one.reads.n = o->one.writes.n = 0;
    o->all.work = o->one.work = WORK_NONE;
    o->is_unknown             = false;
}

static void record(
        struct ggml_lrnn_cpu_order * o, const struct access * a, const struct use * use) {
    struct ggml_lrnn_cpu_use * to = use->is_alone ? &o->one : &o->all;
    for (int j = 0; j < a->n_reads; ++j) {
        add(&to->reads, a->reads[j]);
    }
    for (int j = 0; j < a->n_writes; ++j) {
        add(&to->writes, a->writes[j]);
    }
    to->work      = (int) use->work > to->work ? (int) use->work : to->work;
    o->is_unknown = !use->is_known;
}

bool ggml_lrnn_cpu_before_node(
        struct ggml_lrnn_cpu_order * o, const struct ggml_compute_params * params, int i) {
    if (params->nth == 1) {
        return false;
    }
    const struct ggml_tensor * node = o->graph->nodes[i];
    struct use                 use  = use_of(node);
    if (node->op == GGML_OP_RMS_NORM && !use.is_alone) {
        use.is_known = false; // ggml may compute the product after it at the same time
    }
    const struct access a = access_of(node);
    if (must_wait(o, &a, &use)) {
        wait_for_all(o, params, i);
    }
    record(o, &a, &use);
    o->taken = use.work == WORK_OWN && node->op == GGML_OP_MUL_MAT ? next_taken(o) : NULL;
    return use.is_alone;
}
