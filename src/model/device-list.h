#pragma once

// The devices a user allows for layers, with their shares.

#include "lrnn.h"
#include "model/model.h"

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
