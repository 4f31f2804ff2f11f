// States that scans write in place, over many graphs that a scheduler splits between two backends:
// they accumulate, and every output has the same bits for every placement of the states.

#include "lrnn.h"
#include "kit/backends.h"
#include "kit/check.h"
#include "kit/rng.h"
#include "lrnn-ops.h"
#include "run/graph-safety.h"

#include "ggml-alloc.h"

//
// A small network with all three ops
//
//     x1 = w ∘ x,   y = short_conv(x1),   o = householder_scan(v = w ∘ y),
//     z = o + signed_scan(x = w ∘ o)
//
// The weights w are on another backend than the states, so that every scan has neighbors there.
//

enum {
    D_K = 4,
    D_V = 8,
    HEADS = 2,
    CHANNELS = D_V * HEADS,
    WIDTH = 3,
    SEQS = 2,
    SLOTS = 5,
    MAX_TOKENS = 6,
    STEPS = 60,

    CONV_SIZE = CHANNELS * (WIDTH - 1),
    STATE_SIZE = D_K * D_V * HEADS,
    SLOT_SIZE = CONV_SIZE + 2 * STATE_SIZE, // conv, householder, signed
};

struct net_step {
    int     n_tokens;
    int32_t ids[SEQS][GGML_SCAN_SNAPS];
    float   x[MAX_TOKENS][CHANNELS];
    float   q[MAX_TOKENS][HEADS][D_K];
    float   k[MAX_TOKENS][HEADS][D_K];
    float   beta[MAX_TOKENS][HEADS];
    float   gate[MAX_TOKENS][HEADS];
    float   b[MAX_TOKENS][HEADS][D_K];
    float   c[MAX_TOKENS][HEADS][D_K];
    float   decay[MAX_TOKENS][HEADS];
};

struct net_weights {
    float w[CHANNELS];
    float conv[CHANNELS][WIDTH];
};

struct net_result {
    float z[STEPS][MAX_TOKENS][CHANNELS];
    float after[STEPS][STATE_SIZE * SLOTS]; // Householder state, as read in the graph
    float state[SLOTS][SLOT_SIZE];          // at the end
};

// Exact: small integers, keys ± e_i, β in {0, 1, 2}, gates in {-1, 0, 1}; the result does not
// depend on the order of sums. Otherwise random values, so that every rounding shows in the bits.
static void net_data(
        struct net_step * steps, struct net_weights * weights, bool exact, bool ragged) {
    struct test_rng rng = { exact ? 11 : 12 };

    memset(steps, 0, STEPS * sizeof(*steps));
    for (int i = 0; i < CHANNELS; ++i) {
        weights->w[i] = test_below(&rng, 2) ? 1.0f : -1.0f;
        for (int j = 0; j < WIDTH; ++j) {
            weights->conv[i][j] =
                    exact ? (float) (test_below(&rng, 4) - 1) : (float) test_uniform(&rng, -1, 1);
        }
    }

    for (int n = 0; n < STEPS; ++n) {
        struct net_step * s = &steps[n];
        s->n_tokens = ragged ? 1 + (int) test_below(&rng, MAX_TOKENS) : MAX_TOKENS / 2;

        // sequence 0 stays in slot 0, sequence 1 alternates between slots 2 and 3
        const int     n0 = (int) test_below(&rng, s->n_tokens + 1);
        const int32_t ids[SEQS][GGML_SCAN_SNAPS] = {
            { n == 0 ? -1 : 0, 0, 0, n0 },
            { n == 0 ? -1 : 2 + n % 2, 2 + (n + 1) % 2, n0, s->n_tokens - n0 },
        };
        memcpy(s->ids, ids, sizeof(ids));

        for (int t = 0; t < s->n_tokens; ++t) {
            for (int i = 0; i < CHANNELS; ++i) {
                s->x[t][i] = exact ? (float) (test_below(&rng, 5) - 2) : (float) test_normal(&rng);
            }
            for (int h = 0; h < HEADS; ++h) {
                if (exact) {
                    s->k[t][h][test_below(&rng, D_K)] = test_below(&rng, 2) ? 1.0f : -1.0f;
                    s->beta[t][h] = (float) test_below(&rng, 3);
                    s->gate[t][h] = test_below(&rng, 2) ? 1.0f : -1.0f;
                    s->decay[t][h] = test_below(&rng, 8) ? s->gate[t][h] : 0.0f;
                } else {
                    s->k[t][h][test_below(&rng, D_K)] = 0.6f;
                    s->k[t][h][0] += 0.3f;
                    s->beta[t][h] = (float) test_uniform(&rng, 0, 2);
                    s->gate[t][h] = (float) test_uniform(&rng, -1, 1);
                    s->decay[t][h] = (float) test_uniform(&rng, -1, 1);
                }
                for (int i = 0; i < D_K; ++i) {
                    s->q[t][h][i] =
                            exact ? (float) (test_below(&rng, 3) - 1) : (float) test_normal(&rng);
                    s->b[t][h][i] =
                            exact ? (float) (test_below(&rng, 3) - 1) : (float) test_normal(&rng);
                    s->c[t][h][i] =
                            exact ? (float) (test_below(&rng, 3) - 1) : (float) test_normal(&rng);
                }
            }
        }
    }
}

static float net_initial(int slot, int i) {
    return (float) (1 + slot * 7 + i % 13);
}

// The states, allocated before any graph: three tensors, or three views into one tensor.
struct memory {
    struct ggml_context * ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *  conv;        // [CONV_SIZE,  SLOTS]
    struct ggml_tensor *  householder; // [STATE_SIZE, SLOTS]
    struct ggml_tensor *  gated;       // [STATE_SIZE, SLOTS]
};

static void rows_set(struct ggml_tensor * t, const float * data, int64_t stride) {
    for (int64_t i = 0; i < t->ne[1]; ++i) {
        ggml_backend_tensor_set(
                t, data + i * stride, (size_t) i * t->nb[1], (size_t) t->ne[0] * sizeof(float));
    }
}

static void rows_get(const struct ggml_tensor * t, float * data, int64_t stride) {
    for (int64_t i = 0; i < t->ne[1]; ++i) {
        ggml_backend_tensor_get(
                t, data + i * stride, (size_t) i * t->nb[1], (size_t) t->ne[0] * sizeof(float));
    }
}

static struct memory memory_new(ggml_backend_t backend, bool interleaved) {
    struct memory m = { .ctx = test_graph_context() };
    if (interleaved) {
        struct ggml_tensor * all = ggml_new_tensor_2d(m.ctx, GGML_TYPE_F32, SLOT_SIZE, SLOTS);
        m.conv = ggml_view_2d(m.ctx, all, CONV_SIZE, SLOTS, all->nb[1], 0);
        m.householder =
                ggml_view_2d(m.ctx, all, STATE_SIZE, SLOTS, all->nb[1], sizeof(float) * CONV_SIZE);
        m.gated = ggml_view_2d(m.ctx, all, STATE_SIZE, SLOTS, all->nb[1],
                sizeof(float) * (CONV_SIZE + STATE_SIZE));
    } else {
        m.conv = ggml_new_tensor_2d(m.ctx, GGML_TYPE_F32, CONV_SIZE, SLOTS);
        m.householder = ggml_new_tensor_2d(m.ctx, GGML_TYPE_F32, STATE_SIZE, SLOTS);
        m.gated = ggml_new_tensor_2d(m.ctx, GGML_TYPE_F32, STATE_SIZE, SLOTS);
    }
    m.buffer = ggml_backend_alloc_ctx_tensors(m.ctx, backend);

    float initial[SLOTS][SLOT_SIZE];
    for (int slot = 0; slot < SLOTS; ++slot) {
        for (int i = 0; i < SLOT_SIZE; ++i) {
            initial[slot][i] = net_initial(slot, i);
        }
    }
    rows_set(m.conv, &initial[0][0], SLOT_SIZE);
    rows_set(m.householder, &initial[0][CONV_SIZE], SLOT_SIZE);
    rows_set(m.gated, &initial[0][CONV_SIZE + STATE_SIZE], SLOT_SIZE);
    return m;
}

static void memory_free(struct memory * m) {
    ggml_backend_buffer_free(m->buffer);
    ggml_free(m->ctx);
}

struct net {
    struct ggml_context * ctx;
    struct ggml_cgraph *  graph;
    struct ggml_tensor *  ids, *x, *q, *k, *beta, *gate, *b, *c, *decay;
    struct ggml_tensor *  z;     // [D_V, HEADS, T]
    struct ggml_tensor *  after; // [STATE_SIZE, SLOTS], the state after the householder scan
};

static struct ggml_tensor * input(struct ggml_context * ctx, enum ggml_type type, int64_t ne0,
        int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor * t = ggml_new_tensor_4d(ctx, type, ne0, ne1, ne2, ne3);
    ggml_set_input(t);
    return t;
}

static struct ggml_tensor * output(struct ggml_cgraph * graph, struct ggml_tensor * t) {
    ggml_set_output(t);
    ggml_build_forward_expand(graph, t);
    return t;
}

static struct net net_build(
        const struct memory * m, struct ggml_tensor * w, struct ggml_tensor * conv, int64_t T) {
    struct ggml_context * ctx = test_graph_context();
    struct net            net = {
                   .ctx = ctx,
                   .graph = ggml_new_graph(ctx),
                   .ids = input(ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS, SEQS, 1, 1),
                   .x = input(ctx, GGML_TYPE_F32, CHANNELS, T, 1, 1),
                   .q = input(ctx, GGML_TYPE_F32, D_K, HEADS, 1, T),
                   .k = input(ctx, GGML_TYPE_F32, D_K, HEADS, 1, T),
                   .beta = input(ctx, GGML_TYPE_F32, 1, HEADS, 1, T),
                   .gate = input(ctx, GGML_TYPE_F32, 1, HEADS, 1, T),
                   .b = input(ctx, GGML_TYPE_F32, D_K, HEADS, 1, T),
                   .c = input(ctx, GGML_TYPE_F32, D_K, HEADS, 1, T),
                   .decay = input(ctx, GGML_TYPE_F32, 1, HEADS, 1, T),
    };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };

    // y [CHANNELS, T]
    struct ggml_tensor * y = ggml_short_conv(ctx,
            &(struct ggml_short_conv_args) {
                    .state = m->conv,
                    .ids = net.ids,
                    .x = ggml_mul(ctx, net.x, w),
                    .weight = conv,
            },
            &err);

    // o [D_V, HEADS, T]
    struct ggml_tensor * o =
            y == NULL ? NULL
                      : ggml_householder_scan(ctx,
                                &(struct ggml_householder_scan_args) {
                                        .state = m->householder,
                                        .ids = net.ids,
                                        .q = net.q,
                                        .k = net.k,
                                        .beta = net.beta,
                                        .gate = net.gate,
                                        .scale = 1.0f,
                                        .v = ggml_reshape_4d(
                                                ctx, ggml_mul(ctx, y, w), D_V, HEADS, 1, T),
                                },
                                &err);

    struct ggml_tensor * u =
            o == NULL ? NULL : ggml_mul(ctx, ggml_reshape_2d(ctx, o, CHANNELS, T), w);
    struct ggml_tensor * r =
            o == NULL ? NULL
                      : ggml_signed_scan(ctx,
                                &(struct ggml_signed_scan_args) {
                                        .state = m->gated,
                                        .ids = net.ids,
                                        .c = net.c,
                                        .b = net.b,
                                        .gate = net.decay,
                                        .scale = 1.0f,
                                        .x = ggml_reshape_4d(ctx, u, D_V, HEADS, 1, T),
                                },
                                &err);

    if (r == NULL) {
        fprintf(stderr, "builder: %s\n", err.text);
        exit(1);
    }
    net.z = output(net.graph, ggml_add(ctx, o, r));
    net.after = output(net.graph, ggml_cont(ctx, ggml_scan_state_after(ctx, o)));
    return net;
}

static void net_set(const struct net * net, const struct net_step * s) {
    const struct {
        struct ggml_tensor * t;
        const void *         data;
    } in[] = {
        { net->ids, s->ids },
        { net->x, s->x },
        { net->q, s->q },
        { net->k, s->k },
        { net->beta, s->beta },
        { net->gate, s->gate },
        { net->b, s->b },
        { net->c, s->c },
        { net->decay, s->decay },
    };
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); ++i) {
        ggml_backend_tensor_set(in[i].t, in[i].data, 0, ggml_nbytes(in[i].t));
    }
}

struct placement {
    const char *         name;
    ggml_backend_sched_t sched; // NULL: everything on `state`, no scheduler
    ggml_backend_t       state;
    ggml_backend_t       weights;
    bool                 crosses; // no shared memory: the graph must be split
};

static struct net_result * net_run(struct test * t, const struct placement * placement,
        bool interleaved, bool rebuild, const struct net_step * steps,
        const struct net_weights * weights) {
    struct net_result * result = calloc(1, sizeof(*result));
    struct memory       memory = memory_new(placement->state, interleaved);

    struct ggml_context * ctx_w = test_graph_context();
    struct ggml_tensor *  w = ggml_new_tensor_1d(ctx_w, GGML_TYPE_F32, CHANNELS);
    struct ggml_tensor *  conv = ggml_new_tensor_2d(ctx_w, GGML_TYPE_F32, WIDTH, CHANNELS);
    ggml_backend_buffer_t buf_w = ggml_backend_alloc_ctx_tensors(ctx_w, placement->weights);
    ggml_backend_buffer_set_usage(buf_w, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_set(w, weights->w, 0, ggml_nbytes(w));
    ggml_backend_tensor_set(conv, weights->conv, 0, ggml_nbytes(conv));

    ggml_gallocr_t galloc =
            placement->sched == NULL
                    ? ggml_gallocr_new(ggml_backend_get_default_buffer_type(placement->state))
                    : NULL;
    struct net net = { 0 };
    bool       ok = true;

    for (int n = 0; ok && n < STEPS; ++n) {
        if (rebuild || n == 0) {
            ggml_free(net.ctx);
            net = net_build(&memory, w, conv, steps[n].n_tokens);
            if (galloc != NULL) {
                ok = ggml_gallocr_alloc_graph(galloc, net.graph);
            } else {
                struct lrnn_error err = { LRNN_ERROR_NONE, "" };
                ok = graph_alloc(placement->sched, net.graph, &err);
                test_check(t, ok, "%s, step %d: rejected: %s", placement->name, n, err.text);
                test_check(t,
                        !ok || !placement->crosses ||
                                ggml_backend_sched_get_n_splits(placement->sched) > 3,
                        "%s: the graph uses two backends, but has %d splits", placement->name,
                        ggml_backend_sched_get_n_splits(placement->sched));
            }
        }
        if (ok) {
            net_set(&net, &steps[n]);
            ok = (galloc != NULL ? ggml_backend_graph_compute(placement->state, net.graph)
                                 : ggml_backend_sched_graph_compute(placement->sched, net.graph)) ==
                 GGML_STATUS_SUCCESS;
            test_check(t, ok, "%s, step %d: compute failed", placement->name, n);
        }
        if (ok) {
            ggml_backend_tensor_get(net.z, result->z[n], 0, ggml_nbytes(net.z));
            ggml_backend_tensor_get(net.after, result->after[n], 0, ggml_nbytes(net.after));
        }
    }
    rows_get(memory.conv, &result->state[0][0], SLOT_SIZE);
    rows_get(memory.householder, &result->state[0][CONV_SIZE], SLOT_SIZE);
    rows_get(memory.gated, &result->state[0][CONV_SIZE + STATE_SIZE], SLOT_SIZE);

    if (placement->sched != NULL) {
        ggml_backend_sched_reset(placement->sched);
    }
    ggml_gallocr_free(galloc);
    ggml_free(net.ctx);
    ggml_backend_buffer_free(buf_w);
    ggml_free(ctx_w);
    memory_free(&memory);
    return result;
}

// The network as loops over integers. All sums are below 2^24, so F32 must give the same values.
static struct net_result * net_loop(
        struct test * t, const struct net_step * steps, const struct net_weights * weights) {
    struct net_result * result = calloc(1, sizeof(*result));
    static int64_t      state[SLOTS][SLOT_SIZE];
    int64_t             largest = 0;

    for (int slot = 0; slot < SLOTS; ++slot) {
        for (int i = 0; i < SLOT_SIZE; ++i) {
            state[slot][i] = (int64_t) net_initial(slot, i);
        }
    }
    for (int n = 0; n < STEPS; ++n) {
        const struct net_step * s = &steps[n];
        for (int seq = 0; seq < SEQS; ++seq) {
            const int32_t * id = s->ids[seq];
            int64_t         S[SLOT_SIZE] = { 0 };
            if (id[GGML_SCAN_SLOT_IN] >= 0) {
                memcpy(S, state[id[GGML_SCAN_SLOT_IN]], sizeof(S));
            }
            int64_t (*tail)[CHANNELS] = (int64_t (*)[CHANNELS]) S;
            int64_t (*S1)[D_K][D_V] = (int64_t (*)[D_K][D_V])(S + CONV_SIZE);
            int64_t (*S2)[D_K][D_V] = (int64_t (*)[D_K][D_V])(S + CONV_SIZE + STATE_SIZE);

            for (int i_t = id[GGML_SCAN_FIRST]; i_t < id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT];
                    ++i_t) {
                for (int ch = 0; ch < CHANNELS; ++ch) {
                    const int     h = ch / D_V, j = ch % D_V;
                    const int64_t w = (int64_t) weights->w[ch];

                    // short convolution
                    const int64_t x = w * (int64_t) s->x[i_t][ch];
                    int64_t       y = (int64_t) weights->conv[ch][WIDTH - 1] * x;
                    for (int i = 0; i < WIDTH - 1; ++i) {
                        y += (int64_t) weights->conv[ch][i] * tail[i][ch];
                        tail[i][ch] = i + 1 < WIDTH - 1 ? tail[i + 1][ch] : x;
                    }

                    // S ← g S,  S ← S + β k (v − Sᵀ k)ᵀ,  o = Sᵀ q, for column j
                    int64_t u = w * y, o = 0, size = 0;
                    for (int i = 0; i < D_K; ++i) {
                        S1[h][i][j] *= (int64_t) s->gate[i_t][h];
                    }
                    for (int i = 0; i < D_K; ++i) {
                        u -= S1[h][i][j] * (int64_t) s->k[i_t][h][i];
                    }
                    for (int i = 0; i < D_K; ++i) {
                        S1[h][i][j] += (int64_t) s->beta[i_t][h] * (int64_t) s->k[i_t][h][i] * u;
                        o += S1[h][i][j] * (int64_t) s->q[i_t][h][i];
                    }

                    // S ← a S + b xᵀ,  r = Sᵀ c, for column j
                    int64_t r = 0;
                    for (int i = 0; i < D_K; ++i) {
                        S2[h][i][j] = (int64_t) s->decay[i_t][h] * S2[h][i][j] +
                                      (int64_t) s->b[i_t][h][i] * w * o;
                        r += S2[h][i][j] * (int64_t) s->c[i_t][h][i];
                        size += llabs(S2[h][i][j]) + llabs(S1[h][i][j]);
                    }
                    result->z[n][i_t][ch] = (float) (o + r);
                    largest = size + llabs(u) > largest ? size + llabs(u) : largest;
                }
            }
            memcpy(state[id[GGML_SCAN_SLOT_OUT]], S, sizeof(S));
        }
        for (int slot = 0; slot < SLOTS; ++slot) {
            for (int i = 0; i < STATE_SIZE; ++i) {
                result->after[n][slot * STATE_SIZE + i] = (float) state[slot][CONV_SIZE + i];
            }
        }
    }
    for (int slot = 0; slot < SLOTS; ++slot) {
        for (int i = 0; i < SLOT_SIZE; ++i) {
            result->state[slot][i] = (float) state[slot][i];
        }
    }
    test_check(t, largest < 1 << 24, "integers grow to %lld; expected less than 2^24",
            (long long) largest);
    return result;
}

// 0 equals −0.
static bool same_values(const float * a, const float * b, size_t size) {
    for (size_t i = 0; i < size / sizeof(float); ++i) {
        if (a[i] != b[i]) {
            return false;
        }
    }
    return true;
}

static void check_same(struct test * t, const struct net_result * a, const struct net_result * b,
        bool bits, const char * what) {
    const struct {
        const char * name;
        const float *a, *b;
        size_t       size;
    } parts[] = {
        { "outputs", &a->z[0][0][0], &b->z[0][0][0], sizeof(a->z) },
        { "state after", &a->after[0][0], &b->after[0][0], sizeof(a->after) },
        { "states", &a->state[0][0], &b->state[0][0], sizeof(a->state) },
    };
    for (int i = 0; i < 3; ++i) {
        test_check(t,
                bits ? memcmp(parts[i].a, parts[i].b, parts[i].size) == 0
                     : same_values(parts[i].a, parts[i].b, parts[i].size),
                "%s: %s differ", what, parts[i].name);
    }
}

static void test_steps(struct test * t, const struct placement * placements, int n_placements) {
    static struct net_step    steps[STEPS];
    static struct net_weights weights;

    for (int mode = 0; mode < 4; ++mode) {
        const bool exact = mode % 2 == 0;
        const bool rebuild = mode / 2 == 0;
        net_data(steps, &weights, exact, rebuild);

        struct net_result * plain = net_run(t, &placements[0], false, rebuild, steps, &weights);
        if (exact) {
            struct net_result * loop = net_loop(t, steps, &weights);
            check_same(t, loop, plain, false, "loop over integers");
            free(loop);
        }
        for (int i = 1; i < n_placements; ++i) {
            for (int interleaved = 0; interleaved < 2; ++interleaved) {
                struct net_result * result =
                        net_run(t, &placements[i], interleaved, rebuild, steps, &weights);
                check_same(t, plain, result, true, placements[i].name);
                free(result);
            }
        }
        free(plain);
    }
    printf("  %d steps, graph rebuilt and reused, exact and rounded: equal bits in %d placements\n",
            STEPS, 2 * (n_placements - 1));
}

int main(void) {
    struct test          t = { 0 };
    struct test_backends b;
    if (!test_check(&t, test_backends_open(&b),
                "cannot start an RPC server on the loopback interface")) {
        return test_end(&t, "test-states-in-place");
    }
    const struct placement placements[] = {
        { "no scheduler", NULL, b.cpu, b.cpu, false },
        { "one CPU backend", b.only_cpu, b.cpu, b.cpu, false },
        { "two CPU backends", b.cpu_cpu, b.cpu_2, b.cpu, false },
        { "everything on the server", b.rpc_cpu, b.rpc, b.rpc, false },
        { "states on the server", b.rpc_cpu, b.rpc, b.cpu, true },
        { "states on the CPU", b.rpc_cpu, b.cpu, b.rpc, true },
        { "states on the server, pipelined", b.rpc_cpu_pipelined, b.rpc, b.cpu, true },
        { "states on the CPU, pipelined", b.rpc_cpu_pipelined, b.cpu, b.rpc, true },
    };
    test_steps(&t, placements, (int) (sizeof(placements) / sizeof(placements[0])));
    test_backends_close(&b);
    return test_end(&t, "test-states-in-place");
}
