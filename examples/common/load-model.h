#pragma once

// Loads a model for a program: with progress on a terminal and error messages on stderr.

#include "exit-code.h"
#include "lrnn.h"

#include <stdbool.h>

// Loads a model on the CPU, which only maps the file: for programs that look at a model but do not
// run it. NULL after an error message: exit with load_model_exit_code().
// - quiet: no warnings
struct lrnn_model * load_model(const char * path, bool quiet);

// The exit code after a failed load: EXIT_CODE_SYSTEM if memory was short, else EXIT_CODE_MODEL.
enum exit_code load_model_exit_code(void);

// Loads a model as the parameters say; their callbacks are ignored.
// - quiet: no progress, no warnings
// - verbose: print informational messages too
struct lrnn_model * load_model_on(
        const char * path, const struct lrnn_model_params * params, bool quiet, bool verbose);
