#pragma once

// The chunked form of the Householder scan: 64 factors at a time, as matrix products.
//
// Call every factor of every token an event. With g_e the gate if e is the first factor of its
// token and 1 otherwise, the recurrence is
//     S_e = g_e S_{e−1} + k_e δ_eᵀ ,   δ_e = β_e (v_e − g_e S_{e−1}ᵀ k_e) .
// From the state S_0 before the chunk, with P_e = g_1 … g_e and D_ei = g_{i+1} … g_e (products over
// channels one by one),
//     g_e S_{e−1} = P_e S_0 + Σ_{i<e} D_ei k_i δ_iᵀ ,
// so that the δ of the chunk, as rows of U, solve a triangular system, and the rest is products:
//     (I + L) U = diag(β) (V − (P ∘ K) S_0) ,   L_ei = β_e (D_ei ∘ k_i)·k_e for i < e
//     O = scale ((P ∘ Q) S_0 + A U) ,           A_ti = (D_ti ∘ k_i)·q_t for i ≤ t, t being the last event of the token
//     S = P_end ∘ S_0 + (D_end ∘ K)ᵀ U .
// Gates are only ever multiplied: no logarithm and no quotient, so any sign and 0 are as good as
// any other number.
//
// What does not depend on S_0 is made for all chunks at once (householder-chunk-prepare.cuh): T =
// (I + L)⁻¹ diag(β), A, and, where the gate has channels, P ∘ K, P ∘ Q and D_end ∘ K. With |β| ≤ 2
// and unit keys no entry of T exceeds 2. The rest goes from chunk to chunk
// (householder-chunk-state.cuh).
//
// A chunk has whole tokens, so that gates and outputs lie at its borders. Tokens whose state is
// wanted as a snapshot end a chunk.

#include "householder-step.cuh"
#include "mma.cuh"

enum {
    CHUNK_EVENTS  = 64,
    CHUNK_WARPS   = 4,
    CHUNK_THREADS = 32 * CHUNK_WARPS,
    CHUNK_ROWS    = CHUNK_EVENTS / CHUNK_WARPS, // of a warp: those of one multiplication
    CHUNK_COLS    = 16, // columns of the state that a block takes: two multiplications wide
};

static_assert(CHUNK_ROWS == 16, "a warp has the rows of one multiplication");

struct householder_chunk_args {
    householder_cuda_args scan;
    int                   n_seqs;
    int                   tokens; // of a chunk: 64 / n_h
    float *               solve;  // [heads][tokens·n_h][64]    T, a row an event
    float *               read;   // [heads][tokens][64]        A, a row a token
    float * key_in; // [heads][tokens·n_h][d_k]   P ∘ K, only for a gate with channels, as are the next three
    float * key_out;  // [heads][tokens·n_h][d_k]   D_end ∘ K
    float * query_in; // [heads][tokens][d_k]       P ∘ Q
    float * gate_all; // [heads][tokens][d_k]       P_end, in the row of the chunk's first token
};

struct chunk_range {
    int begin; // in tokens of the sequence
    int n;     // tokens
};

// A sequence is cut into chunks of `tokens`; then come chunks of one token, as far back as a
// snapshot is wanted.
struct chunk_list {
    int count, singles, whole, tokens;

    __device__ __forceinline__ chunk_list(
            const cuda_batch & b, const cuda_seq & seq, int chunk_tokens) {
        count   = (int) seq.count; // from an I32
        tokens  = chunk_tokens;
        singles = 0;
        for (int s = 0; s < b.n_snap && s < count; ++s) {
            singles = seq.snaps[s] >= 0 ? s + 1 : singles;
        }
        whole = (count - singles) / tokens + ((count - singles) % tokens != 0);
    }
    __device__ __forceinline__ int size() const {
        return whole + singles;
    }
    __device__ __forceinline__ chunk_range at(int c) const {
        const int   left = count - singles - c * tokens; // of whole chunks
        chunk_range r;
        r.begin = c < whole ? c * tokens : count - singles + c - whole;
        r.n     = c >= whole ? 1 : left < tokens ? left : tokens;
        return r;
    }
};

// Element i of a row that may not exist
static __device__ __forceinline__ float chunk_at(const float * row, int i, int n) {
    return row != nullptr && i < n ? row[i] : 0.0f;
}

// Where an element of a product lies, as lanes hold it: 16 × 8, number `tile` from the left, rows
// from `top`
static __device__ __forceinline__ int tile_row(int top, int i) {
    return top + (int) threadIdx.x % 32 / 4 + i / 2 * 8;
}
static __device__ __forceinline__ int tile_col(int tile, int i) {
    return 8 * tile + (int) threadIdx.x % 4 * 2 + i % 2;
}
