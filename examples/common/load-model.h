#pragma once

// Loads a model for a program: with progress on a terminal and warnings on stderr.

#include "lrnn.h"

#include <stdbool.h>

// Loads a model on the CPU, which only maps the file: for programs that look at a model but do not
// run it.
// - quiet: no warnings
struct lrnn_model * load_model(const char * path, bool quiet, struct lrnn_error * err);

// Loads a model as the parameters say; their callbacks are ignored.
// - quiet: no progress, no warnings
// - verbose: print informational messages too
struct lrnn_model * load_model_with(const char * path, const struct lrnn_model_params * params,
        bool quiet, bool verbose, struct lrnn_error * err);
