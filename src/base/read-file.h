#pragma once

// Reads a whole file into memory.

#include "lrnn.h"

// The caller frees *data. The path "-" means stdin.
bool read_file(const char * path, char ** data, size_t * size, struct lrnn_error * err);
