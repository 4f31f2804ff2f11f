#pragma once

// The results of the model benchmark as a table, CSV or JSON, on stdout. The columns of CSV and the
// keys of JSON are those of llama-bench where they mean the same.

#include "machine.h"
#include "model-bench.h"

struct model_output {
    int                    format; // enum output_format
    const struct machine * machine;
    int                    n_rows;
};

void model_output_begin(struct model_output * out, int format, const struct machine * machine);
void model_output_row(struct model_output * out, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r);
void model_output_end(struct model_output * out);
