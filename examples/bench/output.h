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
    char                 * notes;  // of the table: what follows it
    size_t                 notes_size;
    FILE                 * notes_file;
    const char           * last_case;
};

bool output_begin(struct output * out, int format, const struct machine * machine, char * err, size_t err_size);
void output_row  (struct output * out, const struct op_result * r);
void output_end  (struct output * out);
