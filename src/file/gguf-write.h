#pragma once

// Writes a GGUF file piece by piece: metadata first, then the data of each tensor.

#include "lrnn.h"
#include "base/atomic-file.h"

#include "gguf.h"

bool gguf_write_metadata(
        struct atomic_file * out, const struct gguf_context * gguf, struct lrnn_error * err);

// Writes zeros after `size` bytes of data, up to the alignment.
bool gguf_write_padding(
        struct atomic_file * out, size_t size, size_t alignment, struct lrnn_error * err);

// Writes the data of one tensor, padded to the alignment.
bool gguf_write_tensor(struct atomic_file * out, const void * data, size_t size, size_t alignment,
        struct lrnn_error * err);
