#include "op-bench.h"

#include "base/error.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "program.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Largest difference of the two sides, unless a case has its own: sum of squared differences over
// sum of squares.
static const double NMSE_MAX = 1e-10;

static void side_free(struct op_side * side) {
    ggml_gallocr_free(side->alloc);
    ggml_free(side->ctx);
    free(side->states);
    memset(side, 0, sizeof(*side));
}

void op_instance_free(struct op_instance * it) {
    side_free(&it->ours);
    side_free(&it->other);
    ggml_backend_buffer_free(it->buffer);
    ggml_free(it->inputs.ctx);
    memset(it, 0, sizeof(*it));
}

// Builds the graph of all layers. As in a model, a layer reuses the memory of the layers before it.
static bool side_build(struct op_side * side, struct op_instance * it, bool is_stock,
        enum ggml_scan_path path, struct lrnn_error * err) {
    const struct bench_case * c = it->c;
    const struct op_shape *   s = &it->shape;
    const size_t              n_nodes = 32 * (size_t) s->layers + 32;

    side->ctx = ggml_init((struct ggml_init_params) {
            .mem_size =
                    n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false),
            .no_alloc = true,
    });
    side->alloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(it->backend));
    if (side->ctx == NULL || side->alloc == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory for a graph", c->name);
        return false;
    }
    side->graph = ggml_new_graph_custom(side->ctx, n_nodes, false);

    for (int64_t l = 0; l < s->layers; ++l) {
        const struct op_build b = { c, s, &it->inputs, side->ctx, side->states[l], path, err };
        side->output = is_stock ? c->stock(&b) : c->ours(&b);
        if (side->output.tensor == NULL) {
            it->rejected = true;
            return false;
        }
        if (l == s->layers - 1) {
            ggml_set_output(side->output.tensor); // for the check
        }
        ggml_build_forward_expand(side->graph, side->output.tensor);
        if (side->output.store != NULL) {
            ggml_build_forward_expand(side->graph, side->output.store);
        }
    }
    for (int i = 0; i < ggml_graph_n_nodes(side->graph); ++i) {
        const struct ggml_tensor * node = ggml_graph_node(side->graph, i);
        if (!ggml_backend_supports_op(it->backend, node)) {
            error_bad_input(err, "%s: the device does not support %s of this shape", c->name,
                    ggml_op_desc(node));
            it->rejected = true;
            return false;
        }
    }
    if (!ggml_gallocr_alloc_graph(side->alloc, side->graph)) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory for the nodes of a graph", c->name);
        return false;
    }
    return true;
}

// The index of element i of a state in the layout of the stock op.
static int64_t stock_index(const struct op_instance * it, int64_t i) {
    if (!it->has_stock || !it->c->transposed) {
        return i;
    }
    const int64_t cols = it->shape.d_v;
    const int64_t rows = op_state_size(it->c, &it->shape) / (it->shape.heads * cols);
    const int64_t head = i / (rows * cols);
    const int64_t row = i / cols % rows;
    const int64_t col = i % cols;

    return (head * cols + col) * rows + row;
}

// Both sides begin with the same states: small and positive numbers, which suit every recurrence.
static void fill_states(struct op_instance * it) {
    const int64_t n = op_state_size(it->c, &it->shape);
    float *       ours = program_alloc((size_t) n, sizeof(*ours));
    float *       other = program_alloc((size_t) n, sizeof(*other));
    uint64_t      seed = 0x853C49E6748FEA9BULL;

    for (int64_t l = 0; l < it->shape.layers * it->shape.seqs; ++l) {
        struct ggml_tensor * a = it->ours.states[l / it->shape.seqs];
        struct ggml_tensor * b = it->other.states[l / it->shape.seqs];
        const size_t         offset = (size_t) (l % it->shape.seqs) * a->nb[1];

        for (int64_t i = 0; i < n; ++i) {
            ours[i] = op_random(&seed, 0.0f, 0.1f);
            other[stock_index(it, i)] = ours[i];
        }
        op_floats_set(a, ours, offset, n);
        op_floats_set(b, other, offset, n);
    }
    free(ours);
    free(other);
}

bool op_instance_build(struct op_instance * it, const struct bench_case * c,
        const struct op_shape * s, ggml_backend_t backend, enum ggml_scan_path path,
        struct lrnn_error * err) {
    memset(it, 0, sizeof(*it));
    it->c = c;
    it->shape = *s;
    it->backend = backend;
    it->has_stock = op_has_stock(c, s, &it->no_stock);

    if (s->d_k % ggml_blck_size(c->type) != 0) {
        error_bad_input(err,
                "rows of %" PRId64 " weights; expected a multiple of %" PRId64 ", a block", s->d_k,
                ggml_blck_size(c->type));
        it->rejected = true;
        return false;
    }
    it->inputs.ctx = ggml_init((struct ggml_init_params) {
            .mem_size = (OP_INPUTS_MAX + 2 + 2 * (size_t) s->layers) * ggml_tensor_overhead(),
            .no_alloc = true,
    });
    it->ours.states = program_alloc((size_t) s->layers, sizeof(*it->ours.states));
    it->other.states = program_alloc((size_t) s->layers, sizeof(*it->other.states));
    if (it->inputs.ctx == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", c->name);
        return false;
    }

    it->inputs.ids = ggml_new_tensor_2d(it->inputs.ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS, s->seqs);
    it->inputs.stock_ids = ggml_new_tensor_1d(it->inputs.ctx, GGML_TYPE_I32, s->seqs);
    c->inputs(c, s, &it->inputs);
    for (int64_t l = 0; l < s->layers; ++l) {
        it->ours.states[l] =
                ggml_new_tensor_2d(it->inputs.ctx, c->state_type, op_state_size(c, s), s->seqs);
        it->other.states[l] =
                ggml_new_tensor_2d(it->inputs.ctx, c->state_type, op_state_size(c, s), s->seqs);
    }
    it->buffer = ggml_backend_alloc_ctx_tensors(it->inputs.ctx, backend);
    if (it->buffer == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY,
                "%s: out of memory for the inputs of %" PRId64 " tokens", c->name,
                s->tokens * s->seqs);
        return false;
    }

    op_inputs_fill(&it->inputs, s);
    fill_states(it);
    return side_build(&it->ours, it, false, path, err) &&
           side_build(&it->other, it, it->has_stock, GGML_SCAN_PATH_REFERENCE, err);
}

static bool side_compute(
        const struct op_side * side, const struct op_instance * it, struct lrnn_error * err) {
    const enum ggml_status status = ggml_backend_graph_compute(it->backend, side->graph);

    if (status != GGML_STATUS_SUCCESS) {
        error_bad_input(err, "%s: computing the graph failed: %s", it->c->name,
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
    return e->difference / e->square; // NaN if any number is
}

bool op_instance_check(struct op_instance * it, struct op_result * r, struct lrnn_error * err) {
    const struct op_shape * s = &it->shape;
    const int64_t           n_state = op_state_size(it->c, s);

    if (!side_compute(&it->ours, it, err) || !side_compute(&it->other, it, err)) {
        return false;
    }

    const struct op_output * a = &it->ours.output;
    const struct op_output * b = &it->other.output;
    float *                  y_ours = op_floats_get(a->tensor);
    float *                  y_other = op_floats_get(b->tensor);
    float *                  s_ours = op_floats_get(it->ours.states[s->layers - 1]);
    float *                  s_other = op_floats_get(it->other.states[s->layers - 1]);
    struct nmse              output = { 0 }, state = { 0 };

    for (int64_t t = 0; t < s->tokens * s->seqs; ++t) {
        for (int64_t i = 0; i < s->d_v * s->heads; ++i) {
            nmse_add(&output, y_ours[a->first + t * a->stride + i],
                    y_other[b->first + t * b->stride + i]);
        }
    }
    for (int64_t i = 0; i < n_state * s->seqs; ++i) {
        nmse_add(&state, s_ours[i], s_other[i / n_state * n_state + stock_index(it, i % n_state)]);
    }
    r->checked = it->has_stock ? "stock" : r->on_device ? "the step path" : "reference";
    r->nmse_output = nmse_value(&output);
    r->nmse_state = nmse_value(&state);
    const double max = it->c->nmse_max > 0.0 ? it->c->nmse_max : NMSE_MAX;
    r->agrees = r->nmse_output <= max && r->nmse_state <= max;
    free(y_ours);
    free(y_other);
    free(s_ours);
    free(s_other);
    return true;
}

//
// Timing
//

// Computes a graph n times. Returns the microseconds per layer of one of them, negative on failure.
static double time_side(const struct op_side * side, const struct op_instance * it, int64_t n,
        struct lrnn_error * err) {
    const int64_t start_us = ggml_time_us();

    for (int64_t i = 0; i < n; ++i) {
        if (!side_compute(side, it, err)) {
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

static struct op_times summarize(double * times, int64_t n) {
    qsort(times, (size_t) n, sizeof(*times), compare_doubles);
    return (struct op_times) { .best = times[0], .median = times[n / 2] };
}

bool op_instance_time(const struct op_instance * it, const struct op_bench_params * p,
        struct op_result * r, struct lrnn_error * err) {
    const struct op_side * sides[2] = { &it->ours, &it->other };
    const int              n_sides = it->has_stock ? 2 : 1;
    int64_t                n[2] = { 1, 1 };
    double *               times[2] = { NULL, NULL };
    bool                   ok = true;

    // warm up, and find how many graphs take min_time
    for (int i = 0; ok && i < n_sides; ++i) {
        times[i] = program_alloc((size_t) p->repetitions, sizeof(double));
        const double us = time_side(sides[i], it, 1, err) * (double) it->shape.layers;
        n[i] = (int64_t) fmax(1.0, ceil(p->min_time * 1e6 / fmax(us, 1.0)));
        ok = us >= 0.0;
    }
    const clock_t start = clock(); // of all threads, including those that wait for others
    const int64_t start_us = ggml_time_us();
    for (int64_t j = 0; ok && j < p->repetitions; ++j) {
        for (int i = 0; ok && i < n_sides; ++i) {
            times[i][j] = time_side(sides[i], it, n[i], err);
            ok = times[i][j] >= 0.0;
        }
    }
    if (ok) {
        r->ours = summarize(times[0], p->repetitions);
        r->stock = it->has_stock ? summarize(times[1], p->repetitions) : (struct op_times) { 0 };
        r->busy = r->on_device ? 1.0
                               : (double) (clock() - start) / CLOCKS_PER_SEC /
                                         (1e-6 * (double) (ggml_time_us() - start_us) * r->threads);
    }
    free(times[0]);
    free(times[1]);
    return ok;
}

double op_instance_bytes(const struct op_instance * it) {
    const struct ggml_tensor * op = it->ours.output.tensor;
    double                     bytes = (double) ggml_nbytes(op);

    if (!it->c->keeps_state) {
        bytes += (double) ggml_nbytes(op->src[0]); // written, too
    }
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        bytes += op->src[i] != NULL ? (double) ggml_nbytes(op->src[i]) : 0.0;
    }
    return bytes;
}
