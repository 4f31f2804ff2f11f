#pragma once

// Placement: which device holds the weights of each layer, and which holds each state.

#include "run/states.h"

struct loader;

// Chooses the device of every layer and of the output. The last n_gpu_layers go to the listed
// devices, in order, each taking its share; the others stay on the CPU, device 0. Devices without
// layers are dropped.
bool placement_of_layers(struct loader * l, const struct lrnn_model_params * params);

// Writes the placement of layers to the log of the model.
void placement_log(const struct lrnn_model * model);

// Chooses the device of every state, devices [n_layer]: the device of its layer, or the CPU if that
// device cannot compute the scan. A scan always runs where its state is.
// - n_batch: maximum number of tokens in a batch
bool placement_of_states(const struct lrnn_model * model, const struct states_size * size,
        int32_t n_batch, int32_t (*devices)[LAYER_STATES_MAX], char * err, size_t err_size);
