#pragma once

// Output of the op benchmark.

#include "machine.h"
#include "op-bench.h"
#include "results.h"

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
