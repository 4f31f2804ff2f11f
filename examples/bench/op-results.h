#pragma once

// The results of the op benchmark as a table, CSV or JSON, on stdout.

#include "machine.h"
#include "op-bench.h"

enum output_format {
    OUTPUT_MD,
    OUTPUT_CSV,
    OUTPUT_JSON,
};

struct output {
    int                    format; // enum output_format
    const struct machine * machine;
    int                    n_rows;

    // of the table: notes about its cases, which follow it
    FILE * notes_file;
    char * notes;
    size_t notes_size;
    struct op_result
            noted; // the case that the next note is about, with the worst agreement among its rows
};

bool output_begin(struct output * out, int format, const struct machine * machine, char * err,
        size_t err_size);
void output_row(struct output * out, const struct op_result * r);
void output_end(struct output * out);
