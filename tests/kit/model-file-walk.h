#pragma once

// What must hold for every model file that was accepted, whatever its bytes are.

#include "file/model-file.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads every key in every way and every tensor's ends; looks every name up; asks ggml's own
// reader, which is less strict, for its opinion of the same bytes. False with a sentence if
// something does not hold.
bool model_file_walk(struct model_file * f, char * err, size_t err_size);

#ifdef __cplusplus
}
#endif
