#pragma once

// Times the cases of bench-case.h: our op and the stock ops in turn, after a check that both
// compute the same.

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
    double                    goal; // 0: none for this shape

    const char * rejected; // why our builder rejected this shape or path; the rest is then unset
    const char * checked;  // against "stock" or "reference"
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
