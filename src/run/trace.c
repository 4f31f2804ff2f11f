#include "run/trace.h"

#include "ops/scan-common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 8 }; // of a recurrence: seven inputs and the output

struct watched_node {
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
    unsigned   what;
    lrnn_trace tell;
    void *     user;

    struct watched_node * nodes; // in the order of the graph, which is the order of computing
    int64_t               n_nodes, cap_nodes;
    int64_t               next; // the first that was not told of yet

    struct lrnn_trace_seq * seqs;
    int32_t                 n_seqs, cap_seqs;

    struct scratch copies[TENSORS_MAX]; // of tensors that are elsewhere or strided
    struct scratch span; // the bytes of a strided tensor that is elsewhere, gaps included

    const char * problem; // NULL: none
};

struct trace * trace_new(const struct lrnn_session_params * params) {
    struct trace * w = calloc(1, sizeof(*w));
    if (w != NULL) {
        w->what = params->trace_kinds;
        w->tell = params->trace;
        w->user = params->trace_user;
    }
    return w;
}

void trace_free(struct trace * w) {
    if (w == NULL) {
        return;
    }
    for (int i = 0; i < TENSORS_MAX; ++i) {
        free(w->copies[i].data);
    }
    free(w->nodes);
    free(w->seqs);
    free(w->span.data);
    free(w);
}

//
// Which nodes
//

static bool is_weight(const struct ggml_tensor * t) {
    return t->buffer != NULL &&
           ggml_backend_buffer_get_usage(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

static int32_t layer_of_weight(const struct ggml_tensor * weight) {
    int layer;
    return sscanf(weight->name, "blk.%d.", &layer) == 1 ? layer : -1;
}

static int32_t layer_of_state(const struct lrnn_model * model,
        struct ggml_tensor * (*states)[LAYER_STATES_MAX], const struct ggml_tensor * state) {
    for (int32_t il = 0; il < model->n_layer; ++il) {
        if (states[il][0] == state) {
            return il;
        }
    }
    return -1;
}

bool trace_graph(struct trace * w, const struct lrnn_model *                   model,
        struct ggml_tensor * (*states)[LAYER_STATES_MAX], struct ggml_cgraph * graph, char * err,
        size_t err_size) {
    const int64_t n = ggml_graph_n_nodes(graph);
    if (n > w->cap_nodes) {
        free(w->nodes);
        w->nodes     = malloc((size_t) n * sizeof(*w->nodes));
        w->cap_nodes = w->nodes != NULL ? n : 0;
    }
    w->n_nodes = 0;
    if (w->nodes == NULL) {
        snprintf(err, err_size, "out of memory for watching a graph of %lld nodes", (long long) n);
        return false;
    }
    for (int i = 0; i < n; ++i) {
        struct ggml_tensor * node = ggml_graph_node(graph, i);
        struct watched_node  seen = { .op = node };
        if ((w->what & LRNN_TRACE_MATRICES) && node->op == GGML_OP_MUL_MAT) {
            const struct ggml_tensor * view = node->src[0];
            seen.weight                     = view->view_src != NULL ? view->view_src : view;
            if (!is_weight(seen.weight)) {
                continue; // attention: k and q
            }
            seen.slice = (int64_t) (view->view_offs / seen.weight->nb[2]);
            seen.layer = layer_of_weight(seen.weight);
        } else if ((w->what & LRNN_TRACE_SCANS) &&
                   (node->op == GGML_OP_HOUSEHOLDER_SCAN || node->op == GGML_OP_SIGNED_SCAN)) {
            seen.layer = layer_of_state(model, states, node->src[SCAN_SRC_STATE]);
        } else {
            continue;
        }
        w->nodes[w->n_nodes++] = seen;
    }
    return true;
}

struct lrnn_trace_seq * trace_seqs(struct trace * w, int32_t n_seqs) {
    if (n_seqs > w->cap_seqs) {
        free(w->seqs);
        w->seqs     = malloc((size_t) n_seqs * sizeof(*w->seqs));
        w->cap_seqs = w->seqs != NULL ? n_seqs : 0;
    }
    w->n_seqs  = n_seqs;
    w->next    = 0;
    w->problem = NULL;
    return w->seqs;
}

//
// Their values
//

// At least `size` bytes; what was there is lost. NULL: out of memory.
static void * room(struct scratch * s, size_t size) {
    if (size > s->size) {
        free(s->data);
        s->data = malloc(size);
        s->size = s->data != NULL ? size : 0;
    }
    return s->data;
}

// The values of t, contiguous: t itself where it lies so in host memory, copy number i otherwise.
// NULL: out of memory.
static const float * values(struct trace * w, const struct ggml_tensor * t, int i) {
    ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    const bool            here   = ggml_backend_buffer_is_host(buffer);
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

// A name for each source of an op; NULL: not handed over.
static void name_householder(const char * names[GGML_MAX_SRC]) {
    names[HOUSEHOLDER_SRC_Q]    = "q";
    names[HOUSEHOLDER_SRC_K]    = "k";
    names[HOUSEHOLDER_SRC_V]    = "v";
    names[HOUSEHOLDER_SRC_BETA] = "beta";
    names[HOUSEHOLDER_SRC_GATE] = "gate";
    names[HOUSEHOLDER_SRC_R]    = "r";
    names[HOUSEHOLDER_SRC_W]    = "w";
}

static enum lrnn_transition name_signed(
        const struct scan_params * p, const char * names[GGML_MAX_SRC]) {
    names[SIGNED_SRC_C] = "c";
    names[SIGNED_SRC_B] = "b";
    names[SIGNED_SRC_X] = "x";
    switch ((enum signed_scan_kind) p->kind) {
        case SIGNED_SCAN_ELEMENT:
        case SIGNED_SCAN_SCALAR:
            names[SIGNED_SRC_GATE] = "dt";
            names[SIGNED_SRC_AUX]  = "A";
            return p->form == GGML_SIGNED_SCAN_TWO_EXP_M1 ? LRNN_TRANSITION_TWO_EXP_M1
                                                          : LRNN_TRANSITION_EXP;
        case SIGNED_SCAN_MLSTM:
            names[SIGNED_SRC_GATE] = "log_f";
            names[SIGNED_SRC_AUX]  = "log_i";
            return LRNN_TRANSITION_MLSTM;
        case SIGNED_SCAN_NONE:
        case SIGNED_SCAN_HEAD:
        case SIGNED_SCAN_CHANNEL: break;
    }
    names[SIGNED_SRC_GATE] = "gate";
    names[SIGNED_SRC_AUX]  = "bonus";
    return LRNN_TRANSITION_GATE;
}

static void tell(struct trace * w, const struct watched_node * node) {
    const struct ggml_tensor * op                  = node->op;
    const char *               names[GGML_MAX_SRC] = { NULL };
    const char *               result              = NULL;
    struct lrnn_trace_tensor   tensors[TENSORS_MAX];

    struct lrnn_trace_event seen = { .layer = node->layer,
        .slice                              = node->slice,
        .n_seqs                             = w->n_seqs,
        .seqs                               = w->seqs,
        .tensors                            = tensors };
    if (node->weight != NULL) {
        seen.weight = node->weight->name;
        names[1]    = "x";
    } else {
        const struct scan_params p = scan_params_get(op);
        const struct scan_dims   d = scan_dims_get(op);
        seen.n_head                = d.n_head;
        seen.d_k                   = d.d_k;
        seen.d_v                   = d.d_v;
        seen.scale                 = p.scale;
        seen.eps                   = p.eps;
        if (op->op == GGML_OP_HOUSEHOLDER_SCAN) {
            name_householder(names);
            seen.transition = op->src[HOUSEHOLDER_SRC_R] != NULL ? LRNN_TRANSITION_RANK_ONE
                                                                 : LRNN_TRANSITION_HOUSEHOLDER;
            result          = "o";
        } else {
            seen.transition = name_signed(&p, names);
            result          = "y";
        }
    }
    for (int i = 0; i <= GGML_MAX_SRC; ++i) { // behind the sources, the result
        const struct ggml_tensor * t    = i < GGML_MAX_SRC ? op->src[i] : op;
        const char *               name = i < GGML_MAX_SRC ? names[i] : result;
        if (t == NULL || name == NULL) {
            continue;
        }
        struct lrnn_trace_tensor * out = &tensors[seen.n_tensors];
        *out = (struct lrnn_trace_tensor) { .name = name, .data = values(w, t, seen.n_tensors) };
        memcpy(out->ne, t->ne, sizeof(out->ne));
        if (seen.weight != NULL &&
                t->ne[1] == 1) { // columns multiplied one by one (graph_linear): [width, 1, tokens]
            out->ne[1] = t->ne[2];
            out->ne[2] = 1;
        }
        if (out->data == NULL) {
            w->problem = "out of memory for what is watched";
            return;
        }
        seen.n_tensors++;
    }
    if (!w->tell(&seen, w->user)) {
        w->problem = "whoever watches stopped it";
    }
}

bool trace_node(struct ggml_tensor * node, bool ask, void * user) {
    struct trace * w = user;
    if (w->problem != NULL || w->next >= w->n_nodes || w->nodes[w->next].op != node) {
        return false; // not watched; or, after a problem, no longer
    }
    if (!ask) {
        tell(w, &w->nodes[w->next++]);
    }
    return w->problem == NULL;
}

bool trace_ok(const struct trace * w, char * err, size_t err_size) {
    if (w->problem == NULL && w->next == w->n_nodes) {
        return true;
    }
    snprintf(err, err_size, "%s",
            w->problem != NULL ? w->problem : "a watched node was not computed");
    return false;
}

const struct lrnn_trace_tensor * lrnn_trace_find(
        const struct lrnn_trace_event * watched, const char * name) {
    for (int32_t i = 0; i < watched->n_tensors; ++i) {
        if (strcmp(watched->tensors[i].name, name) == 0) {
            return &watched->tensors[i];
        }
    }
    return NULL;
}
