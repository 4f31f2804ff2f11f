#pragma once

// Times the cases of bench-case.h: our op and the stock ops in turn, after a check that both
// compute the same.

#include "ggml-backend.h"
#include "results.h"
#include "lrnn.h"
#include "bench-case.h"
#include "machine.h"
#include "options.h"

enum op_family {
    OP_FAMILY_HOUSEHOLDER,
    OP_FAMILY_SIGNED,
    OP_FAMILY_CONV,
    OP_FAMILY_ATTENTION,
    OP_FAMILY_MUL_MAT,
    OP_FAMILY_ALL
};

struct op_bench_params {
    int                   family; // enum op_family
    struct option_strings modes;  // patterns for names of cases; empty: all
    int                   path;   // enum ggml_scan_path
    struct option_ints    tokens; // empty: as in the case
    struct option_ints    threads;
    int64_t               d, d_k, d_v, heads, n_h, seqs, layers; // 0: as in the case
    int64_t               repetitions;
    double                min_time; // seconds per repetition of one side
    const char *          device;   // of ggml; NULL: the CPU
};

// Microseconds per call and layer.
struct op_times {
    double best;
    double median;
};

struct op_result {
    const struct bench_case * c;
    struct op_shape           shape;
    int                       threads;
    bool                      on_device; // not the CPU, whose peak and goals do not apply
    double                    goal;      // 0: none for this shape

    const char * rejected; // why our builder rejected this shape or path; the rest is then unset
    const char * checked;  // against "stock", "reference", or what a device has instead
    bool         agrees;
    double       nmse_output;
    double       nmse_state;

    const char *    no_stock; // why there is nothing to compare with; NULL: there is
    struct op_times ours;
    struct op_times stock;
    double          busy;  // share of the time that all threads ran; below 1: other work
    double          flops; // per call, by the equations
    double          bytes; // per call, at least
};

// True if the machine did other work or changed its speed during the measurement: the threads did
// not run all the time, or the median is far from the best.
bool op_result_is_noisy(const struct op_result * r);

// The number of results of op_bench_run.
int op_bench_count(const struct op_bench_params * params);

// Prints the selected cases, one per line.
void op_bench_list(const struct op_bench_params * params, FILE * out);

// Called before and after each measurement.
typedef void (*op_bench_progress)(const char * what, void * user);
typedef void (*op_result_callback)(const struct op_result * result, void * user);

// Measures the selected cases. A case that our builder rejects, or whose two sides disagree, has no
// times; that is not a failure of this function.
bool op_bench_run(const struct op_bench_params * params, op_bench_progress progress,
        op_result_callback result, void * user, struct lrnn_error * err);

//
// op-results.c: the output
//
struct op_results {
    struct results         results;
    const struct machine * machine;
    int                    n_rows;

    // notes on the cases, printed below a table
    FILE *           notes_file;
    char *           notes;
    size_t           notes_size;
    struct op_result noted; // the current case, with the worst agreement of its rows
};

void op_results_begin(struct op_results * out, int format, const struct machine * machine);
void op_results_row(struct op_results * out, const struct op_result * r);
void op_results_end(struct op_results * out);

//
// op-instance.c: inputs, states and graphs of one case at one shape: built, checked and timed
//
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
    bool                      rejected; // by our builder, or by the device
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
