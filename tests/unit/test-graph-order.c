// Graphs on several threads give the bits of one thread. The graphs are random, in memory that is
// reused as soon as it can be: nodes that read results of others, overwrite what others read, work
// in place, share the work buffer, and write the states that others read. Most have too little work
// for their threads, so that a missing barrier shows. A scheduler gives a graph an id, by which its
// plan is found again: other graphs and other numbers of threads need other plans.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "kit/check.h"
#include "kit/rng.h"
#include "lrnn-ops.h"

enum {
    N_VALUES = 4, // that the next nodes may read
    N_NODES = 80,
    N_GRAPHS = 24,
    N_STATES = 20, // graphs whose nodes read and write states
    N_RUNS = 2,    // of a graph
    N_TYPES = 4,   // of matrices
    Q5_0 = 3,      // the one whose products share the work buffer
    D = 64,        // rows and columns of the state of a head
    WIDTH = 4,     // of the short convolution
};

enum memory { HOUSEHOLDER, SIGNED, CONV, N_MEMORIES };

struct graph {
    struct ggml_context * leaf_ctx;
    ggml_backend_buffer_t leafs;
    struct ggml_tensor *  x[N_VALUES];       // [width, T]
    struct ggml_tensor *  w[N_TYPES];        // [width, width]
    struct ggml_tensor *  scale;             // [width]
    struct ggml_tensor *  ids;               // I32 [4, 1]: one sequence of T tokens, slot 0
    struct ggml_tensor *  beta;              // [1, 1, 1, T]
    struct ggml_tensor *  gate;              // [1, 1, 1, 1]
    struct ggml_tensor *  taps;              // [WIDTH, width]
    struct ggml_tensor *  first[N_MEMORIES]; // the states before the graph
    struct ggml_tensor *  state[N_MEMORIES]; // [floats, 1]
    struct ggml_tensor *  after[N_MEMORIES]; // the states after the last node that writes them
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
    const int64_t n = ggml_nelements(t);
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

// A node that writes a state; returns its result, [width, T]. The reference kernels are slow and
// give whole heads to threads: a single head to thread 0, while the others go ahead.
static struct ggml_tensor * write_state(struct graph * g, struct test_rng * rng, enum memory memory,
        struct ggml_tensor * a, struct ggml_tensor * b) {
    const enum ggml_scan_path path =
            test_below(rng, 2) == 0 ? GGML_SCAN_PATH_REFERENCE : GGML_SCAN_PATH_AUTO;
    struct ggml_context * c = g->ctx;
    const int64_t         width = a->ne[0], T = a->ne[1];
    struct ggml_tensor *  op, *state = g->state[memory];
    if (memory == CONV) {
        const struct ggml_short_conv_args args = {
            .state = state, .ids = g->ids, .x = a, .weight = g->taps
        };
        op = ggml_short_conv(c, &args, NULL);
    } else {
        struct ggml_tensor * x = ggml_reshape_4d(c, a, D, width / D, 1, T);
        struct ggml_tensor * q = ggml_l2_norm(c, x, 1e-5f);
        struct ggml_tensor * k = ggml_l2_norm(c, ggml_reshape_4d(c, b, D, width / D, 1, T), 1e-5f);
        const struct ggml_householder_scan_args householder = { .state = state,
            .ids = g->ids,
            .q = q,
            .k = k,
            .v = x,
            .beta = g->beta,
            .scale = 1.0f,
            .path = path };
        const struct ggml_signed_scan_args      signed_gate = { .state = state,
                 .ids = g->ids,
                 .c = q,
                 .b = k,
                 .x = x,
                 .gate = g->gate,
                 .scale = 1.0f,
                 .path = path };
        op = memory == HOUSEHOLDER ? ggml_householder_scan(c, &householder, NULL)
                                   : ggml_signed_scan(c, &signed_gate, NULL);
    }
    ggml_build_forward_expand(g->nodes, op);
    g->after[memory] = ggml_scan_state_after(c, op);
    return ggml_reshape_2d(c, op, width, T);
}

// The last row of x, [width].
static struct ggml_tensor * last_row(struct graph * g, struct ggml_tensor * x, int64_t width) {
    return ggml_view_1d(g->ctx, x, width, (size_t) (ggml_nelements(x) - width) * sizeof(float));
}

// Nodes that read a state on thread 0 alone or on all threads.
static struct ggml_tensor * read_state(
        struct graph * g, struct test_rng * rng, enum memory memory, struct ggml_tensor * a) {
    struct ggml_context * c = g->ctx;
    const int64_t         width = a->ne[0];
    struct ggml_tensor *  x = g->after[memory];
    switch (test_below(rng, 3)) {
        case 0: x = last_row(g, x, width); break;
        case 1: x = ggml_mul_mat(c, g->w[test_below(rng, N_TYPES)], last_row(g, x, width)); break;
        default:
            x = ggml_scale(c, ggml_reshape_2d(c, x, width, x->ne[0] / width), 0.5f);
            x = last_row(g, x, width);
    }
    return ggml_scale(c, ggml_add(c, a, x), 0.7f);
}

// Nodes that write a state, read one, or both.
static struct ggml_tensor * random_state_node(
        struct graph * g, struct test_rng * rng, struct ggml_tensor * a, struct ggml_tensor * b) {
    const enum memory memory = (enum memory) test_below(rng, N_MEMORIES);
    switch (test_below(rng, 4)) {
        case 0: return write_state(g, rng, memory, a, b);
        case 1: return read_state(g, rng, memory, a);
        default: write_state(g, rng, memory, a, b); return read_state(g, rng, memory, a);
    }
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

static void graph_make(struct graph * g, struct test_rng * rng, bool states) {
    static const int64_t widths[2][3] = { { 64, 256, 1024 }, { 64, 192, 1024 } },
                         tokens[] = { 1, 1, 3, 9 };
    static const enum ggml_type types[N_TYPES] = { GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q5_0 };
    const int64_t width = widths[states][test_below(rng, 3)], T = tokens[test_below(rng, 4)];

    g->leaf_ctx = context();
    g->scale = ggml_new_tensor_1d(g->leaf_ctx, GGML_TYPE_F32, width);
    for (int i = 0; i < N_TYPES; ++i) {
        g->w[i] = ggml_new_tensor_2d(g->leaf_ctx, types[i], width, width);
    }
    for (int i = 0; i < N_VALUES; ++i) {
        g->x[i] = ggml_new_tensor_2d(g->leaf_ctx, GGML_TYPE_F32, width, T);
    }
    g->ids = ggml_new_tensor_2d(g->leaf_ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS, 1);
    g->beta = ggml_new_tensor_4d(g->leaf_ctx, GGML_TYPE_F32, 1, 1, 1, T);
    g->gate = ggml_new_tensor_4d(g->leaf_ctx, GGML_TYPE_F32, 1, 1, 1, 1);
    g->taps = ggml_new_tensor_2d(g->leaf_ctx, GGML_TYPE_F32, WIDTH, width);
    for (int i = 0; i < N_MEMORIES; ++i) {
        const int64_t n = width * (i == CONV ? WIDTH - 1 : D);
        g->first[i] = ggml_new_tensor_2d(g->leaf_ctx, GGML_TYPE_F32, n, 1);
        g->state[i] = ggml_new_tensor_2d(g->leaf_ctx, GGML_TYPE_F32, n, 1);
        g->after[i] = g->state[i];
    }
    g->leafs =
            ggml_backend_alloc_ctx_tensors_from_buft(g->leaf_ctx, ggml_backend_cpu_buffer_type());
    const int32_t ids[GGML_SCAN_SNAPS] = { [GGML_SCAN_COUNT] = (int32_t) T };
    ggml_backend_tensor_set(g->ids, ids, 0, sizeof(ids));
    fill(g->scale, rng, 1.0);
    ggml_set_f32(g->beta, 1.5f);
    ggml_set_f32(g->gate, -0.5f);
    ggml_set_f32(g->taps, 0.5f);
    for (int i = 0; i < N_MEMORIES; ++i) {
        ggml_set_f32(g->first[i], 1.0f);
    }
    for (int i = 0; i < N_TYPES; ++i) {
        fill(g->w[i], rng, 1.0 / sqrt((double) width));
    }
    struct ggml_tensor * value[N_VALUES];
    g->ctx = context();
    g->nodes = ggml_new_graph(g->ctx);
    for (int i = 0; i < N_VALUES; ++i) {
        fill(g->x[i], rng, 1.0);
        value[i] = ggml_scale(g->ctx, g->x[i], 1.0f);
        ggml_build_forward_expand(g->nodes, value[i]);
    }
    for (int i = 0; i < N_NODES; ++i) {
        const int64_t at = test_below(rng, N_VALUES);
        value[at] = (states ? random_state_node : random_node)(
                g, rng, value[at], value[test_below(rng, N_VALUES)]);
        ggml_build_forward_expand(g->nodes, value[at]);
    }
    struct ggml_tensor * product[N_VALUES]; // which have only the work buffer in common
    for (int i = 0; i < N_VALUES; ++i) {
        product[i] = ggml_mul_mat(g->ctx, g->w[Q5_0], g->x[i]);
        ggml_build_forward_expand(g->nodes, product[i]);
    }
    for (int i = 0; i < N_VALUES; ++i) {
        value[i] = ggml_add(g->ctx, value[i], product[i]);
    }
    g->y = ggml_add(
            g->ctx, ggml_add(g->ctx, value[0], value[1]), ggml_add(g->ctx, value[2], value[3]));
    ggml_build_forward_expand(g->nodes, g->y);
    g->alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(g->alloc, g->nodes);
}

// sched may be NULL
static void graph_compute(struct graph * g, ggml_backend_t cpu, ggml_backend_sched_t sched,
        int n_threads, float * y) {
    for (int i = 0; i < N_MEMORIES; ++i) {
        ggml_backend_tensor_copy(g->first[i], g->state[i]);
    }
    ggml_backend_cpu_set_n_threads(cpu, n_threads);
    if (sched != NULL) {
        ggml_backend_sched_graph_compute(sched, g->nodes);
    } else {
        ggml_backend_graph_compute(cpu, g->nodes);
    }
    ggml_backend_tensor_get(g->y, y, 0, ggml_nbytes(g->y));
}

static void graph_free(struct graph * g) {
    ggml_gallocr_free(g->alloc);
    ggml_free(g->ctx);
    ggml_backend_buffer_free(g->leafs);
    ggml_free(g->leaf_ctx);
}

// Two graphs with the same number of nodes: products that do not depend on each other, and a chain.
// The second one must not be computed with the barriers of the first one.
static void test_another_graph(
        struct test * t, ggml_backend_t cpu, ggml_backend_sched_t sched, struct test_rng * rng) {
    enum { N_ROWS = 256, TOKENS = 9 };
    struct ggml_context * leaf_ctx = context();
    struct ggml_tensor *  w = ggml_new_tensor_2d(leaf_ctx, GGML_TYPE_F32, N_ROWS, N_ROWS);
    struct ggml_tensor *  x = ggml_new_tensor_2d(leaf_ctx, GGML_TYPE_F32, N_ROWS, TOKENS);
    ggml_backend_buffer_t leafs =
            ggml_backend_alloc_ctx_tensors_from_buft(leaf_ctx, ggml_backend_cpu_buffer_type());
    fill(w, rng, 1.0 / sqrt((double) N_ROWS));
    fill(x, rng, 1.0);

    float results[2][N_ROWS * TOKENS]; // of the chain on one and on two threads
    for (int n_threads = 1; n_threads <= 2; ++n_threads) {
        for (int is_chain = 0; is_chain < 2; ++is_chain) {
            struct ggml_context * ctx = context();
            struct ggml_cgraph *  graph = ggml_new_graph(ctx);
            struct ggml_tensor *  y = x;
            for (int i = 0; i < N_NODES; ++i) {
                y = ggml_mul_mat(ctx, w, is_chain ? y : x);
                ggml_build_forward_expand(graph, y);
            }
            ggml_set_output(y);
            ggml_backend_cpu_set_n_threads(cpu, n_threads);
            ggml_backend_sched_reset(sched);
            ggml_backend_sched_alloc_graph(sched, graph);
            ggml_backend_sched_graph_compute(sched, graph);
            ggml_backend_tensor_get(y, results[n_threads - 1], 0, sizeof(results[0]));
            ggml_free(ctx);
        }
    }
    test_check(t, memcmp(results[0], results[1], sizeof(results[0])) == 0,
            "a chain after products that do not depend on each other: different bits");
    ggml_backend_buffer_free(leafs);
    ggml_free(leaf_ctx);
}

int main(void) {
    struct test          t = { 0 };
    struct test_rng      rng = { 16 };
    ggml_backend_t       cpu = ggml_backend_cpu_init();
    ggml_backend_sched_t sched =
            ggml_backend_sched_new(&cpu, NULL, 1, GGML_DEFAULT_GRAPH_SIZE, false, false);
    for (int i = 0; i < N_GRAPHS + N_STATES; ++i) {
        struct graph g;
        graph_make(&g, &rng, i >= N_GRAPHS);
        const size_t size = ggml_nbytes(g.y);
        float *      one = malloc(size), *many = malloc(size);
        graph_compute(&g, cpu, NULL, 1, one);
        test_check(&t, isfinite(one[0]), "graph %d: not finite", i);
        const int n_threads = i % 8 == 0 ? 3 : 2; // more than the cores of a small machine
        for (int j = 0; j < N_RUNS; ++j) {
            graph_compute(&g, cpu, NULL, n_threads, many);
            test_check(&t, memcmp(one, many, size) == 0,
                    "graph %d (width %d, %d tokens): %d threads and one thread give different bits",
                    i, (int) g.y->ne[0], (int) g.y->ne[1], n_threads);
        }
        ggml_backend_sched_reset(sched);
        ggml_backend_sched_alloc_graph(sched, g.nodes);
        for (int j = 0; j < 4; ++j) {
            graph_compute(&g, cpu, sched, 1 + (j + 1) % 3, many); // 2, 3, 1 and 2 threads
            test_check(&t, memcmp(one, many, size) == 0,
                    "graph %d: call %d of a scheduler and one thread give different bits", i, j);
        }
        free(one);
        free(many);
        graph_free(&g);
    }
    for (int i = 0; i < 8; ++i) {
        test_another_graph(&t, cpu, sched, &rng);
    }
    ggml_backend_sched_free(sched);
    ggml_backend_free(cpu);
    return test_end(&t, "test-graph-order");
}
