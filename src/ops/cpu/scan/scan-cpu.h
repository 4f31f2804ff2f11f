#pragma once

// Shared by the CPU kernels: access to the tokens and slots of a node.

#include "scan-common.h"
#include "simd.h"

#include "ggml-cpu-impl.h"

// A tensor of tokens, [width, heads, factors, tokens], indexed by the heads of the state.
struct tokens {
    const char * data; // NULL: the tensor is absent
    size_t       nb_head, nb_factor, nb_token;
    int64_t      share; // state heads that use one head of this tensor
};

static inline struct tokens tokens_of(const struct ggml_tensor * x, int64_t n_head) {
    if (x == NULL) {
        return (struct tokens) { 0 };
    }
    return (struct tokens) {
        .data = x->data,
        .nb_head = x->nb[1],
        .nb_factor = x->nb[2],
        .nb_token = x->ne[3] == 1 ? 0 : x->nb[3], // 0: a constant gate or a bonus
        .share = n_head / x->ne[1],
    };
}

SIMD_INLINE const float * tokens_row(const struct tokens * x, int64_t h, int64_t j, int64_t t) {
    const int64_t head = x->share == 1 ? h : h / x->share; // a division per row is too slow
    return (const float *) (x->data + head * x->nb_head + j * x->nb_factor + t * x->nb_token);
}

// The state of head h in a slot.
static inline float * slot_head(
        const struct ggml_tensor * op, int64_t slot, int64_t h, int64_t head_size) {
    const struct ggml_tensor * state = op->src[SCAN_SRC_STATE];
    return (float *) ((char *) state->data + slot * state->nb[1]) + h * head_size;
}

// The state of head h before the first token of a sequence.
static inline void state_begin(const struct ggml_tensor * op, const struct scan_dims * dims,
        const struct scan_seq * seq, int64_t h, float * S) {
    const size_t size = (size_t) dims->head_size * sizeof(float);
    if (seq->slot_in < 0) {
        memset(S, 0, size);
    } else {
        memcpy(S, slot_head(op, seq->slot_in, h, dims->head_size), size);
    }
}

// Stores the state after `done` tokens of a sequence, if a slot is to receive it.
static inline void state_store(const struct ggml_tensor * op, const struct scan_dims * dims,
        const struct scan_seq * seq, int64_t h, int64_t done, const float * S) {
    const int64_t back = seq->count - done; // tokens before the end
    const int64_t slot = back == 0              ? seq->slot_out
                         : back <= dims->n_snap ? seq->snaps[back - 1]
                                                : -1;
    if (slot >= 0) {
        memcpy(slot_head(op, slot, h, dims->head_size), S,
                (size_t) dims->head_size * sizeof(float));
    }
}

// The first address of the work buffer that is aligned for vectors.
static inline float * work_aligned(void * wdata) {
    return (float *) (((uintptr_t) wdata + VEC_BYTES - 1) / VEC_BYTES * VEC_BYTES);
}

// Reads sequence s. Returns false if its ids are out of range: no state is touched then, and the
// caller with `fills` set writes NaN for each of its tokens that exists.
bool scan_seq_read(struct ggml_tensor * dst, const struct scan_dims * dims, int64_t s, bool fills,
        struct scan_seq * seq);

// ---- The kernels --------------------------------------------------------------------------------
void householder_reference(const struct ggml_compute_params * params, struct ggml_tensor * dst);
void signed_reference(const struct ggml_compute_params * params, struct ggml_tensor * dst);

void householder_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t householder_work_size(const struct ggml_tensor * op, int n_threads);

void signed_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t signed_work_size(const struct ggml_tensor * op, int n_threads);

void lstm_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t lstm_work_size(const struct ggml_tensor * op, int n_threads);

void short_conv_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t short_conv_work_size(const struct ggml_tensor * op, int n_threads);
