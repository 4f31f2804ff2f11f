#pragma once

// Runs a node on a device of ggml, for the tests that otherwise emulate its kernels (C++17).

#include "ggml-backend.h"
#include "ggml.h"

#include <string>

struct gpu_run {
    ggml_backend_t backend = nullptr;
    int            n_times = 0; // measurements of each node after its run
    double         best_us = 0; // microseconds of the fastest

    bool on() const {
        return backend != nullptr;
    }

    bool is_gpu() const;

    // Opens a device by its name; "": the first GPU. Returns -1, or the exit code with which the
    // test has to end: the device cannot be opened, or there is no GPU.
    int begin(const char * name);

    // Runs a node whose tensors are in host memory. The graph is computed three times, so that
    // ggml-cuda replays a captured graph, each time with other slots: in call r, slot s of the case
    // is slot s + r of the device. The outputs and states of the three calls must be equal to the
    // bit; those of the last are copied to the node. Returns an error; empty: none.
    std::string run(ggml_tensor * op);
};
