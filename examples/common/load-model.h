#pragma once

// A model for a program: loaded with progress on a terminal, and with a sentence on stderr if it cannot be.

#include "lrnn.h"

#include <stdbool.h>

// NULL after the sentence: exit with EXIT_CODE_MODEL.
// - quiet: no progress, no warning
struct lrnn_model * load_model(const char * program, const char * path, bool quiet);
