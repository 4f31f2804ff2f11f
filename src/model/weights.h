#pragma once

// The data of the weights. On the CPU they stay where the file is mapped, in the pages of the file
// or in huge pages; other devices get a copy.

#include "model/load-tensors.h"

// Makes the mapped file a buffer, and a context per device for the tensor headers.
bool weights_open(struct loader * l);

// Adds a tensor of the file to a device. Its data is available at once on the CPU, and after
// weights_fetch elsewhere.
struct ggml_tensor * weights_add(
        struct loader * l, int32_t device, const char * name, int n_dims, const int64_t * ne);

// Copies weights to their devices, and those of the CPU to huge pages, unless params forbid it or
// memory is short. If params->progress is set, also prefetches weights that stay mapped.
bool weights_fetch(struct loader * l, const struct lrnn_model_params * params);

void weights_free(struct lrnn_model * model);
