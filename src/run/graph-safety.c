#include "run/graph-safety.h"

#include "base/error.h"
#include "ops/lrnn-ops.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

// ---- The bytes of a tensor ----------------------------------------------------------------------

static ggml_backend_buffer_t buffer_of(const struct ggml_tensor * t) {
    return t->view_src != NULL ? t->view_src->buffer
                               : t->buffer; // ggml keeps no chains of view_src
}

struct region {
    ggml_backend_buffer_t buffer; // NULL: not allocated yet, so not a state
    uintptr_t             lo, hi; // bytes lo to hi - 1. Two remote devices may use equal addresses
    size_t                width;  // runs of `width` bytes ...
    size_t                stride; // ... this far apart; 0: one run
};

static struct region region_of(const struct ggml_tensor * t) {
    const size_t    size = ggml_nbytes(t);
    const uintptr_t lo = t->view_src != NULL ? (uintptr_t) t->view_src->data + t->view_offs
                                             : (uintptr_t) t->data;

    struct region r = { .buffer = buffer_of(t), .lo = lo, .hi = lo + size, .width = size };
    if (r.buffer != NULL && !ggml_is_contiguous(t)) {
        int i = GGML_MAX_DIMS - 1;
        while (i > 0 && t->ne[i] == 1) {
            i--;
        }
        r.stride = t->nb[i];
        r.width = size - (size_t) (t->ne[i] - 1) * t->nb[i];
    }
    return r;
}

// True if two regions share a byte. Exact for contiguous tensors and for columns of one matrix, as
// when several layers share a state tensor. In other layouts gaps count as bytes of the region.
static bool overlap(const struct region * a, const struct region * b) {
    if (a->buffer != b->buffer || a->lo >= b->hi || b->lo >= a->hi) {
        return false;
    }
    const size_t stride = a->stride > 0 ? a->stride : b->stride;
    if (stride == 0 || (b->stride > 0 && b->stride != stride) || a->width > stride ||
            b->width > stride) {
        return true;
    }
    // distance from the start of a run of a to the next run of b
    const size_t shift = b->lo >= a->lo ? (b->lo - a->lo) % stride
                                        : (stride - (a->lo - b->lo) % stride) % stride;
    return shift < a->width || shift + b->width > stride;
}

// ---- The scans of a graph -----------------------------------------------------------------------

struct scan {
    struct ggml_tensor * op;
    struct ggml_tensor * state;  // src[0] as built
    struct region        region; // of the state
    uintptr_t            reach; // the largest hi of this and all earlier entries in the same buffer
    int                  order; // index of the node
};

struct graph_scans {
    int         n;
    struct scan scan[]; // sorted by buffer, then by first byte
};

static int scan_compare(const void * a, const void * b) {
    const struct scan * x = a;
    const struct scan * y = b;
    if (x->region.buffer != y->region.buffer) {
        return (uintptr_t) x->region.buffer < (uintptr_t) y->region.buffer ? -1 : 1;
    }
    if (x->region.lo != y->region.lo) {
        return x->region.lo < y->region.lo ? -1 : 1;
    }
    return x->order - y->order;
}

// Finds the scans before node `before` that write bytes of a region:
//
//     int i = scans_end(scans, region);
//     while ((s = scans_next(scans, region, before, &i)) != NULL) ...
//
// One binary search, then one step per scan found, unless states share a tensor.
static int scans_end(const struct graph_scans * scans, const struct region * region) {
    int lo = 0, hi = region->buffer != NULL ? scans->n : 0;
    while (lo < hi) { // the first entry that starts at or after the end of the region
        const int             mid = lo + (hi - lo) / 2;
        const struct region * r = &scans->scan[mid].region;
        if ((uintptr_t) r->buffer < (uintptr_t) region->buffer ||
                (r->buffer == region->buffer && r->lo < region->hi)) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static const struct scan * scans_next(
        const struct graph_scans * scans, const struct region * region, int before, int * i) {
    while (*i > 0) {
        const struct scan * s = &scans->scan[--*i];
        if (s->region.buffer != region->buffer || s->reach <= region->lo) {
            break;
        }
        if (s->order < before && overlap(&s->region, region)) {
            return s;
        }
    }
    *i = 0;
    return NULL;
}

static bool is_view_op(const struct ggml_tensor * t) {
    return t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
           t->op == GGML_OP_TRANSPOSE;
}

// The scan whose result t is a view of, through ggml_scan_state_after; NULL: none.
static const struct ggml_tensor * scan_before(const struct ggml_tensor * t) {
    while (t != NULL && is_view_op(t)) {
        t = t->src[0];
    }
    return t != NULL && ggml_is_scan(t) ? t : NULL;
}

// True if t is read after `op`, directly or through later scans of the same chain.
static bool is_read_after(const struct ggml_tensor * t, const struct ggml_tensor * op) {
    for (const struct ggml_tensor * s = scan_before(t); s != NULL; s = scan_before(s->src[0])) {
        if (s == op) {
            return true;
        }
    }
    return false;
}

// A scan before node `before` that writes bytes of t and is not ordered before the read of t; NULL:
// none.
static const struct scan * scans_conflict(
        const struct graph_scans * scans, const struct ggml_tensor * t, int before) {
    const struct region region = region_of(t);

    // Fast path for long chains: if the chain of t contains as many such scans as there are, it
    // contains all of them.
    int n = 0;
    for (int i = scans_end(scans, &region); scans_next(scans, &region, before, &i) != NULL;) {
        n++;
    }
    for (const struct ggml_tensor * s = n > 0 ? scan_before(t) : NULL; s != NULL;
            s = scan_before(s->src[0])) {
        const struct region r = region_of(s->src[0]);
        n -= overlap(&r, &region);
    }
    if (n == 0) {
        return NULL;
    }

    int                 i = scans_end(scans, &region);
    const struct scan * s = scans_next(scans, &region, before, &i);
    while (s != NULL && is_read_after(t, s->op)) {
        s = scans_next(scans, &region, before, &i);
    }
    return s;
}

static bool check_node(const struct graph_scans * scans, const struct ggml_tensor * node, int order,
        struct lrnn_error * err) {
    if (is_view_op(node)) {
        return true; // reads nothing; its readers are checked
    }
    const char * op_name = ggml_op_name(node->op);

    for (int j = 0; j < GGML_MAX_SRC; ++j) {
        const struct ggml_tensor * src = node->src[j];
        if (src == NULL) {
            continue;
        }
        const bool          is_state = j == 0 && ggml_is_scan(node);
        const struct scan * s = scans_conflict(scans, src, is_state ? order : INT_MAX);
        if (s == NULL) {
            continue;
        }
        const char * s_name = ggml_op_name(s->op->op);
        if (is_state) {
            return error_set(err, LRNN_ERROR_INTERNAL,
                    "%s '%s' writes bytes of state '%s' that %s '%s' writes too; "
                    "expected its state to be ggml_scan_state_after of '%s'",
                    op_name, node->name, s->state->name, s_name, s->op->name, s->op->name);
        }
        return error_set(err, LRNN_ERROR_INTERNAL,
                "%s '%s' reads bytes of state '%s' through '%s', in no order with %s '%s'; "
                "expected a read through ggml_scan_state_after of the last scan of the state",
                op_name, node->name, s->state->name, src->name, s_name, s->op->name);
    }

    if (!ggml_is_scan(node) && node->view_src != NULL) { // in place, or a copy into a tensor
        const struct region region = region_of(node);
        int                 i = scans_end(scans, &region);
        const struct scan * s = scans_next(scans, &region, INT_MAX, &i);
        if (s != NULL) {
            return error_set(err, LRNN_ERROR_INTERNAL,
                    "%s '%s' writes bytes of state '%s' of %s '%s'; "
                    "expected only scans to write a state",
                    op_name, node->name, s->state->name, ggml_op_name(s->op->op), s->op->name);
        }
    }
    return true;
}

static bool check_scan(const struct scan * s, struct lrnn_error * err) {
    const char * op_name = ggml_op_name(s->op->op);

    if (s->op->buffer != NULL) {
        return error_set(err, LRNN_ERROR_INTERNAL,
                "%s '%s' is already in buffer '%s'; expected a graph that is not allocated",
                op_name, s->op->name, ggml_backend_buffer_name(s->op->buffer));
    }
    if (s->region.buffer == NULL) {
        return error_set(err, LRNN_ERROR_INTERNAL,
                "state '%s' of %s '%s' has no buffer; allocate states before the graph",
                s->state->name, op_name, s->op->name);
    }
    return true;
}

struct graph_scans * graph_scans_find(struct ggml_cgraph * graph, struct lrnn_error * err) {
    const int n_nodes = ggml_graph_n_nodes(graph);

    int n = 0;
    for (int i = 0; i < n_nodes; ++i) {
        n += ggml_is_scan(ggml_graph_node(graph, i));
    }

    struct graph_scans * scans = malloc(sizeof(*scans) + (size_t) n * sizeof(scans->scan[0]));
    if (scans == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory to check a graph of %d scans", n);
        return NULL;
    }
    scans->n = 0;

    bool ok = true;

    for (int i = 0; ok && i < n_nodes; ++i) {
        struct ggml_tensor * node = ggml_graph_node(graph, i);
        if (ggml_is_scan(node)) {
            struct scan * s = &scans->scan[scans->n++];
            *s = (struct scan) {
                .op = node,
                .state = node->src[0],
                .region = region_of(node->src[0]),
                .order = i,
            };
            ok = check_scan(s, err);
        }
    }

    qsort(scans->scan, (size_t) scans->n, sizeof(scans->scan[0]), scan_compare);
    for (int i = 0; i < scans->n; ++i) {
        struct scan * s = &scans->scan[i];
        s->reach = s->region.hi;
        if (i > 0 && s[-1].region.buffer == s->region.buffer && s[-1].reach > s->reach) {
            s->reach = s[-1].reach;
        }
    }

    for (int i = 0; ok && scans->n > 0 && i < n_nodes; ++i) {
        ok = check_node(scans, ggml_graph_node(graph, i), i, err);
    }

    if (!ok) {
        graph_scans_free(scans);
        return NULL;
    }
    return scans;
}

void graph_scans_free(struct graph_scans * scans) {
    free(scans);
}

// ---- Backends -----------------------------------------------------------------------------------

// A backend of the scheduler that supports op on memory of `buffer` (NULL: any). Prefers the device
// that owns the buffer, then the order of the scheduler. Host memory has no owner.
static ggml_backend_t find_backend(
        ggml_backend_sched_t sched, ggml_backend_buffer_t buffer, const struct ggml_tensor * op) {
    ggml_backend_buffer_type_t buft = buffer != NULL ? ggml_backend_buffer_get_type(buffer) : NULL;
    ggml_backend_dev_t         owner = buft != NULL ? ggml_backend_buft_get_device(buft) : NULL;

    ggml_backend_t found = NULL;
    for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); ++i) {
        ggml_backend_t backend = ggml_backend_sched_get_backend(sched, i);
        if ((buft != NULL && !ggml_backend_supports_buft(backend, buft)) ||
                !ggml_backend_supports_op(backend, op)) {
            continue;
        }
        if (owner == NULL || ggml_backend_get_device(backend) == owner) {
            return backend;
        }
        if (found == NULL) {
            found = backend;
        }
    }
    return found;
}

bool graph_scans_pin(
        const struct graph_scans * scans, ggml_backend_sched_t sched, struct lrnn_error * err) {
    for (int i = 0; i < scans->n; ++i) {
        const struct scan * s = &scans->scan[i];
        ggml_backend_t      backend = find_backend(sched, s->region.buffer, s->op);
        if (backend == NULL) {
            return error_set(err, LRNN_ERROR_INTERNAL,
                    "state '%s' is in buffer '%s', where no backend computes %s '%s'",
                    s->state->name, ggml_backend_buffer_name(s->region.buffer),
                    ggml_op_name(s->op->op), s->op->name);
        }
        // The scheduler may still move the op to a backend of higher priority that uses the same
        // buffer type (two CPU backends): its third pass ignores assignments by the caller. That
        // backend supports every source, so the state remains accessible.
        ggml_backend_sched_set_tensor_backend(sched, s->op, backend);
    }
    return true;
}

// The scheduler aborts on a tensor that none of its backends can access, and on an op that none
// supports.
static bool check_backends(
        ggml_backend_sched_t sched, struct ggml_cgraph * graph, struct lrnn_error * err) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const struct ggml_tensor * node = ggml_graph_node(graph, i);
        ggml_backend_buffer_t      buffer = buffer_of(node);
        if (!ggml_is_scan(node) && find_backend(sched, buffer, node) == NULL) {
            return error_set(err, LRNN_ERROR_INTERNAL, "no backend computes %s '%s' in buffer '%s'",
                    ggml_op_name(node->op), node->name,
                    buffer != NULL ? ggml_backend_buffer_name(buffer) : "any");
        }
        for (int j = 0; j < GGML_MAX_SRC; ++j) {
            const struct ggml_tensor * src = node->src[j];
            if (src == NULL || src->op != GGML_OP_NONE || buffer_of(src) == NULL) {
                continue; // not a leaf, or not allocated yet
            }
            if (find_backend(sched, buffer_of(src), src) == NULL) {
                return error_set(err, LRNN_ERROR_INTERNAL,
                        "tensor '%s' is in buffer '%s', which no backend can access", src->name,
                        ggml_backend_buffer_name(buffer_of(src)));
            }
        }
    }
    return true;
}

bool graph_scans_verify(
        const struct graph_scans * scans, ggml_backend_sched_t sched, struct lrnn_error * err) {
    for (int i = 0; i < scans->n; ++i) {
        const struct scan * s = &scans->scan[i];
        // The scheduler writes its copies into the sources of the nodes, so they are visible here.
        if (s->op->src[0] != s->state) {
            ggml_backend_t backend = ggml_backend_sched_get_tensor_backend(sched, s->op);
            return error_set(err, LRNN_ERROR_INTERNAL,
                    "%s '%s' runs on backend '%s', but its state '%s' is in buffer '%s': "
                    "the update of the copy '%s' would be lost",
                    ggml_op_name(s->op->op), s->op->name,
                    backend != NULL ? ggml_backend_name(backend) : "none", s->state->name,
                    ggml_backend_buffer_name(s->region.buffer), s->op->src[0]->name);
        }
    }
    return true;
}

bool graph_alloc(ggml_backend_sched_t sched, struct ggml_cgraph * graph, struct lrnn_error * err) {
    ggml_backend_sched_reset(sched); // an allocated scheduler ignores a new graph

    struct graph_scans * scans = graph_scans_find(graph, err);
    if (scans == NULL) {
        return false;
    }

    bool ok = graph_scans_pin(scans, sched, err) && check_backends(sched, graph, err);
    if (ok) {
        ok = ggml_backend_sched_alloc_graph(sched, graph)
                     ? graph_scans_verify(scans, sched, err)
                     : error_no_memory(err, "a graph of %d nodes", ggml_graph_n_nodes(graph));
    }
    if (!ok) {
        ggml_backend_sched_reset(sched);
    }
    graph_scans_free(scans);
    return ok;
}
