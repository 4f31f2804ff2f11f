#pragma once

// The data of a model's weights: those on the CPU are the mapping of the file, those on a device
// are copied there.

#include "file/loader.h"

// The mapping as a buffer, and for each device headers for as many tensors as the file has.
bool weights_open(struct loader * l);

// Gives tensor `t` of the file a header in a device. On the CPU its data is there at once, on a
// device after weights_fetch.
struct ggml_tensor * weights_add(struct loader * l, int32_t device, const char * name, int n_dims);

// Copies to the devices what lies there, and reads from the disk what stays in the file, piece by
// piece, reporting how far it is. Without anybody to report to, what stays in the file is left to
// the first call.
bool weights_fetch(struct loader * l, const struct lrnn_model_params * params);

void weights_free(struct lrnn_model * model);
