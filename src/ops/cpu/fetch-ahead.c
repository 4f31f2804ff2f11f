// Weights for a thread that waits.
//
// A thread that waits at a barrier knows the products that come next and which of their rows are
// its own. Generation is limited by memory, which would be idle meanwhile: the thread fetches those
// rows into its second-level cache, a few lines at a time, until the wait is over.

#include "fetch-ahead.h"

#include "ggml-impl.h"

enum {
    LINE   = 64,         // bytes of a line of the cache
    LINES  = 8,          // to fetch between two looks at the barrier
    BUDGET = 512 * 1024, // bytes to fetch before they are used: half of a second-level cache
};

// Continues with the next product that divides its rows among the threads beforehand. Others have
// many columns, and memory does not set their pace.
static bool next_product(struct ggml_lrnn_cpu_order * o) {
    struct ggml_lrnn_cpu_ahead * a = &o->ahead;
    while (++a->node < o->graph->n_nodes) {
        const struct ggml_tensor * node = o->graph->nodes[a->node];
        if (node->op == GGML_OP_MUL_MAT && ggml_lrnn_cpu_mul_mat_is_own(node)) {
            ggml_lrnn_cpu_mul_mat_share(node, o->ith, o->nth, &a->at, &a->end);
            return true;
        }
    }
    a->n_bytes = 0;
    return false;
}

void fetch_ahead_from(struct ggml_lrnn_cpu_order * o, int i) {
    if (i > o->ahead.node) {
        o->ahead = (struct ggml_lrnn_cpu_ahead) { .node = i - 1, .n_bytes = BUDGET };
    }
}

bool fetch_ahead(struct ggml_lrnn_cpu_order * o) {
    struct ggml_lrnn_cpu_ahead * a = &o->ahead;
    if (a->n_bytes <= 0 || (a->at >= a->end && !next_product(o))) {
        return false;
    }
    for (int i = 0; i < LINES && a->at < a->end; ++i, a->at += LINE, a->n_bytes -= LINE) {
        __builtin_prefetch(a->at, 0, 2);
    }
    return true;
}
