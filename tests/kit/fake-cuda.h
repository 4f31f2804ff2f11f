#pragma once

// A card that computes nothing: the CUDA runtime and cuBLAS as ggml-cuda calls them, with memory of
// the host, one device of compute capability 8.0, and kernels that are noted and not run. A program
// that has fake-cuda.c in it finds these functions before those of NVIDIA's libraries.
//
// It tells what a card would be asked to do, and what it would not forgive: a grid, a block or
// shared memory that no card has, a kernel that does not exist, memory allocated or freed or waited
// for while a graph is captured. Every number that comes back from it is zero.

#include <stdbool.h>
#include <stdint.h>

struct fake_card_count {
    int64_t kernels;       // launched, captured ones included
    int64_t captures;      // graphs that were captured
    int64_t graphs;        // launches of captured graphs
    int64_t tf32_products; // of cuBLAS that may round F32 to TF32
};

// Since the last call of fake_card_reset
struct fake_card_count fake_card_get(void);
bool fake_card_ran(const char * part); // a kernel with this in its mangled name
const char * fake_card_wrong(
        void); // the first thing a card would not forgive, one sentence; "": nothing
void fake_card_reset(void);
