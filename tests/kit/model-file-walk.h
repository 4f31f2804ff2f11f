#pragma once

// Checks what must hold for every accepted model file, whatever its bytes.

#include "lrnn.h"
#include "file/model-file.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads every key in every way and both ends of every tensor, looks up every name, and compares
// with ggml's less strict reader. Returns false with a message in `err` if they differ.
bool model_file_walk(struct model_file * f, struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
