#pragma once

// Both recurrences two factors at a time, the chunked path: the Householder scan with its β, and
// the signed scan where the gate is one number a head or one a key channel.

#include "scan-tiles.h"

enum gate_kind { GATE_NONE, GATE_HEAD, GATE_CHANNEL };

struct pair {
    struct scan_dims dims;
    struct tokens    k, q; // in the signed scan b and c
    struct tokens    gate;
    enum gate_kind   gate_kind;
    struct tokens    beta;  // of the Householder scan
    struct tokens    in;    // of the signed scan: a factor on x, one a head
    struct tokens    bonus; // of the signed scan: read before write
    float            scale;
};

int64_t pair_size(const struct scan_dims * dims); // floats of what is prepared for a block
void pair_prepare(const struct pair * op, int64_t h, int64_t t0, int64_t t1, float * prep);
void pair_run(const struct pair * op, const struct tile * tile, const float * prep);
