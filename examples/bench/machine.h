#pragma once

// What the machine can do, measured: the two ceilings that a kernel is judged against.

#include <stdbool.h>
#include <stddef.h>

enum { MACHINE_POINTS_MAX = 64 };

struct machine {
    char cpu[128];      // the name that the CPU gives itself
    int  cpus;          // logical CPUs that are online
    char features[128]; // instruction sets that ggml's CPU backend was built for
    int  vector_bits;   // width of the vectors of the FMA loop

    int n_points;
    struct machine_point {
        int threads;
        double fma_gflops; // fused multiply-adds on independent registers, all threads at once; one counts as 2
        double copy_gbps; // memcpy of memory that no cache holds, all threads at once; bytes read plus bytes written
    } points[MACHINE_POINTS_MAX];
};

void machine_describe(struct machine * m);

// Measures one more point.
bool machine_measure(struct machine * m, int threads, char * err, size_t err_size);

// The point of that many threads; it has been measured.
const struct machine_point * machine_point(const struct machine * m, int threads);
