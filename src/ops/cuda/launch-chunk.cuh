#pragma once

// The two kernels of the chunk path, for both scans.

#include "chunk-prepare.cuh"
#include "chunk-scan.cuh"
#include "launch.cuh"
#include "path-cost.h"

// True if the chunk kernels support the shape of a node
static inline bool chunk_fits(const struct scan_dims & dims) {
    return dims.d_k <= 256 && dims.n_h <= CHUNK_FACTORS &&
           dims.d_v <= (int64_t) CHUNK_COLS * MAX_GRID_Y && dims.n_head <= MAX_GRID_Y;
}

// Factors of a token
static inline int64_t chunk_factors(const struct scan_dims & dims, int form) {
    return form == CHUNK_RANK_ONE ? 2 : dims.n_h;
}

// The kernels for a node. can: the chunk kernels support it
static inline struct path_choice chunk_choose(const struct ggml_tensor * op, bool can,
        enum path_kind kind, int form, const struct path_gpu & gpu) {
    const struct scan_dims   dims = ggml_scan_dims_get(op);
    const int                path = ggml_scan_params_get(op).path;
    const struct path_choice step = { true, false, 0 };
    if (!can || !gpu.tensor_cores) {
        return step;
    }
    if (path == GGML_SCAN_PATH_AUTO) {
        const struct path_shape shape = { kind, dims.d_k, dims.d_v, dims.n_head,
            chunk_factors(dims, form), dims.n_seqs, dims.n_tokens };
        return path_choose(&gpu, &shape);
    }
    const struct path_choice chunk = { false, true, 0 };
    return path == GGML_SCAN_PATH_CHUNK ? chunk : step;
}

// The lengths that the step kernel and the chunk kernels compute
static inline void chunk_divide(
        const struct path_choice & choice, cuda_batch * step, cuda_batch * chunk) {
    if (choice.step && choice.chunk) {
        step->max_count = choice.from - 1;
        chunk->min_count = choice.from;
    }
}

// Floats of work buffer, in the order of chunk_args
static inline int64_t chunk_work_floats(const struct scan_dims & dims, int form, bool channel) {
    const int64_t n_h = chunk_factors(dims, form);
    const int64_t keys = form == CHUNK_DIAGONAL ? n_h : 2 * n_h;
    return work_round(dims.n_head * dims.n_tokens *
                      (((form == CHUNK_DIAGONAL ? 0 : n_h) + 1) * CHUNK_FACTORS +
                              (channel ? (keys + 2) * dims.d_k : 0)));
}

// True if there are no rows that are not aligned
static inline bool rows_aligned(const cuda_rows & x) {
    return x.data == nullptr || x.aligned;
}

template <int FORM, typename Launch>
static void launch_chunk(Launch & launch, const householder_cuda_args & scan,
        const cuda_rows & bonus, const cuda_rows & below, int64_t n_seqs, float * work) {
    constexpr bool     SOLVE = FORM != CHUNK_DIAGONAL;
    const cuda_batch & b = scan.batch;
    const bool         channel = scan.gate_width > 1;
    const int64_t      tokens = b.n_head * b.n_tokens;
    const int64_t      factors = tokens * scan.n_h;
    const auto         take = [&](bool there, int64_t floats) {
        float * at = there ? work : nullptr;
        work += there ? floats : 0;
        return at;
    };
    chunk_args args;
    args.scan = scan;
    args.bonus = bonus;
    args.below = below;
    args.n_seqs = (int) n_seqs;
    args.tokens = CHUNK_FACTORS / scan.n_h;
    args.aligned = rows_aligned(scan.q) && rows_aligned(scan.k) && rows_aligned(scan.v) &&
                   (!channel || rows_aligned(scan.gate)) && rows_aligned(scan.r) &&
                   rows_aligned(scan.w);
    args.solve = take(SOLVE, factors * CHUNK_FACTORS);
    args.read = take(true, tokens * CHUNK_FACTORS);
    args.key_in = take(channel && SOLVE, factors * b.d_k);
    args.key_out = take(channel, factors * b.d_k);
    args.query_in = take(channel, tokens * b.d_k);
    args.gate_all = take(channel, tokens * b.d_k);

    // The lengths are on the device. These are the maxima for any batch. Sequences: those that are
    // long enough. Chunks: the full ones, and for each sequence a partial one and a partial stepped
    // one; but each chunk has a token.
    const int64_t longs = b.min_count > 0 ? b.n_tokens / b.min_count : n_seqs;
    const int64_t seqs = longs < n_seqs ? longs : n_seqs;
    const int64_t most = b.n_tokens / args.tokens + seqs * (b.n_snap > 0 ? 2 : 1);
    const int64_t chunks = most < b.n_tokens ? most : b.n_tokens;
    const dim3    grid((unsigned) chunks, (unsigned) b.n_head);
    const dim3    threads(CHUNK_THREADS);
    if (channel) {
        launch(chunk_prepare<HOUSEHOLDER_GATE_CHANNEL, FORM>, grid, threads, args);
    } else if constexpr (FORM != CHUNK_RANK_ONE) {
        if (scan.gate_width == 1) {
            launch(chunk_prepare<HOUSEHOLDER_GATE_HEAD, FORM>, grid, threads, args);
        } else {
            launch(chunk_prepare<HOUSEHOLDER_GATE_NONE, FORM>, grid, threads, args);
        }
    }

    const dim3 blocks(
            (unsigned) (seqs * b.n_head), (unsigned) ((b.d_v + CHUNK_COLS - 1) / CHUNK_COLS));
    with_instance(b.d_k, [&](auto size) {
        launch(chunk_scan<decltype(size)::value, SOLVE>, blocks, threads, args);
    });
}
