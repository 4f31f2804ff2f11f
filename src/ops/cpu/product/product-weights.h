#pragma once

#include "ggml.h"

#include <stdint.h>

// Writes weights begin … begin + n of a row as F32. begin is a multiple of the block length of the
// type; n too, except at the end of a row.
void weights_to_float(enum ggml_type type, const void * row, int64_t begin, int64_t n, float * out);
