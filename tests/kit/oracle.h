#pragma once

// The oracle: the ops of src/ops/lrnn-ops.h as plain loops in double precision, written from the
// equations alone. No tiles, chunks or vectors, and no running maximum in the mLSTM state. The
// tests compare the kernels with it.

#include "lrnn-ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oracle {
    int64_t n_tokens;
    int64_t n_heads;
    int64_t d_out; // width of the output per head
    int64_t n_slots;
    int64_t slot_size; // numbers per slot

    double * out;     // [n_tokens][n_heads][d_out]   NaN for a token of no valid sequence
    double * weight;  // [n_tokens][n_heads]          weight of the output in the error; 1, except
                      //                              for quotients of mLSTM (oracle.c)
    double * state;   // [n_slots][slot_size]         after the op; mLSTM: S / exp(m), n / exp(m), m
    bool *   written; // [n_slots]                    false: the op must not touch the slot
};

// Compute the result of an op from the tensors of `args`, with the state from before the op. Free
// it with oracle_free.
struct oracle oracle_householder(const struct ggml_householder_scan_args * args);
struct oracle oracle_signed(const struct ggml_signed_scan_args * args);
struct oracle oracle_short_conv(const struct ggml_short_conv_args * args);

void oracle_free(struct oracle * o);

#ifdef __cplusplus
}
#endif
