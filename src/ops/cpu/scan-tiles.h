#pragma once

// The skeleton of both scans on the CPU: tasks for threads, segments of tokens, tiles of state,
// snapshots.
//
// Columns of a state never mix: S ← A S + B acts on each one alone. So a tile of TILE adjacent
// columns is taken through a whole segment of tokens while it stays in the first-level cache,
// vectorised across its columns, and runs of tiles are what threads share out among themselves. A
// tile is copied out of the state, [d_k][TILE] contiguous and padded with zeros, because the rows
// of a state lie a power of two apart and would fall on the same few lines of the cache.

#include "scan-cpu.h"

enum {
    TILE = VEC2,
    SEGMENT_FACTORS =
            128, // keys that all tiles of a head go through before the next ones, so that they stay in the second-level cache
    PASS_BYTES =
            2
            << 20, // bytes of an input that all heads go through before the next ones, so that its pages stay in the translation cache
    COLS_MAX = 2,  // inputs with one element a column
};

// A tile and its columns of a segment of tokens t0 .. t1 − 1, all of one sequence. Everything is
// packed: in the batch the rows of a head lie a power of two apart too.
struct tile {
    float *       S; // [d_k][TILE]
    int64_t       h;
    int64_t       col, cols; // the columns of the head that it holds; cols < TILE at the right edge
    int64_t       t0, t1;
    const float * x[COLS_MAX]; // [tokens][factors][TILE]
    float *       y;           // [tokens][TILE]
};

// One token of one sequence, on some columns of a head, straight on the state: for a single token a
// tile would be copied for nothing, and whole rows are what memory delivers fastest.
struct token {
    const float * in;  // [d_k][d_v]   the state before
    float *       out; // [d_k][d_v]   the state after; may be the same
    int64_t       h, t;
    int64_t       col0, col1;
    float *       y; // [d_v]
};

enum {
    TOKEN_ROWS = 4
}; // rows taken together: the sums over rows, which are as long as a row, are loaded and stored once for them

// A way to take a head through a segment of tokens, tile by tile, and through a single token.
struct tile_kernel {
    // what all tiles of a head need of a segment, computed once
    void (*prepare)(const void * op, int64_t h, int64_t t0, int64_t t1, float * prep);
    void (*run)(const void * op, const struct tile * tile, const float * prep);
    void (*token)(const void * op, const struct token * token,
            float * work); // to the bit what the step path computes
};

struct tile_scan {
    const void *               op; // for the kernel
    struct scan_dims           dims;
    struct tokens              x[COLS_MAX];
    int64_t                    prep_floats; // scratch of a thread for the kernel
    const struct tile_kernel * kernel;
};

// Runs a scan. `work` holds tile_scan_floats() floats a thread, from an address that a vector may
// be stored at.
void tile_scan_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst,
        const struct tile_scan * scan, float * work);
int64_t tile_scan_floats(const struct scan_dims * dims, int64_t prep_floats);

// The most tokens that a segment can have.
int64_t tile_scan_segment(const struct scan_dims * dims);

// A row of tokens, and the request for the same row some tokens on. Rows of one head lie far apart,
// in as many pages, where no hardware prefetcher follows. (A prefetch of an address beyond the
// tensor does nothing.)
enum { PREFETCH_TOKENS = 4, LINE = 64 / sizeof(float) };

SIMD_INLINE const float * row_ahead(
        const struct tokens * x, int64_t h, int64_t j, int64_t t, int64_t width) {
    const float * row = tokens_row(x, h, j, t);
    for (int64_t i = 0; i < width; i += LINE) {
        __builtin_prefetch((const char *) (row + i) + PREFETCH_TOKENS * x->nb_token);
    }
    return row;
}

// Packs the rows of head h for all factors of the tokens t0 .. t1 − 1: [tokens][factors][width].
void rows_pack(float * packed, const struct tokens * x, int64_t h, int64_t n_factors, int64_t t0,
        int64_t t1, int64_t width);
