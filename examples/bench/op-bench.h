#pragma once

// Times the cases of op-case.h: our op against the stock ops, in turns, after a check that both
// compute the same.

#include "machine.h"
#include "bench-case.h"
#include "options.h"

enum op_family {
    OP_FAMILY_HOUSEHOLDER,
    OP_FAMILY_SIGNED,
    OP_FAMILY_CONV,
    OP_FAMILY_ALL,
};

struct op_bench_params {
    int                   family; // enum op_family
    struct option_strings modes;  // patterns for names of cases; none: all
    int                   path;   // enum ggml_scan_path
    struct option_ints    tokens; // empty: of the case
    struct option_ints    threads;
    int64_t               d; // 0: of the case
    int64_t               d_k;
    int64_t               d_v;
    int64_t               heads;
    int64_t               n_h;
    int64_t               seqs;
    int64_t               layers;
    int64_t               repetitions;
    double                min_time; // seconds of one repetition of one side
};

// Times of one call of one layer, in microseconds.
struct op_times {
    double best;
    double median;
};

struct op_result {
    const struct bench_case * c;
    struct op_shape           shape;
    int                       threads;
    double                    goal; // 0: none for this shape

    const char *
            refused; // why our builder would not take this shape or path; NULL: it did. The rest is not set then.
    const char * checked; // against what: "stock" or "reference"
    bool         agrees;
    double       nmse_output;
    double       nmse_state;

    const char *    no_stock; // why there is nothing to compare with; NULL: there is
    struct op_times ours;
    struct op_times stock;
    double busy; // share of the time that all threads were running; less than 1 if others wanted the machine too
    double flops; // of one call, by the equations
    double bytes; // least traffic of one call: every input and output once, the state read and written once
};

// True if the machine had other work, or changed its speed, while this row was measured: its
// threads were not running all the time, or the median is far from the best.
bool op_result_is_noisy(const struct op_result * r);

typedef void (*op_result_callback)(const struct op_result * result, void * user);

// Selected rows, to plan ahead: how many results op_bench_run will give.
int op_bench_count(const struct op_bench_params * params);

// Names of the selected cases with what they are, one a line.
void op_bench_list(const struct op_bench_params * params, FILE * out);

// Called before each row is measured.
typedef void (*op_bench_progress)(const char * what, void * user);

// Measures all rows. A row that our builder refuses, or whose two sides disagree, is given without
// times; that is not a failure of this function.
bool op_bench_run(const struct op_bench_params * params, op_bench_progress progress,
        op_result_callback result, void * user, char * err, size_t err_size);
