#pragma once

// The part of the chunked Householder scan that does not depend on the state
// (householder-chunk.cuh). A block is one chunk of one head.
//
// Products of keys: warp w has factors 16w .. 16w + 15 as rows. Without channels in the gate, D_ei
// is a number:
//     (D_ei ∘ k_i)·k_e = D_ei (k_i·k_e) .
// With channels, D_ei is split at the borders of groups of 16 factors: from i to the end of its
// group, over whole groups, and from the start of e's group to e. Then
//     (D_ei ∘ k_i)·k_e = (to_end_i ∘ k_i) ∘ between · (from_begin_e ∘ k_e)
// is a matrix product again. Products inside a group are computed one by one.

#include "householder-chunk.cuh"

// Pitches of shared memory: rows begin at vectors, and lanes that read a column use different
// banks.
enum {
    PREPARE_PITCH = CHUNK_FACTORS + 4,
    PREPARE_SLICE = 16, // key channels in shared memory at a time
    SLICE_PITCH   = PREPARE_SLICE + 4,
};

// The chunk of a block, and the positions of its rows.
struct prepare_chunk {
    int     h;
    int64_t first; // token of the batch
    int     n_tokens;
    int     n_factors;

    __device__ __forceinline__ int64_t token(int e, int n_h) const {
        return first + e / n_h;
    }
    // rows of the work buffer
    __device__ __forceinline__ int64_t factor_row(const householder_chunk_args & a, int e) const {
        return (h * a.scan.batch.n_tokens + first) * a.scan.n_h + e;
    }
    __device__ __forceinline__ int64_t token_row(const householder_chunk_args & a, int t) const {
        return h * a.scan.batch.n_tokens + first + t;
    }
};

// Finds chunk `index` of the batch; false if there are fewer. Sequences out of range have no
// chunks.
static __device__ __forceinline__ bool prepare_find(
        const householder_chunk_args & a, int index, prepare_chunk * chunk) {
    const cuda_batch & b = a.scan.batch;
    cuda_seq           seq;
    int                piece = 0;
    const int          s     = cuda_find_piece(a.n_seqs, index, &piece, [&](int i) {
        return cuda_seq_get(b, i, &seq) ? chunk_list(b, seq, a.tokens).size() : 0;
    });
    if (s < 0) {
        return false;
    }
    cuda_seq_get(b, s, &seq);
    const chunk_range range = chunk_list(b, seq, a.tokens).at(piece);
    chunk->first            = seq.first + range.begin;
    chunk->n_tokens         = range.n;
    chunk->n_factors        = range.n * a.scan.n_h;
    return true;
}

// Rows of the chunk; NULL: none
struct prepare_rows {
    int           token[CHUNK_FACTORS]; // of each factor, relative to the chunk
    const float * key[CHUNK_FACTORS];
    const float * query[CHUNK_FACTORS];
    const float * gate[CHUNK_FACTORS];
};

// Starts to copy channels [d0, d0 + PREPARE_SLICE) of all rows
template <int PITCH>
static __device__ __forceinline__ void prepare_copy(
        float (*to)[PITCH], const float * const * row, int d0, int d_k, float missing) {
    for (int x = (int) threadIdx.x; x < CHUNK_FACTORS * PREPARE_SLICE; x += CHUNK_THREADS) {
        const int e = x / PREPARE_SLICE;
        const int i = x % PREPARE_SLICE;
        if (row[e] != nullptr && d0 + i < d_k) {
            cuda_copy(&to[e][i], row[e] + d0 + i, true);
        } else {
            to[e][i] = missing;
        }
    }
}

// Rows top .. top + 15 of a slice, channels i and i + 4, as the left operand of a multiplication
template <int PITCH>
static __device__ __forceinline__ void prepare_left(
        const float (*rows)[PITCH], int top, int i, mma_split left[4]) {
    const int g = (int) threadIdx.x % 32 / 4;
#pragma unroll
    for (int x = 0; x < 4; ++x) {
        left[x] = mma_split_of(rows[top + g + x % 2 * 8][i + x / 2 * 4]);
    }
}

// Sixteen columns of two products: four independent multiplications, because a tensor core has a
// long latency but a high throughput
static __device__ __forceinline__ void prepare_add(float kk[2][4], float qk[2][4],
        const mma_split key[4], const mma_split query[4], const mma_split right[2][2]) {
    mma_add(kk[0], key, right[0]);
    mma_add(kk[1], key, right[1]);
    mma_add(qk[0], query, right[0]);
    mma_add(qk[1], query, right[1]);
}

// No gate, or a gate per head. Leaves the products of keys, times the gates, in L, and writes A.
// Rows of queries are tokens, not factors.
struct prepare_plain {
    float key[2][CHUNK_FACTORS][SLICE_PITCH]; // one slice is used while the other is filled
    float query[2][CHUNK_FACTORS][SLICE_PITCH];
    float gate[CHUNK_FACTORS]; // per token

    __device__ __forceinline__ void fetch(const prepare_rows & rows, int d0, int d_k, int z) {
        if (d0 < d_k) {
            prepare_copy(key[z], rows.key, d0, d_k, 0.0f);
            prepare_copy(query[z], rows.query, d0, d_k, 0.0f);
        }
        cuda_copy_commit();
    }
};

template <int GATE>
static __device__ __forceinline__ void prepare_products(const householder_chunk_args & a,
        const prepare_chunk & c, float (*L)[PREPARE_PITCH], prepare_rows & rows,
        prepare_plain & slice) {
    const householder_cuda_args & s = a.scan;

    const int tid   = (int) threadIdx.x;
    const int g     = tid % 32 / 4;
    const int m     = tid % 4;
    const int top   = tid / 32 * CHUNK_ROWS;
    const int d_k   = s.batch.d_k;
    const int n_key = top < c.n_factors ? top + CHUNK_ROWS : 0; // columns up to the diagonal
    const int reach = (top + CHUNK_ROWS) * s.n_h; // factors that the queries of these rows see
    const int n_qry = top < c.n_tokens ? (reach < c.n_factors ? reach : c.n_factors) : 0;
    const int n_col = n_key > n_qry ? n_key : n_qry;

    if (tid < CHUNK_FACTORS) {
        rows.token[tid] = tid / s.n_h;
        rows.key[tid] =
                tid < c.n_factors ? cuda_row(s.k, c.h, tid % s.n_h, c.token(tid, s.n_h)) : nullptr;
        rows.query[tid] = tid < c.n_tokens ? cuda_row(s.q, c.h, 0, c.first + tid) : nullptr;
        if (GATE == HOUSEHOLDER_GATE_HEAD && tid < c.n_tokens) {
            // the wait for the first slice includes this copy
            cuda_copy(&slice.gate[tid], cuda_row(s.gate, c.h, 0, c.first + tid), true);
        }
    }
    __syncthreads();
    slice.fetch(rows, 0, d_k, 0);

    float kk[CHUNK_FACTORS / 8][4] = {};
    float qk[CHUNK_FACTORS / 8][4] = {};
    for (int d0 = 0, z = 0; d0 < d_k; d0 += PREPARE_SLICE, z = 1 - z) {
        slice.fetch(rows, d0 + PREPARE_SLICE, d_k, 1 - z);
        cuda_copy_wait<1>();
        __syncthreads();
#pragma unroll
        for (int step = 0; step < PREPARE_SLICE / 8; ++step) {
            const int i = 8 * step + m;
            mma_split left_k[4], left_q[4];
            prepare_left(slice.key[z], top, i, left_k);
            prepare_left(slice.query[z], top, i, left_q);
#pragma unroll
            for (int pair = 0; pair < CHUNK_FACTORS / 16; ++pair) {
                if (16 * pair < n_col) { // both products, even where only one is needed
                    mma_split right[2][2];
#pragma unroll
                    for (int x = 0; x < 4; ++x) {
                        right[x / 2][x % 2] = mma_split_of(
                                slice.key[z][16 * pair + x / 2 * 8 + g][i + x % 2 * 4]);
                    }
                    prepare_add(&kk[2 * pair], &qk[2 * pair], left_k, left_q, right);
                }
            }
        }
        __syncthreads(); // all threads have used this slice
    }

    if (GATE == HOUSEHOLDER_GATE_HEAD) { // D of tokens, one column per thread
        float product = 1.0f;
        for (int t = tid; t < c.n_tokens; ++t) {
            product *= t > tid ? slice.gate[t] : 1.0f;
            L[t][tid] = product;
        }
        __syncthreads();
    }
#pragma unroll
    for (int tile = 0; tile < CHUNK_FACTORS / 8; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = tile_row(top, i);
            const int col = tile_col(tile, i);
            if (row < c.n_tokens) {
                const bool  seen = col < c.n_factors && rows.token[col] <= row;
                const float D =
                        GATE == HOUSEHOLDER_GATE_HEAD && seen ? L[row][rows.token[col]] : 1.0f;
                a.read[c.token_row(a, row) * CHUNK_FACTORS + col] = seen ? D * qk[tile][i] : 0.0f;
            }
            if (GATE == HOUSEHOLDER_GATE_HEAD && col < row && row < c.n_factors) {
                kk[tile][i] *= L[rows.token[row]][rows.token[col]];
            }
        }
    }
    __syncthreads(); // D has been read
#pragma unroll
    for (int tile = 0; tile < CHUNK_FACTORS / 8; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            L[tile_row(top, i)][tile_col(tile, i)] = kk[tile][i];
        }
    }
}

// A gate per channel: one slice of channels at a time. All rows are factors. The query of a factor
// that is not the last of its token is zero; the gate of one that is not the first is 1.
struct prepare_slice {
    float key[CHUNK_FACTORS][PREPARE_SLICE + 1];
    float query[CHUNK_FACTORS][PREPARE_SLICE + 1];
    float gate[CHUNK_FACTORS][PREPARE_SLICE + 1];
    float key_begin[CHUNK_FACTORS][PREPARE_SLICE + 1];   // from_begin ∘ k
    float query_begin[CHUNK_FACTORS][PREPARE_SLICE + 1]; // from_begin ∘ q
    float key_end[CHUNK_FACTORS][PREPARE_SLICE + 1];     // to_end ∘ k
    float whole[CHUNK_WARPS][PREPARE_SLICE];             // product of the gates of a group

    __device__ __forceinline__ void fetch(const prepare_rows & rows, int d0, int d_k) {
        prepare_copy(key, rows.key, d0, d_k, 0.0f);
        prepare_copy(query, rows.query, d0, d_k, 0.0f);
        prepare_copy(gate, rows.gate, d0, d_k, 1.0f);
        cuda_copy_commit();
        cuda_copy_wait<0>();
    }

    // Each thread has one channel of one group of factors.
    __device__ __forceinline__ void multiply() {
        const int i = (int) threadIdx.x % PREPARE_SLICE;
        const int w = (int) threadIdx.x / PREPARE_SLICE;
        if (w >= CHUNK_WARPS) {
            return;
        }
        float product = 1.0f;
        for (int x = 0; x < CHUNK_ROWS; ++x) {
            const int e = w * CHUNK_ROWS + x;
            product *= gate[e][i];
            key_begin[e][i]   = product * key[e][i];
            query_begin[e][i] = product * query[e][i];
        }
        whole[w][i] = product;
        product     = 1.0f;
        for (int x = CHUNK_ROWS - 1; x >= 0; --x) {
            const int e   = w * CHUNK_ROWS + x;
            key_end[e][i] = product * key[e][i];
            product *= gate[e][i];
        }
    }

    // Writes P ∘ K, D_end ∘ K, P ∘ Q and P_end. Each thread has one channel of every eighth factor.
    __device__ __forceinline__ void put(const householder_chunk_args & a, const prepare_chunk & c,
            const prepare_rows & rows, int d0) const {
        constexpr int AT_ONCE = CHUNK_THREADS / PREPARE_SLICE;

        const int d_k = a.scan.batch.d_k;
        const int i   = (int) threadIdx.x % PREPARE_SLICE;
        const int e0  = (int) threadIdx.x / PREPARE_SLICE;
        if (d0 + i >= d_k) {
            return;
        }
        float before = 1.0f; // products of the gates of the groups before and after
#pragma unroll
        for (int w = 0; w < CHUNK_WARPS; ++w) {
            float after = 1.0f;
#pragma unroll
            for (int x = CHUNK_WARPS - 1; x > w; --x) {
                after *= whole[x][i];
            }
#pragma unroll
            for (int x = 0; x < CHUNK_ROWS / AT_ONCE; ++x) {
                const int e = w * CHUNK_ROWS + x * AT_ONCE + e0;
                if (e < c.n_factors) {
                    a.key_in[c.factor_row(a, e) * d_k + d0 + i]  = before * key_begin[e][i];
                    a.key_out[c.factor_row(a, e) * d_k + d0 + i] = after * key_end[e][i];
                    if (rows.query[e] != nullptr) {
                        a.query_in[c.token_row(a, rows.token[e]) * d_k + d0 + i] =
                                before * query_begin[e][i];
                    }
                }
            }
            before *= whole[w][i];
        }
        if (e0 == 0) {
            a.gate_all[c.token_row(a, 0) * d_k + d0 + i] = before;
        }
    }
};

static __device__ __forceinline__ void prepare_products_channel(const householder_chunk_args & a,
        const prepare_chunk & c, float (*L)[PREPARE_PITCH], prepare_rows & rows,
        prepare_slice & slice) {
    const householder_cuda_args & s = a.scan;

    const int  n_h  = s.n_h;
    const int  lane = (int) threadIdx.x % 32;
    const int  w    = (int) threadIdx.x / 32;
    const int  g    = lane / 4;
    const int  m    = lane % 4;
    const int  top  = w * CHUNK_ROWS;
    const int  self = lane % CHUNK_ROWS;  // the column of this lane inside a group
    const bool ask  = lane >= CHUNK_ROWS; // half of the lanes have keys, half queries

    float kk[CHUNK_FACTORS / 8 - 2][4] = {};
    float qk[CHUNK_FACTORS / 8 - 2][4] = {};
    float inside[CHUNK_ROWS]           = {};

    if (threadIdx.x < CHUNK_FACTORS) {
        const int     e = (int) threadIdx.x;
        const int     f = e % n_h;
        const int64_t t = c.token(e, n_h);
        rows.token[e]   = e / n_h;
        rows.key[e]     = e < c.n_factors ? cuda_row(s.k, c.h, f, t) : nullptr;
        rows.query[e]   = e < c.n_factors && f == n_h - 1 ? cuda_row(s.q, c.h, 0, t) : nullptr;
        rows.gate[e]    = e < c.n_factors && f == 0 ? cuda_row(s.gate, c.h, 0, t) : nullptr;
    }
    for (int d0 = 0; d0 < s.batch.d_k; d0 += PREPARE_SLICE) {
        __syncthreads(); // the previous slice has been used
        slice.fetch(rows, d0, s.batch.d_k);
        __syncthreads();
        slice.multiply();
        __syncthreads();
        slice.put(a, c, rows, d0);

#pragma unroll
        for (int step = 0; step < PREPARE_SLICE / 8; ++step) {
            const int i = 8 * step + m;
            mma_split left_k[4], left_q[4];
            prepare_left(slice.key_begin, top, i, left_k);
            prepare_left(slice.query_begin, top, i, left_q);
            float between[2] = { 1.0f, 1.0f };
#pragma unroll
            for (int v = CHUNK_WARPS - 2; v >= 0; --v) { // groups before w, the nearest first
                if (v < w) {
                    mma_split right[2][2];
#pragma unroll
                    for (int x = 0; x < 4; ++x) {
                        right[x / 2][x % 2] = mma_split_of(
                                between[x % 2] *
                                slice.key_end[v * CHUNK_ROWS + x / 2 * 8 + g][i + x % 2 * 4]);
                    }
                    prepare_add(&kk[2 * v], &qk[2 * v], left_k, left_q, right);
                    between[0] *= slice.whole[v][i];
                    between[1] *= slice.whole[v][i + 4];
                }
            }
        }
        for (int i = 0; i < PREPARE_SLICE; ++i) {
            float p = slice.key[top + self][i];
#pragma unroll
            for (int x = 0; x < CHUNK_ROWS; ++x) { // p = D_xi ∘ k_i
                const float row = ask ? slice.query[top + x][i] : slice.key[top + x][i];
                p *= x > self ? slice.gate[top + x][i] : 1.0f;
                inside[x] = x >= self ? fmaf(row, p, inside[x]) : inside[x];
            }
        }
    }

#pragma unroll
    for (int tile = 0; tile < CHUNK_FACTORS / 8; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int  row    = tile_row(top, i);
            const int  col    = tile_col(tile, i);
            const bool before = tile / 2 < w;
            if (before) {
                L[row][col] = kk[tile < 6 ? tile : 0][i];
            }
            if (tile / 2 != w && rows.query[row] != nullptr) {
                a.read[c.token_row(a, rows.token[row]) * CHUNK_FACTORS + col] =
                        before ? qk[tile < 6 ? tile : 0][i] : 0.0f;
            }
        }
    }
#pragma unroll
    for (int x = 0; x < CHUNK_ROWS; ++x) {
        const int row = top + x;
        if (!ask) {
            L[row][top + self] = inside[x];
        } else if (rows.query[row] != nullptr) {
            // zero above the diagonal
            a.read[c.token_row(a, rows.token[row]) * CHUNK_FACTORS + top + self] = inside[x];
        }
    }
}

// grid: (maximum number of chunks, heads), block: CHUNK_THREADS
template <int GATE>
static __global__ void __launch_bounds__(CHUNK_THREADS, 3)
        householder_chunk_prepare(const householder_chunk_args a) {
    constexpr bool CHANNEL = GATE == HOUSEHOLDER_GATE_CHANNEL;

    __shared__ float4 matrix[CHUNK_FACTORS][PREPARE_PITCH / 4];
    __shared__ float  beta[CHUNK_FACTORS];

    const householder_cuda_args & s   = a.scan;
    const int                     tid = (int) threadIdx.x;

    // L / β, below the diagonal
    float (*const L)[PREPARE_PITCH] = (float (*)[PREPARE_PITCH]) matrix;
    cuda_wait();

    prepare_chunk c;
    c.h = (int) blockIdx.y;
    if (!prepare_find(a, (int) blockIdx.x, &c)) {
        return;
    }
    for (int e = tid; e < CHUNK_FACTORS; e += CHUNK_THREADS) {
        beta[e] = e < c.n_factors ? cuda_row(s.beta, c.h, e % s.n_h, c.token(e, s.n_h))[0] : 0.0f;
    }
    __shared__ prepare_rows rows;
    if constexpr (CHANNEL) {
        __shared__ prepare_slice slice;
        prepare_products_channel(a, c, L, rows, slice);
    } else {
        __shared__ prepare_plain slice;
        prepare_products<GATE>(a, c, L, rows, slice);
    }
    __syncthreads();

    // (I + L) X = I, one column per thread:  x_e = [e is this column] − Σ_{i<e} L_ei x_i
    // T = X diag(β)
    if (tid < CHUNK_FACTORS) {
        float x[CHUNK_FACTORS];
#pragma unroll
        for (int e = 0; e < CHUNK_FACTORS; ++e) {
            float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
            for (int i = 0; i < e; i += 4) {
                const float4 l = matrix[e][i / 4];
                sum[0]         = fmaf(l.x, x[i], sum[0]);
                if (i + 1 < e) {
                    sum[1] = fmaf(l.y, x[i + 1], sum[1]);
                }
                if (i + 2 < e) {
                    sum[2] = fmaf(l.z, x[i + 2], sum[2]);
                }
                if (i + 3 < e) {
                    sum[3] = fmaf(l.w, x[i + 3], sum[3]);
                }
            }
            x[e] = e == tid  ? 1.0f
                   : e < tid ? 0.0f
                             : -beta[e] * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
            if (e < c.n_factors) {
                a.solve[c.factor_row(a, e) * CHUNK_FACTORS + tid] = x[e] * beta[tid];
            }
        }
    }
}
