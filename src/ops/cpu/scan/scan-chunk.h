#pragma once

// The chunk path, several factors at a time: the Householder scan with β, and the signed-gate scan
// with a gate per head or per key channel.

#include "scan-tiles.h"

// Factors of a chunk: as many as the registers can hold sums and updates of.
#if defined(__AVX512F__) || defined(__aarch64__) // 32 vector registers
#    define CHUNK 4
#else
#    define CHUNK 2
#endif

enum gate_kind { GATE_NONE, GATE_HEAD, GATE_CHANNEL };

struct scan_chunk {
    struct scan_dims dims;
    struct tokens    k, q; // b and c of the signed-gate scan
    struct tokens    gate;
    enum gate_kind   gate_kind;
    struct tokens    beta;  // Householder scan only
    struct tokens    in;    // signed-gate scan only: multiplier of x, per head
    struct tokens    bonus; // signed-gate scan only: read before update
    float            scale;
};

int64_t scan_chunk_size(const struct scan_dims * dims); // floats prepared per segment
void scan_chunk_prepare(
        const struct scan_chunk * op, int64_t h, int64_t t0, int64_t t1, float * prep);
void scan_chunk_run(const struct scan_chunk * op, const struct tile * tile, const float * prep);
