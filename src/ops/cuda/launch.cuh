#pragma once

// From a node to its kernel: instance, grid and arguments. The caller supplies `launch(kernel,
// grid, block, args)`: ggml-cuda launches on its stream, a test runs the kernel on the CPU. Nothing
// here depends on the contents of a tensor, allocates or waits, so a node can be part of a captured
// CUDA graph. Everything that changes from step to step is in the ids, which the kernels read.

#include "scan-common.h"

#include "scan-device.cuh"

static inline cuda_rows cuda_rows_of(const struct ggml_tensor * x, int64_t n_head) {
    cuda_rows rows = { nullptr, 0, 0, 0, 1, false };
    if (x != nullptr) {
        rows.data = (const float *) x->data;
        rows.head = (int64_t) (x->nb[1] / sizeof(float));
        rows.factor = (int64_t) (x->nb[2] / sizeof(float));
        rows.token = x->ne[3] == 1 ? 0 : (int64_t) (x->nb[3] / sizeof(float)); // 0: constant
        rows.share = (int) (n_head / x->ne[1]);

        const size_t bytes = x->ne[0] * sizeof(float);
        rows.aligned = ((uintptr_t) x->data | x->nb[1] | x->nb[2] | x->nb[3] | bytes) % 16 == 0;
    }
    return rows;
}

static inline cuda_batch cuda_batch_of(const struct ggml_tensor * op) {
    const struct scan_dims     dims = ggml_scan_dims_get(op);
    const struct ggml_tensor * state = op->src[SCAN_SRC_STATE];

    cuda_batch b;
    b.state = (float *) state->data;
    b.slot_stride = (int64_t) (state->nb[1] / sizeof(float));
    b.head_size = dims.head_size;
    b.ids = (const int32_t *) op->src[SCAN_SRC_IDS]->data;
    b.n_snap = (int) dims.n_snap;
    b.n_slots = dims.n_slots;
    b.n_tokens = dims.n_tokens;
    b.n_head = (int) dims.n_head;
    b.d_k = (int) dims.d_k;
    b.d_v = (int) dims.d_v;
    b.min_count = 0; // all sequences
    b.max_count = INT32_MAX;

    const size_t head = dims.head_size * sizeof(float);
    const size_t row = dims.d_v * sizeof(float);
    b.aligned =
            ((uintptr_t) state->data | (uintptr_t) op->data | state->nb[1] | head | row) % 8 == 0;
    return b;
}

// The parts of a work buffer start at multiples of 16 bytes.
static inline int64_t work_round(int64_t floats) {
    return (floats + 3) / 4 * 4;
}

// One block per sequence, head and group of columns, with no more warps than the columns need.
template <int DK, typename Launch, typename Kernel, typename Args>
static void launch_tiles(Launch & launch, Kernel kernel, const Args & args, int64_t n_seqs) {
    using tile = cuda_tile<DK>;
    const cuda_batch & b = args.batch;
    const int          need = (b.d_v + tile::WARP_COLS - 1) / tile::WARP_COLS;
    const int          warps = need < tile::MAX_WARPS ? need : (int) tile::MAX_WARPS;
    const int          width = warps * tile::WARP_COLS;
    launch(kernel, dim3((unsigned) (n_seqs * b.n_head), (unsigned) ((b.d_v + width - 1) / width)),
            dim3((unsigned) (32 * warps)), args);
}

// A number that is known at compile time. Calls `call(constant<N>())` with the first N of a list
// that is at least n; returns false if there is none.
template <int N> struct constant {
    static constexpr int value = N;
};

template <int... LIST, typename Call> static bool with_constant(int64_t n, Call && call) {
    bool done = false;
    ((done = done || (n <= LIST && (call(constant<LIST>()), true))), ...);
    return done;
}

// With the sizes that step and chunk kernels are compiled for.
template <typename Call> static bool with_instance(int64_t d_k, Call && call) {
    return with_constant<16, 32, 64, 96, 128, 192, 256>(d_k, call);
}

enum { PLAIN_THREADS = 128, MIN_COLUMNS = 32, MAX_GRID_Y = 65535 };

// False if the grid of a node exceeds the limits of CUDA. Where there are many groups of columns,
// each has at least MIN_COLUMNS.
static inline bool launch_fits(const struct ggml_tensor * op) {
    const struct scan_dims dims = ggml_scan_dims_get(op);
    return dims.d_v <= (int64_t) MIN_COLUMNS * MAX_GRID_Y && dims.d_k <= INT32_MAX &&
           dims.n_seqs <= INT32_MAX / dims.n_head;
}

template <typename Launch, typename Kernel, typename Args>
static void launch_plain(Launch & launch, Kernel kernel, const Args & args, int64_t n_seqs) {
    const unsigned groups = (unsigned) ((args.batch.d_v + PLAIN_THREADS - 1) / PLAIN_THREADS);
    launch(kernel, dim3((unsigned) (n_seqs * args.batch.n_head), groups), dim3(PLAIN_THREADS),
            args);
}
