#pragma once

// Inputs, states and graphs of one case at one shape: built, checked and timed.

#include "lrnn.h"
#include "op-bench.h"

#include "ggml-backend.h"

// One side of the comparison.
struct op_side {
    struct ggml_context * ctx; // nodes
    struct ggml_cgraph *  graph;
    struct ggml_gallocr * alloc;
    struct ggml_tensor ** states; // one per layer
    struct op_output      output; // of the last layer
};

struct op_instance {
    const struct bench_case * c;
    struct op_shape           shape;
    ggml_backend_t            backend;
    struct op_inputs          inputs;
    ggml_backend_buffer_t     buffer; // of inputs and states
    struct op_side            ours;
    struct op_side            other; // stock, or the reference path if there is none
    bool                      has_stock;
    const char *              no_stock; // reason
    bool                      rejected; // by our builder
};

// - path: of our op
bool op_instance_build(struct op_instance * it, const struct bench_case * c,
        const struct op_shape * s, ggml_backend_t backend, enum ggml_scan_path path,
        struct lrnn_error * err);
void op_instance_free(struct op_instance * it);

// Computes each side once, from equal states, and compares outputs and new states of the last
// layer.
bool op_instance_check(struct op_instance * it, struct op_result * r, struct lrnn_error * err);

// Times both sides. Their repetitions take turns, so that other work of the machine affects both.
bool op_instance_time(const struct op_instance * it, const struct op_bench_params * p,
        struct op_result * r, struct lrnn_error * err);

// The least memory traffic of one call: every input and output once, the state read and written.
double op_instance_bytes(const struct op_instance * it);
