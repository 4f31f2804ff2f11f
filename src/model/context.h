#pragma once

// ggml contexts for tensor headers. ggml_init aborts if memory is short; these functions do not.

#include "ggml.h"

#include <stdbool.h>

// Room for `n_tensors` headers and, if it is not 0, a graph of `n_nodes` nodes. NULL: out of
// memory.
struct ggml_context * context_new(size_t n_tensors, size_t n_nodes);
void context_free(struct ggml_context * ctx);

// True if `size` bytes can be allocated now. For memory that ggml allocates and aborts without.
bool memory_is_available(size_t size);
