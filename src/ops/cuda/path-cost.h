#pragma once

// Step or chunks: which takes fewer cycles, for a length, a head and a GPU. This is a model made of
// counted instructions. Nothing in it was measured.
//
// A kernel is described by what one of its four warps executes in a unit of work: I instructions,
// of which M are multiplications on a tensor core. Each warp of a block has a scheduler of its
// multiprocessor for itself, which issues one instruction per cycle, and a tensor core, which takes
// `mma` cycles for a multiplication. With b blocks on the fullest multiprocessor a unit takes
//     cycles = max(2 I, b · max(I, mma · M)) ,
// where 2 I is the time of a warp alone: it stalls for one cycle per instruction.
//
// The three kernels, for n sequences of T tokens:
//     step      T · n_h factors,             blocks n · heads · d_v / 32
//     prepare   once, all chunks side by side, blocks n · heads · chunks
//     scan      chunks = T · n_h / 64,       blocks n · heads · d_v / 16
// Chunks have fewer instructions per token on the way from token to token, so they win while a GPU
// has room. On a full GPU the sums of all blocks decide. There, TF32 at eight times the speed of
// F32 (8.0, 9.0, 10.x) favors chunks, and TF32 at the speed of F32 (8.6, 8.9, 12.x) favors steps.

#include <stdbool.h>
#include <stdint.h>

struct path_gpu {
    bool tensor_cores; // TF32; without it there are no chunks
    int  cc;           // compute capability: 10 · major + minor
    int  n_sm;         // multiprocessors
};

// What the counts depend on
enum path_kind {
    PATH_DELTA,         // beta; no gate or a gate per head
    PATH_DELTA_CHANNEL, // beta; a gate per channel
    PATH_RANK_ONE,      // r and w
    PATH_DIAGONAL,      // signed-gate scan; no gate or a gate per head
    PATH_DIAGONAL_CHANNEL,
    PATH_KINDS
};

struct path_shape {
    enum path_kind kind;
    int64_t        d_k, d_v, n_head;
    int64_t        factors; // per token, in a chunk
    int64_t        n_seqs, n_tokens;
};

// What a warp executes: fixed + per_row · d_k
struct path_count {
    double fixed, per_row;
};

static inline double path_count_get(struct path_count count, int64_t d_k) {
    return count.fixed + count.per_row * (double) d_k;
}

struct path_counts {
    struct path_count step;        // instructions per factor; PATH_RANK_ONE: per token
    struct path_count prepare;     // instructions per chunk of 64 factors
    struct path_count prepare_mma; // multiplications per chunk
    struct path_count scan;        // instructions per chunk
    struct path_count scan_mma;    // multiplications per chunk
};

// Counted by the PTX interpreter for heads of 64 and 128 rows (src/ops/README.md)
static inline const struct path_counts * path_counts_of(enum path_kind kind) {
    static const struct path_counts all[PATH_KINDS] = {
        { { 176, 1.06 }, { 3340, 36.9 }, { 0, 3.75 }, { 2180, 25.9 }, { 78, 2.25 } },
        { { 182, 1.08 }, { 3230, 209.4 }, { 0, 2.25 }, { 1810, 26.1 }, { 78, 2.25 } },
        { { 192, 1.23 }, { 3050, 145.5 }, { 0, 1.13 }, { 1450, 22.0 }, { 54, 1.88 } },
        { { 133, 0.78 }, { 966, 26.6 }, { 0, 1.88 }, { 1540, 18.7 }, { 48, 1.50 } },
        { { 128, 0.81 }, { 1030, 167.8 }, { 0, 1.13 }, { 1180, 18.9 }, { 48, 1.50 } },
    };
    return &all[kind];
}

enum { PATH_CHUNK = 64, PATH_STEP_COLUMNS = 32, PATH_SCAN_COLUMNS = 16 };

static inline int64_t path_ceil(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

// Cycles of a multiplication of 16 × 8 · 8 × 8 on one of the four tensor cores of a multiprocessor,
// from the data sheets
static inline double path_mma_cycles(int cc) {
    const bool fast = cc == 80 || cc == 90 || cc / 10 == 10;
    return fast ? 8.0 : 32.0;
}

// Cycles of a unit of work with `blocks` blocks on the GPU
static inline double path_cycles(
        const struct path_gpu * gpu, double instructions, double mma, int64_t blocks) {
    const double products = path_mma_cycles(gpu->cc) * mma;
    const double busy = instructions > products ? instructions : products;
    const double full = busy * (double) path_ceil(blocks, gpu->n_sm);
    return full > 2.0 * instructions ? full : 2.0 * instructions;
}

static inline double path_step_cycles(
        const struct path_gpu * gpu, const struct path_shape * s, int64_t n, int64_t T) {
    const struct path_counts * count = path_counts_of(s->kind);
    const int64_t              units = T * (s->kind == PATH_RANK_ONE ? 1 : s->factors);
    return (double) units * path_cycles(gpu, path_count_get(count->step, s->d_k), 0.0,
                                    n * s->n_head * path_ceil(s->d_v, PATH_STEP_COLUMNS));
}

static inline double path_chunk_cycles(
        const struct path_gpu * gpu, const struct path_shape * s, int64_t n, int64_t T) {
    const struct path_counts * count = path_counts_of(s->kind);
    const int64_t              chunks = path_ceil(T, PATH_CHUNK / s->factors);
    return path_cycles(gpu, path_count_get(count->prepare, s->d_k),
                   path_count_get(count->prepare_mma, s->d_k), n * s->n_head * chunks) +
           (double) chunks * path_cycles(gpu, path_count_get(count->scan, s->d_k),
                                     path_count_get(count->scan_mma, s->d_k),
                                     n * s->n_head * path_ceil(s->d_v, PATH_SCAN_COLUMNS));
}

// Which kernels to launch; sequences of `from` tokens and more use chunks
struct path_choice {
    bool step, chunk;
    int  from;
};

// Lengths are on the device, so the choice is made for the lengths that a batch can have: the
// shortest length, up to 4,096, from which chunks are faster, with as many sequences of it as there
// can be. Both kernels are launched unless only one can have work.
static inline struct path_choice path_choose(
        const struct path_gpu * gpu, const struct path_shape * s) {
    const int64_t      longest = s->n_tokens - (s->n_seqs - 1); // if each sequence has a token
    struct path_choice choice = { true, false, 0 };
    for (int64_t T = 16; T <= longest && T <= 4096; T += 16) {
        const int64_t most = s->n_tokens / T;
        const int64_t n = most < s->n_seqs ? most : s->n_seqs;
        if (path_chunk_cycles(gpu, s, n, T) < path_step_cycles(gpu, s, n, T)) {
            choice.step = s->n_seqs > 1;
            choice.chunk = true;
            choice.from = (int) T;
            break;
        }
    }
    return choice;
}
