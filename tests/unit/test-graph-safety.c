// Graphs that could separate a scan from its state. graph-safety.h promises:
//
//   1. An op on another device than its state would lose the update. The scheduler can do that; it
//      is detected and rejected.
//   2. Plain reads of a state are rejected. Reads through ggml_scan_state_after see the new state
//      in every order of nodes.
//   3. Two scans of one state are rejected unless they are chained. Scans of separate bytes are
//      independent.
//   4. The CPU does not accept an op whose state is in memory that it cannot write.

#include "lrnn.h"
#include "kit/backends.h"
#include "kit/check.h"
#include "lrnn-ops.h"
#include "run/graph-safety.h"

//
// An accumulator: S ← S + x in slot 0
//

enum { ACC_SIZE = 8, ACC_SLOTS = 4 };

// state[slot][i] = 100·slot + i at the start; x[i] = i + 1 for slot 0
struct acc {
    struct ggml_context * ctx; // outlives the graphs
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *  state; // [ACC_SIZE, ACC_SLOTS]

    struct ggml_context * ctx_in;
    ggml_backend_buffer_t buffer_in;
    struct ggml_tensor *  ids, *one, *x; // on the CPU

    struct ggml_context * ctx_w;
    ggml_backend_buffer_t buffer_w;
    struct ggml_tensor *  two; // weights [ACC_SIZE], all 2

    struct ggml_context * ctx_g; // the current graph
    struct ggml_cgraph *  graph;
};

static void acc_init(
        struct acc * a, ggml_backend_t cpu, ggml_backend_t state, ggml_backend_t weights) {
    a->ctx = test_graph_context();
    a->state = ggml_new_tensor_2d(a->ctx, GGML_TYPE_F32, ACC_SIZE, ACC_SLOTS);
    ggml_set_name(a->state, "acc");
    a->buffer = ggml_backend_alloc_ctx_tensors(a->ctx, state);

    a->ctx_in = test_graph_context();
    a->ids = ggml_new_tensor_2d(a->ctx_in, GGML_TYPE_I32, GGML_SCAN_SNAPS, 1);
    a->one = ggml_new_tensor_4d(a->ctx_in, GGML_TYPE_F32, 1, 1, 1, 1);
    a->x = ggml_new_tensor_4d(a->ctx_in, GGML_TYPE_F32, ACC_SIZE, 1, 1, 1);
    a->buffer_in = ggml_backend_alloc_ctx_tensors(a->ctx_in, cpu);

    a->ctx_w = test_graph_context();
    a->two = ggml_new_tensor_1d(a->ctx_w, GGML_TYPE_F32, ACC_SIZE);
    a->buffer_w = ggml_backend_alloc_ctx_tensors(a->ctx_w, weights);
    ggml_backend_buffer_set_usage(a->buffer_w, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

    float initial[ACC_SLOTS][ACC_SIZE], x[ACC_SIZE], two[ACC_SIZE];
    for (int i = 0; i < ACC_SIZE; ++i) {
        for (int slot = 0; slot < ACC_SLOTS; ++slot) {
            initial[slot][i] = (float) (100 * slot + i);
        }
        x[i] = (float) (i + 1);
        two[i] = 2.0f;
    }
    const int32_t ids[GGML_SCAN_SNAPS] = { 0, 0, 0, 1 };
    const float   one = 1.0f;
    ggml_backend_tensor_set(a->state, initial, 0, sizeof(initial));
    ggml_backend_tensor_set(a->ids, ids, 0, sizeof(ids));
    ggml_backend_tensor_set(a->one, &one, 0, sizeof(one));
    ggml_backend_tensor_set(a->x, x, 0, sizeof(x));
    ggml_backend_tensor_set(a->two, two, 0, sizeof(two));

    a->ctx_g = NULL;
}

static void acc_free(struct acc * a) {
    ggml_free(a->ctx_g);
    ggml_free(a->ctx_w);
    ggml_free(a->ctx_in);
    ggml_free(a->ctx);
    ggml_backend_buffer_free(a->buffer_w);
    ggml_backend_buffer_free(a->buffer_in);
    ggml_backend_buffer_free(a->buffer);
}

static void acc_new_graph(struct acc * a) {
    ggml_free(a->ctx_g);
    a->ctx_g = test_graph_context();
    a->graph = ggml_new_graph(a->ctx_g);
}

// S ← S + x in slot 0 of `state`, y = S
static struct ggml_tensor * acc_scan_x(
        struct acc * a, struct ggml_tensor * state, struct ggml_tensor * x, const char * name) {
    struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
    struct ggml_tensor * op = ggml_signed_scan(a->ctx_g,
            &(struct ggml_signed_scan_args) {
                    .state = state,
                    .ids = a->ids,
                    .b = a->one,
                    .c = a->one,
                    .x = x,
                    .scale = 1.0f,
            },
            &err);
    if (op == NULL) {
        fprintf(stderr, "builder: %s\n", err.text);
        exit(1);
    }
    ggml_set_name(op, name);
    return op;
}

static struct ggml_tensor * acc_scan(
        struct acc * a, struct ggml_tensor * state, const char * name) {
    // the part of x that fits a slot of the state
    return acc_scan_x(a, state,
            ggml_view_4d(a->ctx_g, a->x, state->ne[0], 1, 1, 1, a->x->nb[1], a->x->nb[2],
                    a->x->nb[3], 0),
            name);
}

static struct ggml_tensor * after(struct acc * a, struct ggml_tensor * op) {
    return ggml_scan_state_after(a->ctx_g, op);
}

static struct ggml_tensor * slots(
        struct acc * a, struct ggml_tensor * state, int64_t first, int64_t n) {
    return ggml_view_2d(
            a->ctx_g, state, state->ne[0], n, state->nb[1], (size_t) first * state->nb[1]);
}

static struct ggml_tensor * columns(
        struct acc * a, struct ggml_tensor * state, int64_t first, int64_t n) {
    return ggml_view_2d(
            a->ctx_g, state, n, state->ne[1], state->nb[1], (size_t) first * sizeof(float));
}

static void acc_expand(struct acc * a, struct ggml_tensor * t) {
    ggml_build_forward_expand(a->graph, t);
}

// True if x was added n_adds times to slot 0, and all other slots are unchanged.
static bool acc_holds(const struct acc * a, int n_adds) {
    float got[ACC_SLOTS][ACC_SIZE];
    bool  ok = true;
    ggml_backend_tensor_get(a->state, got, 0, sizeof(got));
    for (int slot = 0; slot < ACC_SLOTS; ++slot) {
        for (int i = 0; i < ACC_SIZE; ++i) {
            ok = ok &&
                 got[slot][i] == (float) (100 * slot + i + (slot == 0 ? n_adds * (i + 1) : 0));
        }
    }
    return ok;
}

// Checks that the graph is rejected with a message that contains both words.
static bool must_reject(struct test * t, struct acc * a, ggml_backend_sched_t sched,
        const char * what, const char * word_1, const char * word_2) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    const bool        ok = graph_alloc(sched, a->graph, &err);
    return test_check(t, !ok, "%s is accepted", what) &&
           test_check(t, strstr(err.text, word_1) != NULL && strstr(err.text, word_2) != NULL,
                   "%s: the message does not name %s and %s: %s", what, word_1, word_2, err.text);
}

static bool must_accept(
        struct test * t, struct acc * a, ggml_backend_sched_t sched, const char * what) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    return test_check(
                   t, graph_alloc(sched, a->graph, &err), "%s is rejected: %s", what, err.text) &&
           test_check(t, ggml_backend_sched_graph_compute(sched, a->graph) == GGML_STATUS_SUCCESS,
                   "%s: compute failed", what);
}

// The op is computed on another device than its state, because the caller requests it or because
// its neighbors are there.
static void test_misplaced(struct test * t, ggml_backend_sched_t sched, ggml_backend_t cpu,
        ggml_backend_t home, ggml_backend_t away, bool drift) {
    const char * what = drift         ? "unpinned"
                        : home == cpu ? "state on the CPU, op forced away"
                                      : "state on the server, op forced away";

    for (int view = 0; view < 2; ++view) {
        struct acc a;
        acc_init(&a, cpu, home, away);
        for (int pinned = 0; pinned < 2; ++pinned) {
            acc_new_graph(&a);
            struct ggml_tensor * state = view ? slots(&a, a.state, 0, 2) : a.state;
            struct ggml_tensor * x = ggml_mul(a.ctx_g, a.x, a.two);
            struct ggml_tensor * op = acc_scan_x(&a, state, x, "op");
            struct ggml_tensor * y =
                    ggml_mul(a.ctx_g, ggml_reshape_1d(a.ctx_g, op, ACC_SIZE), a.two);
            ggml_set_name(state, "acc");
            acc_expand(&a, y);

            struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
            struct graph_scans * scans = graph_scans_find(a.graph, &err);
            if (!test_check(t, scans != NULL, "%s: %s", what, err.text)) {
                break;
            }
            ggml_backend_sched_reset(sched);
            if (pinned) {
                test_check(t, graph_scans_pin(scans, sched, &err), "%s: %s", what, err.text);
            } else if (!drift) {
                ggml_backend_sched_set_tensor_backend(sched, op, away);
            }
            test_check(
                    t, ggml_backend_sched_alloc_graph(sched, a.graph), "%s: not allocated", what);
            const bool ok = graph_scans_verify(scans, sched, &err);
            if (pinned) {
                test_check(t, ok, "%s, then pinned: %s", what, err.text);
                test_check(t, ggml_backend_sched_get_tensor_backend(sched, op) == home,
                        "%s, then pinned: not on the device of the state", what);
            } else {
                test_check(t, !ok, "%s: not detected", what);
                test_check(t, op->src[0] != state, "%s: the op uses its state: not a valid case",
                        what);
                test_check(t,
                        strstr(err.text, "SIGNED_SCAN 'op'") != NULL &&
                                strstr(err.text, "'acc'") != NULL,
                        "%s: the message does not name op and state: %s", what, err.text);
                if (view == 0) {
                    printf("  rejected: %s\n", err.text);
                }
            }

            // without the check: the output is right, the state is unchanged
            float got[ACC_SIZE];
            ggml_backend_sched_graph_compute(sched, a.graph);
            ggml_backend_tensor_get(y, got, 0, sizeof(got));
            for (int i = 0; i < ACC_SIZE; ++i) {
                test_check(t, got[i] == (float) (2 * (i + 2 * (i + 1))), "%s: output %d is %g",
                        what, i, got[i]);
            }
            test_check(t, acc_holds(&a, pinned ? 2 : 0), "%s: the update is %s", what,
                    pinned ? "lost" : "not lost: not a valid case");

            graph_scans_free(scans);
        }
        ggml_backend_sched_reset(sched);
        acc_free(&a);
    }
}

// Two backends that share memory: both can access the state, so every placement is valid.
static void test_shared_memory(
        struct test * t, ggml_backend_sched_t sched, ggml_backend_t cpu_1, ggml_backend_t cpu_2) {
    struct acc a;
    acc_init(&a, cpu_1, cpu_2, cpu_1);
    for (int n = 0; n < 2; ++n) {
        acc_new_graph(&a);
        struct ggml_tensor * op = acc_scan(&a, a.state, "op");
        acc_expand(&a, op);

        struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
        struct graph_scans * scans = graph_scans_find(a.graph, &err);
        if (test_check(t, scans != NULL, "shared memory: %s", err.text)) {
            ggml_backend_sched_reset(sched);
            ggml_backend_sched_set_tensor_backend(sched, op, n == 0 ? cpu_1 : cpu_2);
            test_check(t, ggml_backend_sched_alloc_graph(sched, a.graph),
                    "shared memory: not allocated");
            test_check(t, graph_scans_verify(scans, sched, &err), "shared memory: %s", err.text);
            ggml_backend_sched_graph_compute(sched, a.graph);
            test_check(t, acc_holds(&a, n + 1), "shared memory: the update is lost");
            graph_scans_free(scans);
        }
    }
    acc_free(&a);
}

static void test_unreachable(
        struct test * t, ggml_backend_sched_t only_cpu, ggml_backend_t cpu, ggml_backend_t rpc) {
    struct acc a;
    acc_init(&a, cpu, rpc, rpc);

    acc_new_graph(&a);
    acc_expand(&a, acc_scan(&a, a.state, "op"));
    must_reject(t, &a, only_cpu, "a state out of reach of the scheduler", "'acc'",
            ggml_backend_buffer_name(a.buffer));

    acc_new_graph(&a);
    acc_expand(&a, ggml_mul(a.ctx_g, a.x, a.two));
    must_reject(t, &a, only_cpu, "a weight out of reach of the scheduler", a.two->name,
            ggml_backend_buffer_name(a.buffer_w));

    acc_new_graph(&a);
    acc_expand(&a, ggml_scale_inplace(a.ctx_g, a.two, 2.0f));
    must_reject(t, &a, only_cpu, "a result out of reach of the scheduler", "SCALE",
            ggml_backend_buffer_name(a.buffer_w));

    acc_new_graph(&a);
    struct ggml_tensor * state = ggml_new_tensor_2d(a.ctx_g, GGML_TYPE_F32, ACC_SIZE, ACC_SLOTS);
    ggml_set_name(state, "no-buffer");
    acc_expand(&a, acc_scan(&a, state, "op"));
    must_reject(t, &a, only_cpu, "a state without a buffer", "SIGNED_SCAN 'op'", "'no-buffer'");

    acc_free(&a);
}

static void test_once(
        struct test * t, ggml_backend_sched_t sched, ggml_backend_t cpu, ggml_backend_t home) {
    struct acc a;
    acc_init(&a, cpu, home, cpu);

    acc_new_graph(&a);
    acc_expand(&a, acc_scan(&a, a.state, "op"));
    must_accept(t, &a, sched, "a new graph");
    must_reject(t, &a, sched, "a graph that was allocated before", "SIGNED_SCAN 'op'",
            "is already in buffer");
    test_check(t, acc_holds(&a, 1), "a rejected graph changed the state");

    acc_free(&a);
}

static void test_reads(struct test * t, ggml_backend_sched_t sched, ggml_backend_t cpu,
        ggml_backend_t home, ggml_backend_t reader) {
    struct acc a;
    acc_init(&a, cpu, home, reader);
    struct ggml_tensor * op;

    // plain reads before and after the scan, directly and through views
    for (int order = 0; order < 2; ++order) {
        for (int way = 0; way < 5; ++way) {
            acc_new_graph(&a);
            op = acc_scan(&a, a.state, "op");
            if (order == 0) {
                acc_expand(&a, op);
            }
            struct ggml_tensor * reads[] = {
                ggml_mul(a.ctx_g, a.state, a.two),
                ggml_cont(a.ctx_g, slots(&a, a.state, 1, 1)),
                ggml_cont(a.ctx_g,
                        ggml_transpose(a.ctx_g, ggml_reshape_3d(a.ctx_g, slots(&a, a.state, 0, 2),
                                                        ACC_SIZE / 2, 2, 2))),
                ggml_add(a.ctx_g, ggml_reshape_1d(a.ctx_g, op, ACC_SIZE), slots(&a, a.state, 0, 1)),
                ggml_cpy(a.ctx_g, a.x, ggml_view_1d(a.ctx_g, a.state, ACC_SIZE, 0)),
            };
            ggml_set_name(reads[way], "reader");
            acc_expand(&a, reads[way]);
            acc_expand(&a, op);
            must_reject(t, &a, sched, "a plain read of a state", "'reader'", "'acc'");
        }
    }
    test_check(t, acc_holds(&a, 0), "a rejected graph changed the state");

    // the state as another source of the scan
    acc_new_graph(&a);
    acc_expand(&a,
            acc_scan_x(&a, a.state,
                    ggml_reshape_4d(a.ctx_g, slots(&a, a.state, 1, 1), ACC_SIZE, 1, 1, 1), "op"));
    must_reject(t, &a, sched, "a scan that reads its own state twice", "'op'", "'acc'");

    // in-place ops through the state after
    acc_new_graph(&a);
    op = acc_scan(&a, a.state, "op");
    acc_expand(&a, ggml_scale_inplace(a.ctx_g, after(&a, op), 3.0f));
    must_reject(t, &a, sched, "an op that writes a state and is not a scan", "SCALE", "'acc'");

    // reads through the state after: in every order of nodes, on every backend
    int n_adds = 0;
    for (int order = 0; order < 3; ++order) {
        for (int way = 0; way < 3; ++way) {
            acc_new_graph(&a);
            op = acc_scan(&a, a.state, "op");
            struct ggml_tensor * new_state = after(&a, op);
            struct ggml_tensor * read;
            if (way == 0) { // placed with its weight
                read = ggml_mul(a.ctx_g, new_state, a.two);
            } else if (way == 1) { // must not be computed in place
                read = ggml_scale(a.ctx_g, new_state, 2.0f);
            } else {
                read = ggml_reshape_3d(a.ctx_g, new_state, ACC_SIZE, 1, ACC_SLOTS);
                read = ggml_cont(a.ctx_g, ggml_mul(a.ctx_g, read, a.two));
            }
            struct ggml_tensor * y =
                    ggml_mul(a.ctx_g, ggml_reshape_1d(a.ctx_g, op, ACC_SIZE), a.two);
            ggml_set_output(read);
            ggml_set_output(y);
            if (order == 0) {
                acc_expand(&a, op);
            }
            if (order == 1) {
                acc_expand(&a, y);
            }
            acc_expand(&a, read);
            acc_expand(&a, y);
            if (!must_accept(t, &a, sched, "a read through the state after")) {
                continue;
            }
            n_adds++;
            float got[ACC_SLOTS][ACC_SIZE];
            ggml_backend_tensor_get(read, got, 0, sizeof(got));
            bool ok = true;
            for (int slot = 0; slot < ACC_SLOTS; ++slot) {
                for (int i = 0; i < ACC_SIZE; ++i) {
                    ok = ok &&
                         got[slot][i] == (float) (2 * (100 * slot + i +
                                                              (slot == 0 ? n_adds * (i + 1) : 0)));
                }
            }
            test_check(t, ok, "order %d, way %d: the reader did not see the new state", order, way);
            test_check(
                    t, acc_holds(&a, n_adds), "order %d, way %d: the state is wrong", order, way);
        }
    }

    // slots and columns that no scan uses may be read directly
    acc_new_graph(&a);
    op = acc_scan(&a, slots(&a, a.state, 0, 2), "op");
    acc_expand(&a, ggml_cont(a.ctx_g, slots(&a, a.state, 2, 2)));
    acc_expand(&a, op);
    n_adds += must_accept(t, &a, sched, "a plain read of other slots");
    test_check(t, acc_holds(&a, n_adds), "a plain read of other slots: the state is wrong");

    acc_new_graph(&a);
    op = acc_scan(&a, columns(&a, a.state, 0, 5), "op");
    acc_expand(&a, ggml_cont(a.ctx_g, columns(&a, a.state, 5, 3)));
    acc_expand(&a, ggml_cont(a.ctx_g,
                           ggml_view_1d(a.ctx_g, a.state, 3, a.state->nb[1] + 5 * sizeof(float))));
    acc_expand(&a, op);
    must_accept(t, &a, sched, "a plain read of other columns");

    acc_new_graph(&a);
    op = acc_scan(&a, columns(&a, a.state, 0, 5), "op");
    acc_expand(&a, ggml_cont(a.ctx_g, columns(&a, a.state, 4, 4)));
    acc_expand(&a, op);
    must_reject(t, &a, sched, "a plain read of a column that the scan writes", "'op'", "CONT");

    acc_free(&a);
}

static void test_two_scans(
        struct test * t, ggml_backend_sched_t sched, ggml_backend_t cpu, ggml_backend_t home) {
    struct acc a;
    acc_init(&a, cpu, home, cpu);
    struct ggml_tensor *one, *two, *three;
    int                 n_adds = 0;

    // on the same slots
    acc_new_graph(&a);
    acc_expand(&a, acc_scan(&a, a.state, "one"));
    acc_expand(&a, acc_scan(&a, a.state, "two"));
    must_reject(t, &a, sched, "two scans on one state", "'two'", "'one'");

    acc_new_graph(&a);
    acc_expand(&a, acc_scan(&a, slots(&a, a.state, 0, 3), "one"));
    acc_expand(&a, acc_scan(&a, slots(&a, a.state, 2, 2), "two"));
    must_reject(t, &a, sched, "two scans with one slot in common", "'two'", "'one'");

    // a chain, and a reader at its end
    acc_new_graph(&a);
    one = acc_scan(&a, a.state, "one");
    two = acc_scan(&a, after(&a, one), "two");
    three = acc_scan(&a, after(&a, two), "three");
    struct ggml_tensor * read = ggml_scale(a.ctx_g, after(&a, three), 0.5f);
    ggml_set_output(read);
    acc_expand(&a, read);
    if (must_accept(t, &a, sched, "a chain of three scans")) {
        float got;
        n_adds += 3;
        ggml_backend_tensor_get(read, &got, 0, sizeof(got));
        test_check(t, got == 1.5f, "the reader after three scans sees %g; expected 1.5", got);
        test_check(t, acc_holds(&a, n_adds), "a chain of three scans: the state is wrong");
    }

    // a reader in the middle of a chain could see this state or the next
    acc_new_graph(&a);
    one = acc_scan(&a, a.state, "one");
    two = acc_scan(&a, after(&a, one), "two");
    read = ggml_cont(a.ctx_g, after(&a, one));
    ggml_set_name(read, "reader");
    acc_expand(&a, read);
    acc_expand(&a, two);
    must_reject(t, &a, sched, "a read between two scans", "'reader'", "'two'");

    // a plain read after one scan and before the end of the other
    acc_new_graph(&a);
    one = acc_scan(&a, a.state, "one");
    two = acc_scan(&a, slots(&a, after(&a, one), 0, 2), "two");
    read = ggml_cont(a.ctx_g, slots(&a, a.state, 3, 1));
    ggml_set_name(read, "reader");
    acc_expand(&a, two);
    acc_expand(&a, read);
    must_reject(
            t, &a, sched, "a plain read of slots of the first of two scans", "'reader'", "'one'");

    // the state after the first scan is the final state of those slots
    acc_new_graph(&a);
    one = acc_scan(&a, a.state, "one");
    two = acc_scan(&a, slots(&a, after(&a, one), 0, 2), "two");
    acc_expand(&a, two);
    acc_expand(&a, ggml_cont(a.ctx_g, slots(&a, after(&a, one), 3, 1)));
    n_adds += 2 * must_accept(t, &a, sched,
                          "a read of slots that the second of two scans does not use");
    test_check(
            t, acc_holds(&a, n_adds), "two scans, the second on fewer slots: the state is wrong");

    // separate slots, separate columns: of one tensor, and of the state after one scan
    acc_new_graph(&a);
    acc_expand(&a, acc_scan(&a, slots(&a, a.state, 0, 1), "one"));
    acc_expand(&a, acc_scan(&a, slots(&a, a.state, 1, 3), "two"));
    if (must_accept(t, &a, sched, "two scans on separate slots")) {
        float got[2][ACC_SIZE];
        ggml_backend_tensor_get(a.state, got, 0, sizeof(got));
        n_adds++;
        test_check(t,
                got[0][ACC_SIZE - 1] == (float) (7 + 8 * n_adds) &&
                        got[1][ACC_SIZE - 1] == 107.0f + 8.0f,
                "two scans on separate slots: %g, %g", got[0][ACC_SIZE - 1], got[1][ACC_SIZE - 1]);
    }

    acc_new_graph(&a);
    acc_expand(&a, acc_scan(&a, columns(&a, a.state, 0, 3), "one"));
    acc_expand(&a, acc_scan(&a, columns(&a, a.state, 3, 5), "two"));
    must_accept(t, &a, sched, "two scans on separate columns");

    for (int first = 0; first < 2; ++first) {
        acc_new_graph(&a);
        acc_expand(&a,
                acc_scan(&a, columns(&a, a.state, first == 0 ? 0 : 3, first == 0 ? 4 : 5), "one"));
        acc_expand(&a,
                acc_scan(&a, columns(&a, a.state, first == 0 ? 3 : 0, first == 0 ? 5 : 4), "two"));
        must_reject(t, &a, sched, "two scans with one column in common", "'two'", "'one'");
    }

    acc_new_graph(&a);
    one = acc_scan(&a, a.state, "one");
    two = acc_scan(&a, slots(&a, after(&a, one), 0, 2), "two");
    three = acc_scan(&a, slots(&a, after(&a, one), 2, 2), "three");
    acc_expand(&a, two);
    acc_expand(&a, three);
    must_accept(t, &a, sched, "two scans on separate slots after a third");

    acc_new_graph(&a);
    one = acc_scan(&a, slots(&a, a.state, 0, 2), "one");
    two = acc_scan(&a, slots(&a, a.state, 2, 2), "two");
    three = acc_scan(&a,
            ggml_view_2d(a.ctx_g, after(&a, one), ACC_SIZE, ACC_SLOTS, a.state->nb[1], 0), "three");
    acc_expand(&a, two);
    acc_expand(&a, three);
    must_reject(t, &a, sched, "a scan on the slots of two others that follows one of them",
            "'three'", "'two'");

    acc_free(&a);
}

static void test_supports_op(struct test * t, ggml_backend_t cpu, ggml_backend_t rpc) {
    for (int remote = 0; remote < 2; ++remote) {
        struct acc a;
        acc_init(&a, cpu, remote ? rpc : cpu, cpu);
        acc_new_graph(&a);
        test_check(t, ggml_backend_supports_op(cpu, acc_scan(&a, a.state, "op")) == !remote,
                "state in buffer '%s': the CPU answers %s", ggml_backend_buffer_name(a.buffer),
                remote ? "yes" : "no");
        test_check(t,
                ggml_backend_supports_op(cpu, acc_scan(&a, slots(&a, a.state, 1, 2), "op")) ==
                        !remote,
                "view of a state in buffer '%s': the CPU answers %s",
                ggml_backend_buffer_name(a.buffer), remote ? "yes" : "no");
        acc_free(&a);
    }
}

int main(void) {
    struct test          t = { 0 };
    struct test_backends b;
    if (!test_check(&t, test_backends_open(&b),
                "cannot start an RPC server on the loopback interface")) {
        return test_end(&t, "test-graph-safety");
    }
    test_misplaced(&t, b.rpc_cpu, b.cpu, b.rpc, b.cpu, false);
    test_misplaced(&t, b.rpc_cpu, b.cpu, b.cpu, b.rpc, false);
    test_misplaced(&t, b.rpc_cpu, b.cpu, b.cpu, b.rpc, true);
    test_shared_memory(&t, b.cpu_cpu, b.cpu, b.cpu_2);
    test_unreachable(&t, b.only_cpu, b.cpu, b.rpc);
    test_once(&t, b.rpc_cpu, b.cpu, b.rpc);
    printf("  misplaced scans, unreachable states, graphs allocated twice: rejected\n");

    ggml_backend_t homes[] = { b.cpu, b.rpc };
    for (int i = 0; i < 2; ++i) {
        test_reads(&t, b.rpc_cpu, b.cpu, homes[i], homes[i]);
        test_reads(&t, b.rpc_cpu, b.cpu, homes[i], homes[1 - i]);
        test_two_scans(&t, b.rpc_cpu, b.cpu, homes[i]);
    }
    test_reads(&t, b.cpu_cpu, b.cpu, b.cpu_2, b.cpu);
    test_two_scans(&t, b.cpu_cpu, b.cpu, b.cpu_2);
    printf("  reads and second scans: rejected if their order is open, right otherwise\n");

    test_supports_op(&t, b.cpu, b.rpc);
    test_backends_close(&b);
    return test_end(&t, "test-graph-safety");
}
