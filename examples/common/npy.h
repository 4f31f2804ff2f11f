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

enum { NPY_HEADER_SIZE = 128 };

// The header of a file of float32 [rows, columns]; the rows follow. Its size is a multiple of 64
// bytes, so that they can be mapped.
void npy_header_float32(int64_t rows, int64_t columns, char header[NPY_HEADER_SIZE]);
