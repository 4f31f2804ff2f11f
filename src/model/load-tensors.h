#pragma once

// Reads the tensors of a model file while a model is loaded, and declares the states of its layers.
// Errors are sticky, as in file/loader.h.

#include "file/loader.h"
#include "model/model.h"

enum tensor_need {
    TENSOR_REQUIRED = 0,
    TENSOR_OPTIONAL = 1 << 0, // the result is NULL if there is none
    TENSOR_F32 = 1 << 1,      // must be F32: only weights of matrix products may have other types

    // Values outside these ranges would violate the eigenvalue range that the file states.
    TENSOR_DECAY = 1 << 2, // values up to 0: A of exp(Δ A)
    TENSOR_SHARE = 1 << 3, // values from 0 to 1: a lower bound of gates
};

// Tensors. `name` is without "blk.N."; il is the layer, or −1 for a tensor outside the layers. A
// length of 0 accepts any length. Marks the tensor as used.
struct ggml_tensor * loader_tensor_1d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0);
struct ggml_tensor * loader_tensor_2d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0, int64_t ne1);
struct ggml_tensor * loader_tensor_nd(
        struct loader * l, int32_t il, const char * name, int need, int n_dims, const int64_t * ne);

// Marks the tensors of n layers as used without reading them, and reports it.
void loader_skip_layers(struct loader * l, int32_t first, int64_t n);

// Fails if the file has tensors that were not read.
bool loader_all_used(struct loader * l);

// Declares the state of the recurrence: n_head heads of d_k × d_v + extra floats. Must be the first
// state of the layer.
void loader_recurrence(struct loader * l, struct layer * layer, int64_t n_head, int64_t d_k,
        int64_t d_v, int64_t extra);

// Declares a state of `size` floats and returns its number in the layer.
int32_t loader_state(struct loader * l, struct layer * layer, int64_t size);
