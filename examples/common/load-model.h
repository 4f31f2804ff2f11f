#pragma once

// A model for a program: loaded with progress on a terminal, and with a sentence on stderr if it
// cannot be.

#include "lrnn.h"

#include <stdbool.h>

// On the CPU, where loading is only mapping: for a program that looks at a model. compute.h is for
// those that run it. NULL after the sentence: exit with EXIT_CODE_MODEL.
// - quiet: no warning
struct lrnn_model * load_model(const char * path, bool quiet);

// With the placement that the parameters ask for, whose callbacks are not used.
// - quiet: no progress, no warning
// - verbose: what the library says besides warnings, too
struct lrnn_model * load_model_on(
        const char * path, const struct lrnn_model_params * params, bool quiet, bool verbose);

// From now on ggml says nothing on stderr but warnings and errors; loading does the same.
void load_model_hush_ggml(void);
