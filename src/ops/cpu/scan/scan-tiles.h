#pragma once

// The framework of both scans on the CPU: tasks for threads, segments of tokens, tiles of the
// state, snapshots.
//
// Columns of a state never mix: S ← A S + B acts on each column separately. So a tile of TILE
// adjacent columns goes through a whole segment of tokens while it stays in the first-level cache,
// vectorized across its columns. Threads share the work as runs of adjacent tiles. A tile is copied
// from the state, [d_k][TILE] contiguous and padded with zeros, because the rows of a state are a
// power of two apart and would map to the same few lines of the cache.

#include "scan-cpu.h"

enum {
    TILE = VEC2,
    COLS_MAX = 2, // inputs with one element per column

    // A segment: factors that all tiles of a head process before any tile continues. Its keys stay
    // in the second-level cache, and so do the inputs of the next segment, which are fetched ahead:
    // wide rows need shorter segments. Both are whole chunks, and whole tokens of 2 to 4 factors.
    SEGMENT_FACTORS = 60,
    SEGMENT_FACTORS_WIDE = 24,
    SEGMENT_WIDE = 1024, // columns of a head

    // A pass: bytes of an input that all heads process before any head continues. Its pages stay in
    // the translation cache.
    PASS_BYTES = 2 << 20,
};

// A tile and its columns of the tokens t0 .. t1 − 1 of a segment, all of one sequence.
struct tile {
    float *                S; // [d_k][TILE]
    int64_t                h;
    int64_t                col, cols; // columns of the head; cols < TILE in the last tile
    int64_t                t0, t1;
    const float *          x[COLS_MAX]; // [tokens][factors][x_row], the first TILE of each row
    float *                y;           // [tokens][y_row]
    int64_t                x_row[COLS_MAX], y_row;
    struct tile_prefetch * prefetch; // the kernel calls prefetch_list or prefetch_some
};

// One token of one sequence, on some columns of a head, directly on the state. For a single token a
// copy into a tile would not pay, and memory delivers whole rows fastest.
struct token {
    const float * in;  // [d_k][d_v]   the state before
    float *       out; // [d_k][d_v]   the state after; may be `in`
    int64_t       h, t;
    int64_t       col0, col1;
    float *       y; // [d_v]
};

// Rows of the state per sweep of the token path. The sums over rows, each as long as a row, are
// loaded and stored once per sweep.
enum { TOKEN_ROWS = 4 };

// Takes a head through a segment of tokens, tile by tile, or through a single token.
struct tile_kernel {
    int64_t chunk; // factors that it processes at once; a segment starts with a whole chunk
    // computes once per segment what all tiles of a head share
    void (*prepare)(const void * op, int64_t h, int64_t t0, int64_t t1, float * prep);
    void (*run)(const void * op, const struct tile * tile, const float * prep);
    // one token; bit-identical to the step path
    void (*token)(const void * op, const struct token * token, float * work);
};

// An input of the scan, with `rows` rows of `width` floats per head and token.
struct input {
    struct tokens tokens;
    int64_t       width;
    int64_t       rows;
};

enum { INPUTS_MAX = 6 };

struct tile_scan {
    const void *               op; // argument of the kernel
    struct scan_dims           dims;
    struct tokens              x[COLS_MAX];
    struct input               inputs[INPUTS_MAX]; // all that are not small; then zeros
    int64_t                    prep_floats;        // scratch memory of the kernel per thread
    const struct tile_kernel * kernel;
};

static inline int64_t most_of(int64_t a, int64_t b, int64_t c) {
    const int64_t most = a > b ? a : b;
    return most > c ? most : c;
}

// Runs a scan. `work` holds tile_scan_floats() floats per thread and is aligned for vectors.
void tile_scan_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst,
        const struct tile_scan * scan, float * work);
int64_t tile_scan_floats(const struct scan_dims * dims, int64_t prep_floats);

// The number of tokens in a segment, except in the last one and next to a snapshot.
int64_t tile_scan_segment(const struct scan_dims * dims);

// The rows of the inputs and of the output that the next segment of a thread needs. Rows of one
// head are far apart, each in another page, where no hardware prefetcher follows. So the kernels
// fetch them into the second-level cache while they compute, one line per row of the tile: a core
// can wait for about twenty lines at a time, and then every later load stalls.
enum {
    LINE = 64 / sizeof(float),
    BURST_LINES = 4,
    BURST = BURST_LINES * LINE,
    PREFETCH_MAX = 128, // per sweep; more are not fetched
};

struct prefetch_rows {
    const char * data; // the rows of the next token
    size_t       nb_token, nb_row;
    int64_t      rows, width; // per token; floats
};

struct tile_prefetch {
    struct prefetch_rows input[INPUTS_MAX + 1]; // and the output
    int                  n_inputs;
    int64_t              tokens;     // not yet in the list
    float                per_factor; // tokens to fetch for each factor of a tile
    float                due;        // tokens
    int                  n;
    const float *        burst[PREFETCH_MAX]; // to be fetched now
    int                  at;                  // prefetch_some: bursts that were taken from the list
    int64_t              waiting;             // prefetch_some: factors since it was made
};

// Line j of a burst.
SIMD_INLINE void prefetch_line(const float * burst, int j) {
    __builtin_prefetch(burst + j * LINE, 0, 2);
}

// Lists the bursts to fetch while a tile goes through `factors` factors.
SIMD_INLINE void prefetch_list(struct tile_prefetch * prefetch, int64_t factors) {
    prefetch->n = 0;
    prefetch->due += prefetch->per_factor * (float) factors;
    for (; prefetch->due >= 1.0f && prefetch->tokens > 0; --prefetch->tokens) {
        prefetch->due -= 1.0f;
        for (struct prefetch_rows * x = prefetch->input; x < prefetch->input + prefetch->n_inputs;
                ++x) {
            for (int64_t r = 0; r < x->rows; ++r) {
                const float * row = (const float *) (x->data + (size_t) r * x->nb_row);
                for (int64_t j = 0; j < x->width && prefetch->n < PREFETCH_MAX; j += BURST) {
                    prefetch->burst[prefetch->n++] = row + j;
                }
            }
            x->data += x->nb_token;
        }
    }
}

SIMD_INLINE void prefetch_burst(const float * burst) {
    for (int j = 0; j < BURST_LINES; ++j) {
        prefetch_line(burst, j);
    }
}

// Fetches the bursts of the list from burst i on.
SIMD_INLINE void prefetch_rest(const struct tile_prefetch * prefetch, int i) {
    for (; i < prefetch->n; ++i) {
        prefetch_burst(prefetch->burst[i]);
    }
}

struct fetch {
    const float ** burst;
    int            n;
};

// Bursts to fetch while a tile goes through `factors` factors, if a tile is a small part of a head:
// the list of a token is divided among several tiles.
SIMD_INLINE struct fetch prefetch_some(struct tile_prefetch * prefetch, int64_t factors) {
    prefetch->waiting += factors;
    if (prefetch->at == prefetch->n) {
        prefetch_list(prefetch, prefetch->waiting);
        prefetch->at = 0;
        prefetch->waiting = 0;
    }
    const float        share = prefetch->per_factor * (float) factors;
    const int          rest = prefetch->n - prefetch->at;
    const int          some = share < 1.0f ? (int) (share * (float) prefetch->n) + 1 : rest;
    const struct fetch fetch = { prefetch->burst + prefetch->at, some < rest ? some : rest };
    prefetch->at += fetch.n;
    return fetch;
}

// Packs the rows of head h for all factors of the tokens t0 .. t1 − 1: [tokens][factors][width].
void scan_pack_rows(float * packed, const struct tokens * x, int64_t h, int64_t n_factors,
        int64_t t0, int64_t t1, int64_t width);
