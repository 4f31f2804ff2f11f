#pragma once

// The Householder scan on the CPU. householder.c reads the node. householder-step.c and
// scan-chunk.c take a tile of the state through a segment of tokens; householder-token.c takes
// whole rows through a single token.

#include "scan-chunk.h"
#include "scan-tiles.h"

struct householder {
    struct scan_dims dims;
    int32_t          path;
    struct tokens    q, k, v, beta, gate, r, w;
    enum gate_kind   gate_kind;
    float            scale;
};

// Step: factor by factor.
int64_t householder_step_size(const struct scan_dims * dims); // floats prepared per segment
void householder_step_prepare(const void * op, int64_t h, int64_t t0, int64_t t1, float * prep);
void householder_step_run(const void * op, const struct tile * tile, const float * prep);

// Token: one token, bit-identical to step.
int64_t householder_token_size(const struct scan_dims * dims);
void householder_token_run(const void * op, const struct token * token, float * work);
