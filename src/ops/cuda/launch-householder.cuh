#pragma once

// GGML_OP_HOUSEHOLDER_SCAN: from the node to its kernel.

#include "householder-chunk-prepare.cuh"
#include "householder-chunk-state.cuh"
#include "householder-plain.cuh"
#include "householder-step.cuh"
#include "launch.cuh"

template <int DK, typename Launch>
static void launch_householder_step(
        Launch & launch, const householder_cuda_args & args, int64_t n_seqs) {
    const bool rw   = args.r.data != nullptr;
    const int  gate = args.gate_width == 0   ? HOUSEHOLDER_GATE_NONE
                      : args.gate_width == 1 ? HOUSEHOLDER_GATE_HEAD
                                             : HOUSEHOLDER_GATE_CHANNEL;
    switch (gate + 3 * rw) {
        case 0:
            launch_tiles<DK>(
                    launch, householder_step<DK, HOUSEHOLDER_GATE_NONE, false>, args, n_seqs);
            break;
        case 1:
            launch_tiles<DK>(
                    launch, householder_step<DK, HOUSEHOLDER_GATE_HEAD, false>, args, n_seqs);
            break;
        case 2:
            launch_tiles<DK>(
                    launch, householder_step<DK, HOUSEHOLDER_GATE_CHANNEL, false>, args, n_seqs);
            break;
        case 3:
            launch_tiles<DK>(
                    launch, householder_step<DK, HOUSEHOLDER_GATE_NONE, true>, args, n_seqs);
            break;
        case 4:
            launch_tiles<DK>(
                    launch, householder_step<DK, HOUSEHOLDER_GATE_HEAD, true>, args, n_seqs);
            break;
        default:
            launch_tiles<DK>(
                    launch, householder_step<DK, HOUSEHOLDER_GATE_CHANNEL, true>, args, n_seqs);
            break;
    }
}

// Factors per sequence from which the chunk path is used. With fewer, the step kernel ends before
// the two chunk kernels have filled and drained the device. A gate per channel takes longer to
// prepare. These are estimates from counted instructions, not measurements.
enum { CHUNK_CROSSOVER = 64, CHUNK_CROSSOVER_CHANNEL = 128 };

static inline bool householder_gate_has_channels(const struct ggml_tensor * op) {
    const struct ggml_tensor * gate = op->src[HOUSEHOLDER_SRC_GATE];
    return gate != nullptr && gate->ne[0] > 1;
}

static inline bool householder_chunked(const struct ggml_tensor * op) {
    const struct scan_dims dims = scan_dims_get(op);
    const int              path = scan_params_get(op).path;
    const bool             can  = op->src[HOUSEHOLDER_SRC_R] == nullptr && dims.d_k <= 256 &&
                     dims.n_h <= CHUNK_FACTORS && dims.d_v <= (int64_t) CHUNK_COLS * MAX_GRID_Y &&
                     dims.n_head <= MAX_GRID_Y;
    const int64_t from =
            householder_gate_has_channels(op) ? CHUNK_CROSSOVER_CHANNEL : CHUNK_CROSSOVER;
    const bool pays = dims.n_tokens * dims.n_h >= from * dims.n_seqs;
    return can && (path == GGML_SCAN_PATH_CHUNK || (path == GGML_SCAN_PATH_AUTO && pays));
}

// Floats of work buffer that the chunk path needs; 0: the step kernel is used, which needs none
static inline int64_t householder_work_floats(const struct ggml_tensor * op) {
    if (!householder_chunked(op)) {
        return 0;
    }
    const struct scan_dims dims    = scan_dims_get(op);
    const bool             channel = householder_gate_has_channels(op);
    return dims.n_head * dims.n_tokens *
           ((dims.n_h + 1) * CHUNK_FACTORS + (channel ? 2 * (dims.n_h + 1) * dims.d_k : 0));
}

template <typename Launch>
static void launch_householder_chunk(
        Launch & launch, const householder_cuda_args & scan, int64_t n_seqs, float * work) {
    const cuda_batch & b       = scan.batch;
    const bool         channel = scan.gate_width > 1;
    const int64_t      tokens  = b.n_head * b.n_tokens;
    const int64_t      factors = tokens * scan.n_h;

    householder_chunk_args args;
    args.scan     = scan;
    args.n_seqs   = (int) n_seqs;
    args.tokens   = CHUNK_FACTORS / scan.n_h;
    args.solve    = work;
    args.read     = args.solve + factors * CHUNK_FACTORS;
    args.key_in   = channel ? args.read + tokens * CHUNK_FACTORS : nullptr;
    args.key_out  = channel ? args.key_in + factors * b.d_k : nullptr;
    args.query_in = channel ? args.key_out + factors * b.d_k : nullptr;
    args.gate_all = channel ? args.query_in + tokens * b.d_k : nullptr;

    // The lengths are on the device. This is the maximum for any batch: the full chunks, and for
    // each sequence one partial chunk and one chunk per snapshot; but each chunk has a token.
    const int64_t most   = b.n_tokens / args.tokens + n_seqs * (1 + b.n_snap);
    const int64_t chunks = most < b.n_tokens ? most : b.n_tokens;
    const dim3    grid((unsigned) chunks, (unsigned) b.n_head);
    switch (scan.gate_width) {
        case 0:
            launch(householder_chunk_prepare<HOUSEHOLDER_GATE_NONE>, grid, dim3(CHUNK_THREADS),
                    args);
            break;
        case 1:
            launch(householder_chunk_prepare<HOUSEHOLDER_GATE_HEAD>, grid, dim3(CHUNK_THREADS),
                    args);
            break;
        default:
            launch(householder_chunk_prepare<HOUSEHOLDER_GATE_CHANNEL>, grid, dim3(CHUNK_THREADS),
                    args);
            break;
    }

    const dim3 blocks(
            (unsigned) (n_seqs * b.n_head), (unsigned) ((b.d_v + CHUNK_COLS - 1) / CHUNK_COLS));
    with_instance(b.d_k, [&](auto size) {
        launch(householder_chunk<decltype(size)::DK>, blocks, dim3(CHUNK_THREADS), args);
    });
}

// work: householder_work_floats floats; NULL: use the step kernel
template <typename Launch>
static void launch_householder(const struct ggml_tensor * dst, float * work, Launch && launch) {
    const struct scan_dims     dims = scan_dims_get(dst);
    const struct ggml_tensor * gate = dst->src[HOUSEHOLDER_SRC_GATE];

    householder_cuda_args args;
    args.batch      = cuda_batch_of(dst);
    args.q          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_Q], dims.n_head);
    args.k          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_K], dims.n_head);
    args.v          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_V], dims.n_head);
    args.beta       = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_BETA], dims.n_head);
    args.gate       = cuda_rows_of(gate, dims.n_head);
    args.r          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_R], dims.n_head);
    args.w          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_W], dims.n_head);
    args.n_h        = (int) dims.n_h;
    args.gate_width = gate == nullptr ? 0 : (int) gate->ne[0];
    args.scale      = scan_params_get(dst).scale;
    args.out        = (float *) dst->data;

    if (work != nullptr) {
        launch_householder_chunk(launch, args, dims.n_seqs, work);
        return;
    }
    const bool step = with_instance(dims.d_k, [&](auto size) {
        launch_householder_step<decltype(size)::DK>(launch, args, dims.n_seqs);
    });
    if (!step) {
        launch_plain(launch, householder_plain, args, dims.n_seqs);
    }
}
