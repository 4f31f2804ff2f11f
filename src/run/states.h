#pragma once

// What the sequences of a session remember: the states of recurrent layers and the caches of
// attention layers, each on the device of its layer.

#include "run/model.h"

// Attention looks at a cache in steps of so many rows, for a graph that serves as many tokens. Rows
// behind the length of a sequence are zero, so that what the mask hides cannot be a NaN.
enum { CACHE_STEP = 64 };

// n rounded up to whole steps
int64_t cache_steps(int64_t n);

struct memory_size {
    int64_t n_slots; // of every state
    int64_t n_seqs;  // of every cache,
    int64_t n_cache; // so many tokens each
    int64_t n_batch; // tokens computed together at most
};

struct memory {
    struct ggml_tensor * (*states)[LAYER_STATES_MAX]; // [n_layer], F32 [size, slots]
    struct ggml_tensor **
            cache_k; // [n_layer], F32 [cache_size, n_cache in whole steps, n_seqs]; NULL for recurrent layers
    struct ggml_tensor ** cache_v;

    struct ggml_context * ctx[DEVICES_MAX];
    ggml_backend_buffer_t buffer[DEVICES_MAX];
};

// All zero. A state whose scan its device cannot compute lies on the CPU instead: a scan is
// computed where its state is.
bool memory_make(struct memory * m, const struct lrnn_model * model,
        const struct memory_size * size, char * err, size_t err_size);
void memory_free(struct memory * m);

// Zeroes rows `from` to `to` − 1 of a sequence in all caches: what it forgets.
void memory_forget(
        struct memory * m, const struct lrnn_model * model, int32_t seq, int64_t from, int64_t to);
