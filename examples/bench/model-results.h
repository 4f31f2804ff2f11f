#pragma once

// Output of the model benchmark. CSV columns and JSON keys are those of llama-bench where they have
// the same meaning.

#include "machine.h"
#include "model-bench.h"
#include "results.h"

struct model_results {
    struct results         results;
    const struct machine * machine;
};

void model_results_begin(struct model_results * out, int format, const struct machine * machine);
void model_results_row(struct model_results * out, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r);
void model_results_end(struct model_results * out);
