#pragma once

// Golden models with larger matrices: rows of whole blocks of a quantization type, and heads as
// long as those of published checkpoints. New weights are random.

#include "kit/model-edit.h"
#include "lrnn.h"

#ifdef __cplusplus
extern "C" {
#endif

// True for operands of matrix products. The other two-dimensional tensors must be F32.
bool widen_is_matrix(const struct ggml_tensor * x);

// Gives a model heads of `length` channels and an embedding of `width`, and writes it to `path`.
// Returns the model, or NULL with the message of the loader.
struct lrnn_model * widen(struct model_edit * e, uint32_t length, uint32_t width, const char * path,
        struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
