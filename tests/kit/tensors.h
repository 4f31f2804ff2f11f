#pragma once

// Tensors with guarded memory and gaps between their rows, and graphs of one op.

#include "kit/rng.h"

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Every tensor has its own memory, which ends with its last byte, so that the address sanitizer
// sees the first access beyond it. The gaps of a strided tensor hold NaN, so that a kernel that
// ignores a stride is detected without the sanitizer.
struct test_arena {
    struct ggml_context *   ctx;
    ggml_backend_t          backend;
    int                     n_tensors;
    int                     max_tensors;
    void **                 memory;  // [n_tensors]
    ggml_backend_buffer_t * buffers; // [n_tensors]
};

void test_arena_init(struct test_arena * a);
void test_arena_free(struct test_arena * a);

enum test_layout {
    TEST_DENSE,       // contiguous
    TEST_FUSED,       // a view of a fused projection: gaps between tokens only
    TEST_GAPS,        // gaps after every row, factor and token
    TEST_FACTORS_OUT, // one plane of all tokens per factor
    TEST_HEADS_OUT,   // one plane of all tokens per head
    TEST_REVERSED,    // dimension 0 is the outermost
    TEST_LAYOUTS,
};

// A tensor with memory; the elements of a dense one are not initialized.
struct ggml_tensor * test_tensor(struct test_arena * a, enum ggml_type type,
        enum test_layout layout, const char * name, int64_t ne0, int64_t ne1, int64_t ne2,
        int64_t ne3);

// Allocates memory for a tensor that has none.
void test_alloc(struct test_arena * a, struct ggml_tensor * x);

// A dense copy of x at the indices idx[0 .. n − 1] of dimension `dim`, the last one of x.
struct ggml_tensor * test_gather(struct test_arena * a, const struct ggml_tensor * x, int dim,
        const int64_t * idx, int64_t n);

float test_get(const struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
void test_set(struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3, float value);

void test_fill(struct ggml_tensor * x, float value);
void test_fill_normal(struct ggml_tensor * x, struct test_rng * r, double scale);
void test_fill_uniform(struct ggml_tensor * x, struct test_rng * r, double lo, double hi);

// Fills x with unit rows, computed in double and rounded to F32: normalize(mean · e + noise) with
// one direction e for all rows.
void test_fill_unit(struct ggml_tensor * x, struct test_rng * r, double mean);

// True for types of weights. The quantizers of some take seconds to start; they are left out.
bool test_is_weight(int type);

// True if the CPU multiplies blocks of 32 or 256 weights in bytes: AVX2, dotprod.
bool test_has_byte_kernels(void);

// Fills w, of such a type, with random weights. Returns what they are in F32, converted by ggml;
// freed by the caller.
float * test_fill_weights(struct ggml_tensor * w, struct test_rng * r);

// A copy of the data of a contiguous tensor, freed by the caller, and its inverse.
float * test_copy(const struct ggml_tensor * x);
void test_restore(struct ggml_tensor * x, const float * data);

// Computes the graph that ends in `op` on the CPU. The output contains no NaN before, so every NaN
// in it was computed.
bool test_compute(struct test_arena * a, struct ggml_tensor * op, int n_threads);

#ifdef __cplusplus
}
#endif
