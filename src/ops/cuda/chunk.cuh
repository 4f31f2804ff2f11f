#pragma once

// The chunk path of both scans: 64 factors at a time, as matrix products.
//
// Number the factors of all tokens of a chunk e = 1, 2, … Let g_e be the gate if e is the first
// factor of its token, and 1 otherwise. Then the recurrence is
//     S_e = g_e S_{e−1} + k_e δ_eᵀ ,   δ_e = β_e (v_e − g_e S_{e−1}ᵀ k_e) .
// With the state S_0 before the chunk, P_e = g_1 … g_e and D_ei = g_{i+1} … g_e (per channel),
//     g_e S_{e−1} = P_e S_0 + Σ_{i<e} D_ei k_i δ_iᵀ .
// So the δ of the chunk, as rows of U, solve a triangular system, and the rest is products:
//     (I + L) U = diag(β) (V − (P ∘ K) S_0) ,   L_ei = β_e (D_ei ∘ k_i)·k_e for i < e
//     O = scale ((P ∘ Q) S_0 + A U) ,           A_ti = (D_ti ∘ k_i)·q_t for i ≤ t
//     S = P_end ∘ S_0 + (D_end ∘ K)ᵀ U ,
// where row t of O and A belongs to the token whose last factor is t. Gates are only multiplied,
// with no logarithms and no quotients, so any sign works, and so does zero.
//
// Two other forms use the same equations.
//
// CHUNK_DIAGONAL, the signed-gate scan: S_e = g_e S_{e−1} + k_e δ_eᵀ with a known δ_e = f_e x_e, so
// there is nothing to solve and a factor is a token. With a bonus, a token reads the state before
// its gate and its update: row t of P and D ends at t − 1, and A_tt = (bonus ∘ k_t)·q_t.
//
// CHUNK_RANK_ONE, the Householder scan with r and w: a token S ← g ∘ S − w (Sᵀr)ᵀ + k vᵀ is two
// factors,
//     S_e = g_e S_{e−1} + w δ_eᵀ ,   δ_e = −S_{e−1}ᵀ r     with row e of P and D up to e − 1
//     S_e = S_{e−1} + k δ_eᵀ ,       δ_e = v               whose row of L is zero,
// with β = 1, so in L and in P ∘ K the rows are those of r and the columns those of w and k.
//
// chunk-prepare.cuh computes all that does not depend on S_0, for all chunks at once:
// T = (I + L)⁻¹ diag(β) and A; with a gate per channel also P ∘ K, P ∘ Q and D_end ∘ K. With β in
// [0, 2] and unit keys no entry of T exceeds 4, because for i < e
//     T_ei = −β_e β_i k_eᵀ Π (I − β_j k_j k_jᵀ) k_i .
// chunk-scan.cuh takes the state from chunk to chunk.
//
// A chunk consists of whole tokens, so that gates and outputs are at its ends. Snapshots are of the
// last tokens of a sequence. These are chunks of their own, stepped chunks, in which the last
// equation is replaced by S ← g ∘ S + k_e δ_eᵀ, factor by factor, with a snapshot after each token.

#include "householder-step.cuh"
#include "mma.cuh"

enum {
    CHUNK_FACTORS = 64,
    CHUNK_WARPS = 4,
    CHUNK_THREADS = 32 * CHUNK_WARPS,
    CHUNK_ROWS = CHUNK_FACTORS / CHUNK_WARPS, // rows per warp: those of one multiplication
    CHUNK_COLS = 16, // columns of the state per block: two multiplications wide
};

enum chunk_form { CHUNK_DELTA, CHUNK_DIAGONAL, CHUNK_RANK_ONE };

static_assert(CHUNK_ROWS == 16, "a warp has the rows of one multiplication");

struct chunk_args {
    householder_cuda_args scan;  // CHUNK_DIAGONAL: beta is f, or absent; CHUNK_RANK_ONE: n_h is 2
    cuda_rows             bonus; // CHUNK_DIAGONAL with a gate per channel; or absent
    cuda_rows             below; // CHUNK_DIAGONAL: divisor of the output; or absent
    int                   n_seqs;
    int                   tokens; // per chunk: 64 / n_h
    bool aligned;                 // all tensors with rows of d_k or d_v numbers (cuda_rows.aligned)

    // the work buffer starts at a multiple of 16 bytes
    float * solve; // [heads][tokens·n_h][64]    T, one row per factor; or NULL
    float * read;  // [heads][tokens][64]        A, one row per token

    // only with a gate per channel
    float * key_in;   // [heads][tokens·n_h][d_k]   P ∘ K; NULL if there is nothing to solve
    float * key_out;  // [heads][tokens·n_h][d_k]   D_end ∘ K
    float * query_in; // [heads][tokens][d_k]       P ∘ Q
    float * gate_all; // [heads][tokens][d_k]       P_end, in the row of the chunk's first token
};

struct chunk_range {
    int  begin;   // in tokens of the sequence
    int  n;       // tokens
    bool stepped; // the state goes through its factors one by one
};

// A sequence is cut into chunks of `tokens` tokens. The last ones, as far back as there are
// snapshots, are stepped.
struct chunk_list {
    int count, tokens;
    int stepped; // tokens of the stepped chunks
    int whole;   // chunks before them

    __device__ __forceinline__ chunk_list(
            const cuda_batch & b, const cuda_seq & seq, int chunk_tokens) {
        count = (int) seq.count; // from an I32
        tokens = chunk_tokens;
        stepped = 0;
        for (int s = 0; s < b.n_snap && s < count; ++s) {
            stepped = seq.snaps[s] >= 0 ? s + 1 : stepped;
        }
        whole = pieces(count - stepped);
    }
    __device__ __forceinline__ int pieces(int n) const {
        return n / tokens + (n % tokens != 0);
    }
    __device__ __forceinline__ int size() const {
        return whole + pieces(stepped);
    }
    __device__ __forceinline__ chunk_range at(int c) const {
        chunk_range r;
        r.stepped = c >= whole;
        r.begin = r.stepped ? count - stepped + (c - whole) * tokens : c * tokens;
        const int left = (r.stepped ? count : count - stepped) - r.begin;
        r.n = left < tokens ? left : tokens;
        return r;
    }
};

// Element i of a row; 0 if the row is NULL or too short
CUDA_INLINE float chunk_at(const float * row, int i, int n) {
    return row != nullptr && i < n ? row[i] : 0.0f;
}

// Elements i and i + 1 of such a row. pair: the address of element i is a multiple of 8 bytes, and
// n is even.
CUDA_INLINE float2 chunk_pair_at(const float * row, int i, int n, bool pair) {
    if (pair) {
        return row != nullptr && i < n ? cuda_load_pair(row + i) : make_float2(0.0f, 0.0f);
    }
    return make_float2(chunk_at(row, i, n), chunk_at(row, i + 1, n));
}

// Row and column of element i that this lane holds of a 16 × 8 product: tile `tile` from the left,
// rows from `top`
CUDA_INLINE int tile_row(int top, int i) {
    return top + (int) threadIdx.x % 32 / 4 + i / 2 * 8;
}
CUDA_INLINE int tile_col(int tile, int i) {
    return 8 * tile + (int) threadIdx.x % 4 * 2 + i % 2;
}
