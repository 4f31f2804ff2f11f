#pragma once

// The signed-gate scan on the CPU. signed.c reads the node and computes the gates. signed-step.c
// and scan-chunk.c take a tile of the state through a segment of tokens; signed-token.c takes whole
// rows through a single token.

#include "scan-chunk.h"
#include "scan-tiles.h"

// The gates of one head and token: multiplier of S, multiplier of x, divisor of y.
struct head_gate {
    float a;
    float in;
    float den;
};

struct signed_scan {
    struct scan_dims           dims;
    struct scan_params         p;
    const struct ggml_tensor * A;
    struct tokens              c, b, x, gate, bonus, log_i; // gate is gate, dt or log_f
    const struct head_gate *   gates;                       // [T][H]; only with gates per head
    float *                    tiles_A; // [H][signed_step_A_size]; only with a gate per element
};

static inline bool has_head_gates(int32_t kind) {
    return kind == SIGNED_SCAN_HEAD || kind == SIGNED_SCAN_SCALAR || kind == SIGNED_SCAN_MLSTM;
}

static inline const struct head_gate * head_gate_at(
        const struct signed_scan * op, int64_t h, int64_t t) {
    return &op->gates[t * op->dims.n_head + h];
}

// A[i][j] of head h at i·nb[1] + j·nb[0]
static inline const char * head_A(const struct signed_scan * op, int64_t h) {
    return (const char *) op->A->data + (h / (op->dims.n_head / op->A->ne[2])) * op->A->nb[2];
}

// A_t = exp(dt A) or 2 exp(dt A) − 1, with A times EXP_SCALE. near: |dt A| ≤ EXP_NEAR; the bits are
// the same.
enum { EXP_NEAR = 125 };

SIMD_INLINE vec transition(int32_t form, bool near, vec dt, vec A) {
    const vec e = near ? vec_exp_scaled_near(dt, A) : vec_exp_scaled(dt, A);
    return form == GGML_SIGNED_SCAN_EXP ? e : (e + e) - vec_set1(1.0f); // not a multiply-add
}

// Step: token by token.
int64_t signed_step_size(const struct scan_dims * dims); // floats prepared per segment
void signed_step_prepare(const void * op, int64_t h, int64_t t0, int64_t t1, float * prep);

// With a gate per element, A in the order of tiles, made once by all threads.
int64_t signed_step_A_size(const struct scan_dims * dims); // floats per head
void signed_step_A(const struct signed_scan * op, int ith, int nth);
void signed_step_run(const void * op, const struct tile * tile, const float * prep);

// Token: one token, bit-identical to step.
int64_t signed_token_size(const struct scan_dims * dims);
void signed_token_run(const void * op, const struct token * token, float * work);
