#pragma once

// The subset of NumPy's .npy format that the programs need; numpy.lib.format, versions 1 to 3.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// True if the bytes begin like a .npy file.
bool npy_is(const char * data, size_t size);

// Reads a file that contains int32 [n]. The caller frees *values.
bool npy_read_int32(
        const char * data, size_t size, int32_t ** values, int64_t * n, struct lrnn_error * err);

// Writes the header of a file, before its rows. A size that is a multiple of 64 bytes lets the rows
// be mapped.
// - type: "'<f4'", or the fields of a structured type
// - shape: n_dims numbers
// - size: at most NPY_HEADER_MAX; the dictionary must fit
enum { NPY_HEADER_MAX = 256 };
void npy_header(const char * type, const int64_t * shape, int n_dims, char * header, size_t size);
