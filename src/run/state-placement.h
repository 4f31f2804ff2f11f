#pragma once

// Which device holds each state.

#include "lrnn.h"
#include "run/states.h"

// Chooses the device of every state, devices [n_layer]: the device of its layer, or the CPU if that
// device cannot compute the scan. A scan always runs where its state is.
// - n_batch: maximum number of tokens in a batch
bool placement_of_states(const struct lrnn_model * model, const struct states_size * size,
        int32_t n_batch, int32_t (*devices)[LAYER_STATES_MAX], struct lrnn_error * err);
