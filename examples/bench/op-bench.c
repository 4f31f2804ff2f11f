#include "op-bench.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// How far the two sides may be apart: the sum of squared differences over the sum of squares.
static const double NMSE_MAX = 1e-10;

// The reference path is slow; where it stands in for a stock op, it is computed for this many
// tokens.
enum { REFERENCE_TOKENS_MAX = 1024 };

//
// Selection: which cases, at which shapes
//

static bool is_selected(const struct op_bench_params * p, const struct bench_case * c) {
    for (int i = 0; i < p->modes.n; ++i) {
        if (fnmatch(p->modes.v[i], c->name, 0) == 0) {
            return true;
        }
    }
    return p->modes.n == 0;
}

// Case number i of the selection; NULL at its end.
static const struct bench_case * case_at(const struct op_bench_params * p, int i) {
    const struct bench_case * tables[] = { cases_householder, cases_signed_gate, cases_short_conv };
    const int sizes[] = { n_cases_householder, n_cases_signed_gate, n_cases_short_conv };

    for (int f = 0; f < OP_FAMILY_ALL; ++f) {
        for (int j = 0; (p->family == f || p->family == OP_FAMILY_ALL) && j < sizes[f]; ++j) {
            if (is_selected(p, &tables[f][j]) && i-- == 0) {
                return &tables[f][j];
            }
        }
    }
    return NULL;
}

// Shape number i of a case: one for each token count. False at their end. Decode cases, of one
// token, stay so: a list without 1 skips them.
static bool shape_at(
        const struct op_bench_params * p, const struct bench_case * c, int i, struct op_shape * s) {
    const bool is_decode = c->shape.tokens == 1;

    *s = c->shape;
    if (p->d > 0 && s->d_k == s->d_v) {
        s->d_k = s->d_v = p->d;
    }
    if (p->d_k > 0) {
        s->d_k = p->d_k;
    }
    if (p->d_v > 0) {
        s->d_v = p->d_v;
    }
    if (p->heads > 0 && s->heads > 1) {
        s->heads = p->heads;
    }
    if (p->n_h > 0 && c->products) {
        s->n_h = p->n_h;
    }
    if (p->seqs > 0) {
        s->seqs = p->seqs;
    }
    if (p->layers > 0) {
        s->layers = p->layers;
    }

    if (p->tokens.n == 0) {
        return i == 0;
    }
    for (int j = 0; j < p->tokens.n; ++j) {
        if ((!is_decode || p->tokens.v[j] == 1) && i-- == 0) {
            s->tokens = p->tokens.v[j];
            return true;
        }
    }
    return false;
}

int op_bench_count(const struct op_bench_params * p) {
    struct op_shape s;
    int             n = 0;

    for (int i = 0; case_at(p, i) != NULL; ++i) {
        for (int j = 0; shape_at(p, case_at(p, i), j, &s); ++j) {
            n += p->threads.n;
        }
    }
    return n;
}

void op_bench_list(const struct op_bench_params * p, FILE * out) {
    for (int i = 0; case_at(p, i) != NULL; ++i) {
        const struct bench_case * c = case_at(p, i);
        fprintf(out, "%-14s %s\n", c->name, c->what);
    }
}

//
// An instance: inputs, states and graphs of one case at one shape
//

// One side of the comparison.
struct side {
    struct ggml_context * ctx; // nodes
    struct ggml_cgraph *  graph;
    ggml_gallocr_t        alloc;
    struct ggml_tensor ** states; // one for each layer
    struct op_output      output; // of the last layer
};

struct instance {
    const struct bench_case * c;
    struct op_shape           shape;
    ggml_backend_t            backend;
    struct op_inputs          inputs;
    ggml_backend_buffer_t     buffer; // of inputs and states
    struct side               ours;
    struct side               other; // stock, or the reference path where there is none
    bool                      has_stock;
    const char *              no_stock;
    bool                      refused; // by our builder
};

static void side_free(struct side * side) {
    ggml_gallocr_free(side->alloc);
    ggml_free(side->ctx);
    free(side->states);
    memset(side, 0, sizeof(*side));
}

static void instance_free(struct instance * it) {
    side_free(&it->ours);
    side_free(&it->other);
    ggml_backend_buffer_free(it->buffer);
    ggml_free(it->inputs.ctx);
    memset(it, 0, sizeof(*it));
}

// The graph of all layers. Nodes get memory as in a model: what a layer no longer needs, the next
// one uses again.
static bool side_build(struct side * side, struct instance * it, bool is_stock,
        enum ggml_scan_path path, char * err, size_t err_size) {
    const struct bench_case * c       = it->c;
    const struct op_shape *   s       = &it->shape;
    const size_t              n_nodes = 32 * (size_t) s->layers + 32;

    side->ctx   = ggml_init((struct ggml_init_params) {
              .mem_size =
                    n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false),
              .no_alloc = true,
    });
    side->alloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(it->backend));
    if (side->ctx == NULL || side->alloc == NULL) {
        snprintf(err, err_size, "%s: no memory for a graph", c->name);
        return false;
    }
    side->graph = ggml_new_graph_custom(side->ctx, n_nodes, false);

    for (int64_t l = 0; l < s->layers; ++l) {
        side->output = is_stock ? c->stock(c, s, &it->inputs, side->ctx, side->states[l])
                                : c->ours(c, s, &it->inputs, side->ctx, side->states[l], path, err,
                                          err_size);
        if (side->output.tensor == NULL) {
            it->refused = true;
            return false;
        }
        if (l == s->layers - 1) {
            ggml_set_output(side->output.tensor); // the check reads it
        }
        ggml_build_forward_expand(side->graph, side->output.tensor);
        if (side->output.store != NULL) {
            ggml_build_forward_expand(side->graph, side->output.store);
        }
    }
    if (!ggml_gallocr_alloc_graph(side->alloc, side->graph)) {
        snprintf(err, err_size, "%s: no memory for the nodes of a graph", c->name);
        return false;
    }
    return true;
}

// Where element i of the state of one sequence lies in the layout of the stock op.
static int64_t stock_index(const struct instance * it, int64_t i) {
    if (!it->has_stock || !it->c->transposed) {
        return i;
    }
    const int64_t cols = it->shape.d_v;
    const int64_t rows = op_state_size(it->c, &it->shape) / (it->shape.heads * cols);
    const int64_t head = i / (rows * cols);
    const int64_t row  = i / cols % rows;
    const int64_t col  = i % cols;

    return (head * cols + col) * rows + row;
}

// Both sides begin with the same states. They are small and positive, which suits every recurrence
// here.
static bool fill_states(struct instance * it, char * err, size_t err_size) {
    const int64_t n     = op_state_size(it->c, &it->shape);
    float *       ours  = malloc((size_t) n * sizeof(float));
    float *       other = malloc((size_t) n * sizeof(float));
    uint64_t      seed  = 0x853C49E6748FEA9BULL;
    const bool    ok    = ours != NULL && other != NULL;

    for (int64_t l = 0; ok && l < it->shape.layers * it->shape.seqs; ++l) {
        struct ggml_tensor * a      = it->ours.states[l / it->shape.seqs];
        struct ggml_tensor * b      = it->other.states[l / it->shape.seqs];
        const size_t         offset = (size_t) (l % it->shape.seqs) * a->nb[1];

        for (int64_t i = 0; i < n; ++i) {
            ours[i]                   = op_random(&seed, 0.0f, 0.1f);
            other[stock_index(it, i)] = ours[i];
        }
        ggml_backend_tensor_set(a, ours, offset, a->nb[1]);
        ggml_backend_tensor_set(b, other, offset, b->nb[1]);
    }
    if (!ok) {
        snprintf(err, err_size, "%s: no memory for a state", it->c->name);
    }
    free(ours);
    free(other);
    return ok;
}

static bool instance_build(struct instance * it, const struct bench_case * c,
        const struct op_shape * s, ggml_backend_t backend, enum ggml_scan_path path, char * err,
        size_t err_size) {
    memset(it, 0, sizeof(*it));
    it->c         = c;
    it->shape     = *s;
    it->backend   = backend;
    it->has_stock = op_has_stock(c, s, &it->no_stock);

    it->inputs.ctx   = ggml_init((struct ggml_init_params) {
              .mem_size = (OP_INPUTS_MAX + 2 + 2 * (size_t) s->layers) * ggml_tensor_overhead(),
              .no_alloc = true,
    });
    it->ours.states  = calloc((size_t) s->layers, sizeof(*it->ours.states));
    it->other.states = calloc((size_t) s->layers, sizeof(*it->other.states));
    if (it->inputs.ctx == NULL || it->ours.states == NULL || it->other.states == NULL) {
        snprintf(err, err_size, "%s: no memory", c->name);
        return false;
    }

    it->inputs.ids = ggml_new_tensor_2d(it->inputs.ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS, s->seqs);
    it->inputs.stock_ids = ggml_new_tensor_1d(it->inputs.ctx, GGML_TYPE_I32, s->seqs);
    c->inputs(c, s, &it->inputs);
    for (int64_t l = 0; l < s->layers; ++l) {
        it->ours.states[l] =
                ggml_new_tensor_2d(it->inputs.ctx, GGML_TYPE_F32, op_state_size(c, s), s->seqs);
        it->other.states[l] =
                ggml_new_tensor_2d(it->inputs.ctx, GGML_TYPE_F32, op_state_size(c, s), s->seqs);
    }
    it->buffer = ggml_backend_alloc_ctx_tensors(it->inputs.ctx, backend);
    if (it->buffer == NULL) {
        snprintf(err, err_size, "%s: no memory for the inputs of %" PRId64 " tokens", c->name,
                s->tokens * s->seqs);
        return false;
    }

    return op_inputs_fill(&it->inputs, s, err, err_size) && fill_states(it, err, err_size) &&
           side_build(&it->ours, it, false, path, err, err_size) &&
           side_build(&it->other, it, it->has_stock, GGML_SCAN_PATH_REFERENCE, err, err_size);
}

static bool side_compute(
        const struct side * side, const struct instance * it, char * err, size_t err_size) {
    const enum ggml_status status = ggml_backend_graph_compute(it->backend, side->graph);

    if (status != GGML_STATUS_SUCCESS) {
        snprintf(err, err_size, "%s: computing the graph failed: %s", it->c->name,
                ggml_status_to_string(status));
    }
    return status == GGML_STATUS_SUCCESS;
}

//
// Check
//

struct nmse {
    double difference;
    double square;
};

static void nmse_add(struct nmse * e, float x, float expected) {
    const double d = (double) x - (double) expected;

    e->difference += d * d;
    e->square += (double) expected * expected;
}

static double nmse_value(const struct nmse * e) {
    return e->difference / e->square; // NaN if anything was
}

// A copy of a tensor's numbers.
static float * tensor_read(const struct ggml_tensor * t) {
    float * data = malloc(ggml_nbytes(t));
    if (data != NULL) {
        ggml_backend_tensor_get(t, data, 0, ggml_nbytes(t));
    }
    return data;
}

// Computes each side once, from equal states, and compares outputs and new states of the last
// layer.
static bool instance_check(
        struct instance * it, struct op_result * r, char * err, size_t err_size) {
    const struct op_shape * s       = &it->shape;
    const int64_t           n_state = op_state_size(it->c, s);

    if (!side_compute(&it->ours, it, err, err_size) ||
            !side_compute(&it->other, it, err, err_size)) {
        return false;
    }

    float *    y_ours  = tensor_read(it->ours.output.tensor);
    float *    y_other = tensor_read(it->other.output.tensor);
    float *    s_ours  = tensor_read(it->ours.states[s->layers - 1]);
    float *    s_other = tensor_read(it->other.states[s->layers - 1]);
    const bool ok      = y_ours != NULL && y_other != NULL && s_ours != NULL && s_other != NULL;

    if (ok) {
        struct nmse output = { 0 }, state = { 0 };
        for (int64_t t = 0; t < s->tokens * s->seqs; ++t) {
            for (int64_t i = 0; i < s->d_v * s->heads; ++i) {
                nmse_add(&output, y_ours[it->ours.output.first + t * it->ours.output.stride + i],
                        y_other[it->other.output.first + t * it->other.output.stride + i]);
            }
        }
        for (int64_t i = 0; i < n_state * s->seqs; ++i) {
            nmse_add(&state, s_ours[i],
                    s_other[i / n_state * n_state + stock_index(it, i % n_state)]);
        }
        r->checked     = it->has_stock ? "stock" : "reference";
        r->nmse_output = nmse_value(&output);
        r->nmse_state  = nmse_value(&state);
        r->agrees      = r->nmse_output <= NMSE_MAX && r->nmse_state <= NMSE_MAX;
    } else {
        snprintf(err, err_size, "%s: no memory to compare results", it->c->name);
    }

    free(y_ours);
    free(y_other);
    free(s_ours);
    free(s_other);
    return ok;
}

//
// Timing
//

// Computes a graph n times; microseconds for one layer of one of them, negative on failure.
static double time_side(const struct side * side, const struct instance * it, int64_t n, char * err,
        size_t err_size) {
    const int64_t start_us = ggml_time_us();

    for (int64_t i = 0; i < n; ++i) {
        if (!side_compute(side, it, err, err_size)) {
            return -1.0;
        }
    }
    return (double) (ggml_time_us() - start_us) / (double) (n * it->shape.layers);
}

static int compare_doubles(const void * a, const void * b) {
    const double x = *(const double *) a;
    const double y = *(const double *) b;

    return (x > y) - (x < y);
}

static struct op_times summarise(double * times, int64_t n) {
    qsort(times, (size_t) n, sizeof(*times), compare_doubles);
    return (struct op_times) { .best = times[0], .median = times[n / 2] };
}

// Repetitions of the two sides take turns, so that whatever else the machine does hits both.
static bool instance_time(const struct instance * it, const struct op_bench_params * p,
        struct op_result * r, char * err, size_t err_size) {
    const struct side * sides[2] = { &it->ours, &it->other };
    const int           n_sides  = it->has_stock ? 2 : 1;
    int64_t             n[2]     = { 1, 1 };
    double *            times[2] = { NULL, NULL };
    bool                ok       = true;

    // warm up, and see how many graphs take min_time
    for (int i = 0; ok && i < n_sides; ++i) {
        times[i]        = calloc((size_t) p->repetitions, sizeof(double));
        const double us = time_side(sides[i], it, 1, err, err_size) * (double) it->shape.layers;
        if (times[i] == NULL) {
            snprintf(err, err_size, "no memory for %" PRId64 " times", p->repetitions);
        }
        n[i] = (int64_t) fmax(1.0, ceil(p->min_time * 1e6 / fmax(us, 1.0)));
        ok   = times[i] != NULL && us >= 0.0;
    }
    const clock_t start    = clock(); // of all threads; those that wait for others are running too
    const int64_t start_us = ggml_time_us();
    for (int64_t j = 0; ok && j < p->repetitions; ++j) {
        for (int i = 0; ok && i < n_sides; ++i) {
            times[i][j] = time_side(sides[i], it, n[i], err, err_size);
            ok          = times[i][j] >= 0.0;
        }
    }
    if (ok) {
        r->ours  = summarise(times[0], p->repetitions);
        r->stock = it->has_stock ? summarise(times[1], p->repetitions) : (struct op_times) { 0 };
        r->busy  = (double) (clock() - start) / CLOCKS_PER_SEC /
                  (1e-6 * (double) (ggml_time_us() - start_us) * r->threads);
    }
    free(times[0]);
    free(times[1]);
    return ok;
}

bool op_result_is_noisy(const struct op_result * r) {
    const double busy_min = 0.9, median_max = 1.25;

    return r->busy < busy_min || r->ours.median > median_max * r->ours.best ||
           r->stock.median > median_max * r->stock.best;
}

// Every source once, the state (source 0) read and written, the output written.
static double least_bytes(const struct instance * it) {
    const struct ggml_tensor * op = it->ours.output.tensor;
    double bytes = (double) ggml_nbytes(op) + 2.0 * (double) ggml_nbytes(op->src[0]);

    for (int i = 1; i < GGML_MAX_SRC; ++i) {
        bytes += op->src[i] != NULL ? (double) ggml_nbytes(op->src[i]) : 0.0;
    }
    return bytes;
}

//
// Run
//

static bool run_shape(const struct op_bench_params * p, const struct bench_case * c,
        const struct op_shape * s, ggml_backend_t backend, op_bench_progress progress,
        op_result_callback result, void * user, char * err, size_t err_size) {
    if (s->tokens * s->seqs > INT32_MAX) {
        snprintf(err, err_size,
                "%s: %" PRId64 " sequences of %" PRId64 " tokens are more than ids can number",
                c->name, s->seqs, s->tokens);
        return false;
    }

    struct op_shape goal_shape = c->shape;
    goal_shape.layers          = s->layers; // another number of layers is the same work

    struct op_result r = {
        .c     = c,
        .shape = *s,
        .goal  = memcmp(&goal_shape, s, sizeof(*s)) == 0 ? c->goal : 0.0,
        .flops = c->flops(c, s) * (double) (s->tokens * s->seqs),
    };
    const bool has_stock = op_has_stock(c, s, &r.no_stock);

    struct instance it = { 0 };
    bool            ok = true;
    ggml_backend_cpu_set_n_threads(backend, (int) p->threads.v[p->threads.n - 1]);

    // the reference path checks a shorter instance of its own
    if (!has_stock && s->tokens > REFERENCE_TOKENS_MAX) {
        struct op_shape shorter = *s;
        shorter.tokens          = REFERENCE_TOKENS_MAX;
        ok = instance_build(&it, c, &shorter, backend, p->path, err, err_size) &&
             instance_check(&it, &r, err, err_size);
        if (ok) {
            instance_free(&it);
            ok = instance_build(&it, c, s, backend, p->path, err, err_size);
        }
    } else {
        ok = instance_build(&it, c, s, backend, p->path, err, err_size) &&
             instance_check(&it, &r, err, err_size);
    }
    if (it.refused) {
        r.refused = err;
        ok        = true;
    } else if (ok) {
        r.bytes = least_bytes(&it);
    }

    for (int i = 0; ok && i < p->threads.n; ++i) {
        char what[128];
        snprintf(what, sizeof(what), "%s, T = %" PRId64 ", threads = %" PRId64, c->name, s->tokens,
                p->threads.v[i]);
        progress(what, user);

        r.threads = (int) p->threads.v[i];
        ggml_backend_cpu_set_n_threads(backend, r.threads);
        ok = r.refused != NULL || !r.agrees || instance_time(&it, p, &r, err, err_size);
        if (ok) {
            result(&r, user);
        }
    }
    instance_free(&it);
    return ok;
}

bool op_bench_run(const struct op_bench_params * p, op_bench_progress progress,
        op_result_callback result, void * user, char * err, size_t err_size) {
    ggml_time_init();

    ggml_backend_t backend = ggml_backend_cpu_init();
    bool           ok      = backend != NULL;
    if (!ok) {
        snprintf(err, err_size, "no memory for ggml's CPU backend");
    }

    struct op_shape s;
    for (int i = 0; ok && case_at(p, i) != NULL; ++i) {
        for (int j = 0; ok && shape_at(p, case_at(p, i), j, &s); ++j) {
            ok = run_shape(p, case_at(p, i), &s, backend, progress, result, user, err, err_size);
        }
    }
    ggml_backend_free(backend);
    return ok;
}
