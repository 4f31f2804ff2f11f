#pragma once

// Which device holds the weights of each layer.

#include "model/load-tensors.h"

// device-list.c: the devices a user allows for layers, with their shares
enum { DEVICE_LIST_MAX = DEVICES_MAX - 1 }; // the CPU is not in the list

struct device_choice {
    ggml_backend_dev_t dev;
    double             share;  // of the layers, in any unit
    double             usable; // bytes for weights; 0: unknown
};

struct device_list {
    int32_t              n;
    struct device_choice at[DEVICE_LIST_MAX];
};

// Reads params->devices and params->tensor_split.
bool device_list_read(struct device_list * list, const struct lrnn_model_params * params,
        struct lrnn_error * err);

// Chooses the device of every layer and of the output. The last n_gpu_layers go to the listed
// devices, in order, each taking its share; the others stay on the CPU, device 0. Devices without
// layers are dropped.
bool placement_of_layers(struct loader * l, const struct lrnn_model_params * params);

// Writes the placement of layers to the log of the model.
void placement_log(const struct lrnn_model * model);
