#pragma once

// The machine, and its measured peak performance: the upper limits of a kernel.

#include "lrnn.h"

#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>

enum { MACHINE_POINTS_MAX = 64 };

struct machine {
    char cpu[128];      // model name
    int  cpus;          // logical CPUs online
    char features[128]; // instruction sets used by ggml's CPU backend
    int  vector_bits;   // vector width of the FMA loop

    int n_points;
    struct machine_point {
        int threads;
        // independent multiply-adds, all threads at once; one counts as 2
        double fma_gflops;  // F32
        double int8_gops;   // bytes
        double bf16_gflops; // 0: the CPU has no instructions for BF16
        // beyond the caches, all threads at once
        double copy_gbps; // memcpy; read plus written
        double read_gbps; // sums
    } points[MACHINE_POINTS_MAX];
};

void machine_describe(struct machine * m);
void machine_print(const struct machine * m); // one line

// Measures with this many threads.
bool machine_measure(struct machine * m, int threads, struct lrnn_error * err);

// The measurement with this many threads, or NULL.
const struct machine_point * machine_point(const struct machine * m, int threads);

// ---- peak-loops.c -------------------------------------------------------------------------------
//
// Loops of independent multiply-adds, the upper limit of a kernel. Each runs n rounds and returns
// the number of operations; a multiply-add counts as two. peak-loops.c is compiled with the flags
// of ggml's CPU backend, so that it uses the same vectors and instructions as the kernels.

double fma_loop(int64_t n);  // F32
double int8_loop(int64_t n); // products of bytes: dot-product instructions where the CPU has them
double bf16_loop(int64_t n); // dot products of BF16; 0 without instructions for them

int peak_loops_vector_bits(void);
