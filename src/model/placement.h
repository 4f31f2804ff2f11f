#pragma once

// Which device holds the weights of each layer.

#include "model/load-tensors.h"

// Chooses the device of every layer and of the output. The last n_gpu_layers go to the listed
// devices, in order, each taking its share; the others stay on the CPU, device 0. Devices without
// layers are dropped.
bool placement_of_layers(struct loader * l, const struct lrnn_model_params * params);

// Writes the placement of layers to the log of the model.
void placement_log(const struct lrnn_model * model);
