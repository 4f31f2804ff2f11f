#pragma once

// The memory of a session: states of recurrent layers and caches of attention layers.
//
// Every state of a layer is one tensor [floats, slots]. A sequence owns n_rewind + 1 slots and uses
// them as a ring: its state after p tokens is in slot p mod (n_rewind + 1). A call reads one slot
// and writes others, so a rewind copies nothing. An empty sequence has the zero state, which needs
// no slot.

#include "lrnn.h"
#include "model/model.h"

// Attention reads its cache in steps of this many rows, so that one graph serves as many tokens.
// Rows past the end of a sequence are zero: the mask hides numbers, but not a NaN.
// CUDA's fast kernels want multiples of 256.
enum { CACHE_STEP = 256 };

// What a layer keeps from call to call, each on a device: states, and the caches of keys and values
enum { LAYER_CACHES = LAYER_STATES_MAX, LAYER_PLACES };

enum ggml_type cache_ggml_type(enum lrnn_cache_type type);

// n rounded up to whole steps
int64_t cache_round_up(int64_t n);

struct states_size {
    int32_t n_seqs;
    int32_t n_rewind; // tokens a sequence can be rewound
    int32_t n_cache;  // tokens of a sequence in the cache

    enum ggml_type cache_format;
    bool           draft_block; // memory for the draft block, too
};

struct states {
    struct states_size size;
    int32_t            n_layer; // those of the model, and perhaps that of the draft block
    struct ggml_tensor * (*state)[LAYER_STATES_MAX]; // [n_layer], F32 [state_size, slots]
    struct ggml_tensor ** cache_k; // [n_layer], [values, rows, n_seqs]; NULL: no attention
    struct ggml_tensor ** cache_v; // NULL: also if k contains v

    struct ggml_context * ctx[DEVICES_MAX];
    ggml_backend_buffer_t buffer[DEVICES_MAX];
};

// state-placement.c: chooses the device of every state and cache, devices [n_layer + 1]: the device
// of its layer, or the CPU if that device cannot compute the scan or the attention. A scan always
// runs where its state is, attention where its caches are.
// - n_batch: maximum number of tokens in a batch
bool placement_of_states(const struct lrnn_model * model, const struct states_size * size,
        int32_t n_batch, int32_t (*devices)[LAYER_PLACES], struct lrnn_error * err);

// Declares all tensors without memory, each on its device. Returns false if memory is short.
bool states_declare(struct states * s, const struct lrnn_model * model,
        const struct states_size * size, const int32_t (*devices)[LAYER_PLACES]);

// Allocates the declared tensors and sets them to zero.
bool states_alloc(struct states * s, const struct lrnn_model * model, struct lrnn_error * err);
void states_free(struct states * s);

// The slot of a sequence after `position` tokens.
int64_t states_slot(const struct states * s, int32_t seq, int64_t position);

// Sets rows `from` to `to` - 1 of a sequence to zero in all caches, and those of drafts after them.
void states_clear_cache(
        struct states * s, const struct lrnn_model * model, int32_t seq, int64_t from, int64_t to);

// state-round.c: rounds the states of a sequence of `length` tokens to a format.
void states_round(struct states * s, const struct lrnn_model * model, int32_t seq, int64_t length,
        enum lrnn_state_type type);

// Receives `size` bytes of a tensor at `offset`. Returns false to stop.
typedef bool (*states_visitor)(
        struct ggml_tensor * tensor, size_t offset, size_t size, void * user);

// Visits the whole memory of a sequence of `length` tokens, always in the same order: the states of
// every layer and the used rows of the caches; the draft block is the last layer. Returns false if
// the visitor stopped.
bool states_visit(const struct states * s, const struct lrnn_model * model, int32_t seq,
        int64_t length, states_visitor visitor, void * user);
