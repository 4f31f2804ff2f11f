#include "run/session.h"

#include "base/buffer.h"
#include "base/error.h"
#include "ops/scan-common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 8 }; // a scan has up to seven inputs and one output

struct traced_node {
    struct ggml_tensor *       op;
    const struct ggml_tensor * weight; // NULL: a scan
    int64_t                    slice;
    int32_t                    layer;
};

struct scratch {
    void * data;
    size_t size;
};

struct trace {
    unsigned   kinds; // enum lrnn_trace_kind
    lrnn_trace callback;
    void *     user;

    struct traced_node * nodes; // in the order of computation
    int64_t              n_nodes;
    size_t               cap_nodes;
    int64_t              next; // the first node not yet passed to the callback

    struct lrnn_trace_seq * seqs;
    int32_t                 n_seqs;
    size_t                  cap_seqs;

    struct scratch copies[TENSORS_MAX]; // of tensors that are strided or not in host memory
    struct scratch span;                // all bytes of a strided tensor on a device, gaps included

    enum lrnn_error_kind problem; // LRNN_ERROR_NONE: none
};

struct trace * trace_new(const struct lrnn_session_params * params) {
    struct trace * t = calloc(1, sizeof(*t));
    if (t != NULL) {
        t->kinds = params->trace_kinds;
        t->callback = params->trace;
        t->user = params->trace_user;
    }
    return t;
}

void trace_free(struct trace * t) {
    if (t == NULL) {
        return;
    }
    for (int i = 0; i < TENSORS_MAX; ++i) {
        free(t->copies[i].data);
    }
    free(t->nodes);
    free(t->seqs);
    free(t->span.data);
    free(t);
}

// ---- Selecting nodes ----------------------------------------------------------------------------

static bool is_weight(const struct ggml_tensor * t) {
    return t->buffer != NULL &&
           ggml_backend_buffer_get_usage(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

static int32_t layer_of_weight(const struct ggml_tensor * weight) {
    int layer;
    return sscanf(weight->name, "blk.%d.", &layer) == 1 ? layer : -1;
}

static int32_t layer_of_state(const struct lrnn_model * model, const struct states * states,
        const struct ggml_tensor * state) {
    for (int32_t il = 0; il < model->n_layer; ++il) {
        if (states->state[il][0] == state) {
            return il;
        }
    }
    return -1;
}

bool trace_graph(struct trace * t, const struct lrnn_model * model, const struct states * states,
        struct ggml_cgraph * graph, struct lrnn_error * err) {
    const int64_t n = ggml_graph_n_nodes(graph);
    t->n_nodes = 0;
    if (!array_grow(&t->nodes, &t->cap_nodes, (size_t) n, sizeof(*t->nodes))) {
        return error_no_memory(err, "a trace of %" PRId64 " nodes", n);
    }
    for (int i = 0; i < n; ++i) {
        struct ggml_tensor * op = ggml_graph_node(graph, i);
        struct traced_node   node = { .op = op };
        if ((t->kinds & LRNN_TRACE_MATRICES) && op->op == GGML_OP_MUL_MAT_ID) {
            node.weight = op->src[0];
            node.layer = layer_of_weight(node.weight);
        } else if ((t->kinds & LRNN_TRACE_MATRICES) && op->op == GGML_OP_MUL_MAT) {
            const struct ggml_tensor * view = op->src[0];
            node.weight = view->view_src != NULL ? view->view_src : view;
            if (!is_weight(node.weight)) {
                continue; // attention: k and q
            }
            node.slice = (int64_t) (view->view_offs / node.weight->nb[2]);
            node.layer = layer_of_weight(node.weight);
        } else if ((t->kinds & LRNN_TRACE_SCANS) &&
                   (op->op == GGML_OP_HOUSEHOLDER_SCAN || op->op == GGML_OP_SIGNED_SCAN)) {
            node.layer = layer_of_state(model, states, op->src[SCAN_SRC_STATE]);
        } else {
            continue;
        }
        t->nodes[t->n_nodes++] = node;
    }
    return true;
}

bool trace_begin(struct trace * t, const struct batch * batch) {
    if (!array_grow(&t->seqs, &t->cap_seqs, (size_t) batch->n_seqs, sizeof(*t->seqs))) {
        return false;
    }
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        const struct graph_seq * s = &batch->seqs[i];
        t->seqs[i] = (struct lrnn_trace_seq) {
            .seq = s->seq,
            .first = s->first,
            .count = s->count,
            .position = s->position,
        };
    }
    t->n_seqs = batch->n_seqs;
    t->next = 0;
    t->problem = LRNN_ERROR_NONE;
    return true;
}

// ---- Reading their values -----------------------------------------------------------------------

// At least `size` bytes, uninitialized. NULL: out of memory.
static void * room(struct scratch * s, size_t size) {
    if (size > s->size) {
        free(s->data);
        s->data = malloc(size);
        s->size = s->data != NULL ? size : 0;
    }
    return s->data;
}

// The contiguous values of a tensor: its data if possible, otherwise copy number i. NULL: out of
// memory.
static const float * values(struct trace * w, const struct ggml_tensor * t, int i) {
    ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    const bool            here = ggml_backend_buffer_is_host(buffer);
    if (here && ggml_is_contiguous(t)) {
        return t->data;
    }
    float * copy = room(&w->copies[i], (size_t) ggml_nelements(t) * sizeof(float));
    if (copy == NULL) {
        return NULL;
    }
    if (ggml_is_contiguous(t)) {
        ggml_backend_tensor_get(t, copy, 0, ggml_nbytes(t));
        return copy;
    }
    const char * span = t->data;
    if (!here) {
        char * bytes = room(&w->span, ggml_nbytes(t));
        if (bytes == NULL) {
            return NULL;
        }
        ggml_backend_tensor_get(t, bytes, 0, ggml_nbytes(t));
        span = bytes;
    }
    float * out = copy;
    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < t->ne[1]; ++i1) {
                const char * row = span + (size_t) i3 * t->nb[3] + (size_t) i2 * t->nb[2] +
                                   (size_t) i1 * t->nb[1];
                for (int64_t i0 = 0; i0 < t->ne[0]; ++i0) {
                    memcpy(out++, row + (size_t) i0 * t->nb[0], sizeof(float));
                }
            }
        }
    }
    return copy;
}

static enum lrnn_transition transition_of(
        const struct ggml_tensor * op, const struct scan_params * p) {
    if (op->op == GGML_OP_HOUSEHOLDER_SCAN) {
        return op->src[HOUSEHOLDER_SRC_R] != NULL ? LRNN_TRANSITION_RANK_ONE
                                                  : LRNN_TRANSITION_HOUSEHOLDER;
    }
    switch (p->kind) {
        case SIGNED_SCAN_ELEMENT:
        case SIGNED_SCAN_SCALAR:
            return p->form == GGML_SIGNED_SCAN_TWO_EXP_M1 ? LRNN_TRANSITION_TWO_EXP_M1
                                                          : LRNN_TRANSITION_EXP;
        case SIGNED_SCAN_MLSTM: return LRNN_TRANSITION_MLSTM;
        default: return LRNN_TRANSITION_GATE;
    }
}

// Describes the state and the transition of a scan.
static void describe_scan(const struct ggml_tensor * op, struct lrnn_trace_event * event) {
    const struct scan_params p = ggml_scan_params_get(op);
    const struct scan_dims   d = ggml_scan_dims_get(op);
    event->n_head = d.n_head;
    event->d_k = d.d_k;
    event->d_v = d.d_v;
    event->scale = p.scale;
    event->eps = p.eps;
    event->transition = transition_of(op, &p);
}

// The name of source i in an event, or of the result; NULL: not part of it.
static const char * name_of(const struct traced_node * node, int i) {
    if (node->weight != NULL) {
        return i == 1 ? "x" : NULL;
    }
    if (i == GGML_MAX_SRC) {
        return node->op->op == GGML_OP_SIGNED_SCAN ? "y" : "o";
    }
    return i > SCAN_SRC_IDS && node->op->src[i] != NULL ? ggml_scan_src_name(node->op, i) : NULL;
}

static void send(struct trace * t, const struct traced_node * node) {
    const struct ggml_tensor * op = node->op;
    struct lrnn_trace_tensor   tensors[TENSORS_MAX];
    struct lrnn_trace_event    event = {
           .layer = node->layer,
           .slice = node->slice,
           .n_seqs = t->n_seqs,
           .seqs = t->seqs,
           .tensors = tensors,
    };
    if (node->weight != NULL) {
        event.weight = node->weight->name;
    } else {
        describe_scan(op, &event);
    }
    for (int i = 0; i <= GGML_MAX_SRC; ++i) { // the sources, then the result
        const struct ggml_tensor * from = i < GGML_MAX_SRC ? op->src[i] : op;
        const char *               name = name_of(node, i);
        if (from == NULL || name == NULL) {
            continue;
        }
        struct lrnn_trace_tensor * to = &tensors[event.n_tensors];
        to->name = name;
        to->data = values(t, from, event.n_tensors);
        memcpy(to->ne, from->ne, sizeof(to->ne));
        if (event.weight != NULL && from->ne[1] == 1) { // [width, 1, T], from graph_linear
            to->ne[1] = from->ne[2];
            to->ne[2] = 1;
        }
        if (to->data == NULL) {
            t->problem = LRNN_ERROR_NO_MEMORY;
            return;
        }
        event.n_tensors++;
    }
    if (!t->callback(&event, t->user)) {
        t->problem = LRNN_ERROR_CANCELLED;
    }
}

// A product with several matrices: an event for each with the inputs that it got. In a mixture,
// slot i of token t is computed by expert ids[i, t]; x is [width, n, T], n the number of slots, or
// 1 for all of them. In a product for each head, x is [width, n, H, m].
static void send_matrices(struct trace * t, const struct traced_node * node) {
    const struct ggml_tensor * x = node->op->src[1];
    const struct ggml_tensor * ids = node->op->src[2]; // NULL: heads
    const int64_t              width = x->ne[0], k = ids != NULL ? ids->ne[0] : 1;
    const int64_t              n_slots = ids != NULL ? ggml_nelements(ids) : ggml_nrows(x);
    const float *              from = values(t, x, 0);
    const int32_t *            chosen =
            ids != NULL ? (const int32_t *) (const void *) values(t, ids, 1) : NULL;
    float * rows = room(&t->copies[2], (size_t) (width * n_slots) * sizeof(float));
    if (from == NULL || (ids != NULL && chosen == NULL) || rows == NULL) {
        t->problem = LRNN_ERROR_NO_MEMORY;
        return;
    }
    for (int64_t e = 0; e < node->weight->ne[2] && t->problem == LRNN_ERROR_NONE; ++e) {
        int64_t n = 0;
        for (int64_t i = 0; i < n_slots; ++i) {
            if (e == (ids != NULL ? chosen[i] : i / x->ne[1] % x->ne[2])) {
                const int64_t row = ids != NULL ? i / k * x->ne[1] + i % k % x->ne[1] : i;
                memcpy(rows + n++ * width, from + row * width, (size_t) width * sizeof(float));
            }
        }
        struct lrnn_trace_tensor tensor = { .name = "x", .data = rows, .ne = { width, n, 1, 1 } };
        const struct lrnn_trace_event event = {
            .layer = node->layer,
            .weight = node->weight->name,
            .slice = e,
            .n_seqs = t->n_seqs,
            .seqs = t->seqs,
            .tensors = &tensor,
            .n_tensors = 1,
        };
        if (n > 0 && !t->callback(&event, t->user)) {
            t->problem = LRNN_ERROR_CANCELLED;
        }
    }
}

bool trace_node(struct ggml_tensor * node, bool ask, void * user) {
    struct trace * t = user;
    if (t->problem != LRNN_ERROR_NONE || t->next >= t->n_nodes || t->nodes[t->next].op != node) {
        return false;
    }
    if (!ask) {
        const struct traced_node * traced = &t->nodes[t->next++];
        const bool                 several = traced->weight != NULL && node->src[0]->ne[2] > 1;
        (several ? send_matrices : send)(t, traced);
    }
    return t->problem == LRNN_ERROR_NONE;
}

bool trace_end(const struct trace * t, struct lrnn_error * err) {
    if (t->problem == LRNN_ERROR_NONE && t->next == t->n_nodes) {
        return true;
    }
    return t->problem == LRNN_ERROR_NO_MEMORY ? error_no_memory(err, "traced values")
           : t->problem == LRNN_ERROR_CANCELLED
                   ? error_set(err, t->problem, "stopped by the trace callback")
                   : error_set(err, LRNN_ERROR_INTERNAL, "a traced node was not computed");
}

const struct lrnn_trace_tensor * lrnn_trace_find(
        const struct lrnn_trace_event * event, const char * name) {
    for (int32_t i = 0; i < event->n_tensors; ++i) {
        if (strcmp(event->tensors[i].name, name) == 0) {
            return &event->tensors[i];
        }
    }
    return NULL;
}
