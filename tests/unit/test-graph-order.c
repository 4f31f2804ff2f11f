// Graphs on several threads give the bits of one thread. The graphs are random, in memory that is
// reused as soon as it can be: nodes that read results of others, overwrite what others read, work
// in place, and share the work buffer. Most have too little work for their threads, so that a
// missing barrier shows.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "kit/check.h"
#include "kit/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_VALUES = 4, // that the next nodes may read
    N_NODES  = 80,
    N_GRAPHS = 24,
    N_RUNS   = 2, // of a graph
    N_TYPES  = 3, // of matrices
};

struct graph {
    struct ggml_context * leaf_ctx;
    ggml_backend_buffer_t leafs;
    struct ggml_tensor *  x[N_VALUES]; // [width, T]
    struct ggml_tensor *  w[N_TYPES];  // [width, width]
    struct ggml_tensor *  scale;       // [width]
    struct ggml_context * ctx;
    struct ggml_cgraph *  nodes;
    struct ggml_tensor *  y;
    ggml_gallocr_t        alloc;
};

static struct ggml_context * context(void) {
    return ggml_init((struct ggml_init_params) {
            .mem_size = 1024 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true });
}

static void fill(struct ggml_tensor * t, struct test_rng * rng, double size) {
    const int64_t n    = ggml_nelements(t);
    float *       data = malloc((size_t) n * sizeof(float));
    for (int64_t i = 0; i < n; ++i) {
        data[i] = (float) (size * test_normal(rng));
    }
    if (t->type == GGML_TYPE_F32) {
        ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    } else {
        void * blocks = malloc(ggml_nbytes(t));
        ggml_quantize_chunk(t->type, data, blocks, 0, t->ne[1], t->ne[0], NULL);
        ggml_backend_tensor_set(t, blocks, 0, ggml_nbytes(t));
        free(blocks);
    }
    free(data);
}

// A node that reads a, b or both; its numbers stay near 1.
static struct ggml_tensor * random_node(
        struct graph * g, struct test_rng * rng, struct ggml_tensor * a, struct ggml_tensor * b) {
    struct ggml_context * c = g->ctx;
    switch (test_below(rng, 13)) {
        case 0: return ggml_tanh(c, ggml_add(c, a, b));
        case 1: return ggml_mul(c, a, ggml_sigmoid(c, b));
        case 2: return ggml_relu(c, ggml_sub(c, a, b));
        case 3: return ggml_mul(c, ggml_rms_norm(c, a, 1e-5f), g->scale);
        case 4: return ggml_norm(c, a, 1e-5f);
        case 5: return ggml_scale_inplace(c, a, 0.75f);
        case 6: return ggml_tanh_inplace(c, a);
        case 7: return ggml_soft_max(c, b); // an op that may use anything
        case 8: // one column, whose product may use the work buffer in another way
            return ggml_add(c, a,
                    ggml_mul_mat(
                            c, g->w[test_below(rng, N_TYPES)], ggml_view_1d(c, b, b->ne[0], 0)));
        case 9: return ggml_swiglu_split(c, a, ggml_tanh(c, b));
        default: return ggml_mul_mat(c, g->w[test_below(rng, N_TYPES)], a);
    }
}

static void graph_make(struct graph * g, struct test_rng * rng) {
    static const int64_t        widths[] = { 64, 256, 1024 }, tokens[] = { 1, 1, 3, 9 };
    static const enum ggml_type types[N_TYPES] = { GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 };
    const int64_t               width = widths[test_below(rng, 3)], T = tokens[test_below(rng, 4)];

    g->leaf_ctx = context();
    g->scale    = ggml_new_tensor_1d(g->leaf_ctx, GGML_TYPE_F32, width);
    for (int i = 0; i < N_TYPES; ++i) {
        g->w[i] = ggml_new_tensor_2d(g->leaf_ctx, types[i], width, width);
    }
    for (int i = 0; i < N_VALUES; ++i) {
        g->x[i] = ggml_new_tensor_2d(g->leaf_ctx, GGML_TYPE_F32, width, T);
    }
    g->leafs =
            ggml_backend_alloc_ctx_tensors_from_buft(g->leaf_ctx, ggml_backend_cpu_buffer_type());
    fill(g->scale, rng, 1.0);
    for (int i = 0; i < N_TYPES; ++i) {
        fill(g->w[i], rng, 1.0 / sqrt((double) width));
    }
    struct ggml_tensor * value[N_VALUES];
    g->ctx   = context();
    g->nodes = ggml_new_graph(g->ctx);
    for (int i = 0; i < N_VALUES; ++i) {
        fill(g->x[i], rng, 1.0);
        value[i] = ggml_scale(g->ctx, g->x[i], 1.0f);
        ggml_build_forward_expand(g->nodes, value[i]);
    }
    for (int i = 0; i < N_NODES; ++i) {
        const int64_t at = test_below(rng, N_VALUES);
        value[at]        = random_node(g, rng, value[at], value[test_below(rng, N_VALUES)]);
        ggml_build_forward_expand(g->nodes, value[at]);
    }
    g->y = ggml_add(
            g->ctx, ggml_add(g->ctx, value[0], value[1]), ggml_add(g->ctx, value[2], value[3]));
    ggml_build_forward_expand(g->nodes, g->y);
    g->alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(g->alloc, g->nodes);
}

static void graph_free(struct graph * g) {
    ggml_gallocr_free(g->alloc);
    ggml_free(g->ctx);
    ggml_backend_buffer_free(g->leafs);
    ggml_free(g->leaf_ctx);
}

int main(void) {
    struct test     t   = { 0 };
    struct test_rng rng = { 16 };
    ggml_backend_t  cpu = ggml_backend_cpu_init();
    for (int i = 0; i < N_GRAPHS; ++i) {
        struct graph g;
        graph_make(&g, &rng);
        const size_t size = ggml_nbytes(g.y);
        float *      one = malloc(size), *many = malloc(size);
        ggml_backend_cpu_set_n_threads(cpu, 1);
        ggml_backend_graph_compute(cpu, g.nodes);
        ggml_backend_tensor_get(g.y, one, 0, size);
        test_check(&t, isfinite(one[0]), "graph %d: not finite", i);
        const int n_threads = i % 8 == 0 ? 3 : 2; // more than the cores of a small machine
        ggml_backend_cpu_set_n_threads(cpu, n_threads);
        for (int j = 0; j < N_RUNS; ++j) {
            ggml_backend_graph_compute(cpu, g.nodes);
            ggml_backend_tensor_get(g.y, many, 0, size);
            test_check(&t, memcmp(one, many, size) == 0,
                    "graph %d (width %d, %d tokens): %d threads and one thread give different bits",
                    i, (int) g.y->ne[0], (int) g.y->ne[1], n_threads);
        }
        free(one);
        free(many);
        graph_free(&g);
    }
    ggml_backend_free(cpu);
    return test_end(&t, "test-graph-order");
}
