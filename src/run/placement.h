#pragma once

// Where the layers of a model lie: on which devices, and how many on each.

#include "run/model.h"

struct loader;

// Fills places, n_devices, the place of every layer and that of the output from the parameters: the
// last n_gpu_layers go to devices, in the order of the devices, each taking its share; whatever is
// left stays on the CPU, place 0. Devices that get nothing are not among the places.
bool placement_choose(struct loader * l, const struct lrnn_model_params * params);

// Tells the log what lies where.
void placement_log(const struct lrnn_model * model);
