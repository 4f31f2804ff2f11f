#pragma once

// The ops of src/ops/lrnn-ops.h as plain loops in double precision, written from the equations
// there and from nothing else: no tiles, no chunks, no vectors, no running maximum in the mLSTM
// state. What the kernels are compared with.

#include "lrnn-ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oracle {
    int64_t n_tokens;
    int64_t n_heads;
    int64_t d_out; // width of the output of a head
    int64_t n_slots;
    int64_t slot_size; // numbers in a slot

    double * out; // [n_tokens][n_heads][d_out]; NaN where no legal sequence has the token
    double *
            weight; // [n_tokens][n_heads]: of the outputs in the measure of error; 1, but for the quotients of mLSTM (oracle.c)
    double *
            state; // [n_slots][slot_size], as the op must leave it; mLSTM: S and n divided by exp(m), then m
    bool * written; // [n_slots]: false for a slot that the op must not touch
};

// These read the tensors of `args` where they lie, the state as it is before the op runs. The
// caller frees with oracle_free.
struct oracle oracle_householder(const struct ggml_householder_scan_args * args);
struct oracle oracle_signed(const struct ggml_signed_scan_args * args);
struct oracle oracle_short_conv(const struct ggml_short_conv_args * args);

void oracle_free(struct oracle * o);

#ifdef __cplusplus
}
#endif
