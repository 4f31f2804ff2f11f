#pragma once

// The part of the chunk path that does not depend on the state (chunk.cuh). A block is one chunk of
// one head.
//
// Products of keys: warp w has factors 16w .. 16w + 15 as rows. Without channels in the gate, D_ei
// is a number:
//     (D_ei ∘ k_i)·k_e = D_ei (k_i·k_e) .
// With channels, D_ei is split at the borders of groups of 16 factors: from i to the end of its
// group, over whole groups, and from the start of e's group to e. Then
//     (D_ei ∘ k_i)·k_e = (to_end_i ∘ k_i) ∘ between · (from_begin_e ∘ k_e)
// is a matrix product again. Products inside a group are computed one by one.
//
// The rows that multiply keys depend on the form (chunk.cuh):
//     CHUNK_DELTA     keys, for L, and queries, for A
//     CHUNK_DIAGONAL  queries
//     CHUNK_RANK_ONE  r of a token in its first factor, for L, and q in its second, for A

#include "chunk.cuh"

// Pitches of shared memory: rows begin at vectors, and lanes that read a column use different
// banks.
enum {
    PREPARE_PITCH = CHUNK_FACTORS + 4,
    PREPARE_SLICE = 16, // key channels in shared memory at a time
    SLICE_PITCH = PREPARE_SLICE + 4,
};

// The chunk of a block, and the positions of its rows.
struct chunk_place {
    int     h;
    int64_t first; // token of the batch
    int     n_tokens;
    int     n_factors;

    __device__ __forceinline__ int64_t token(int e, int n_h) const {
        return first + e / n_h;
    }
    // rows of the work buffer
    __device__ __forceinline__ int64_t factor_row(const chunk_args & a, int e) const {
        return (h * a.scan.batch.n_tokens + first) * a.scan.n_h + e;
    }
    __device__ __forceinline__ int64_t token_row(const chunk_args & a, int t) const {
        return h * a.scan.batch.n_tokens + first + t;
    }
};

// Finds chunk `index` of the batch; false if there are fewer. Sequences out of range, and those of
// the step kernel, have no chunks.
CUDA_INLINE bool prepare_find(const chunk_args & a, int index, chunk_place * chunk) {
    const cuda_batch & b = a.scan.batch;
    cuda_seq           seq;
    int                piece = 0;
    const int          s = cuda_find_piece(a.n_seqs, index, &piece, [&](int i) {
        const bool ok = cuda_seq_get(b, i, &seq);
        return ok && cuda_seq_is_mine(b, seq, ok) ? chunk_list(b, seq, a.tokens).size() : 0;
    });
    if (s < 0) {
        return false;
    }
    cuda_seq_get(b, s, &seq);
    const chunk_range range = chunk_list(b, seq, a.tokens).at(piece);
    chunk->first = seq.first + range.begin;
    chunk->n_tokens = range.n;
    chunk->n_factors = range.n * a.scan.n_h;
    return true;
}

// Rows of the chunk; NULL: none
struct prepare_rows {
    int           token[CHUNK_FACTORS]; // of each factor, relative to the chunk
    const float * key[CHUNK_FACTORS];
    const float * query[CHUNK_FACTORS];
    const float * gate[CHUNK_FACTORS];
};

// Starts to copy channels [d0, d0 + PREPARE_SLICE) of all rows. aligned: chunk_args.aligned
CUDA_INLINE void prepare_copy(float (*to)[SLICE_PITCH], const float * const * row, int d0, int d_k,
        float missing, bool aligned) {
    static_assert(SLICE_PITCH % 4 == 0, "rows start at vectors");
    if (aligned) {
        constexpr int QUADS = PREPARE_SLICE / 4;
        UNROLL for (int x = 0; x < CHUNK_FACTORS * QUADS / CHUNK_THREADS; ++x) {
            const int     at = x * CHUNK_THREADS + (int) threadIdx.x;
            const int     i = at % QUADS * 4;
            float4 *      four = (float4 *) &to[at / QUADS][i];
            const float * from = row[at / QUADS];
            const bool    has = from != nullptr && d0 + i < d_k;
            if (has || missing == 0.0f) {
                cuda_copy_four(four, from + d0 + i, has);
            } else {
                *four = make_float4(missing, missing, missing, missing);
            }
        }
        return;
    }
    for (int x = (int) threadIdx.x; x < CHUNK_FACTORS * PREPARE_SLICE; x += CHUNK_THREADS) {
        const int  e = x / PREPARE_SLICE;
        const int  i = x % PREPARE_SLICE;
        const bool has = row[e] != nullptr && d0 + i < d_k;
        if (has || missing == 0.0f) {
            cuda_copy(&to[e][i], row[e] + d0 + i, has);
        } else {
            to[e][i] = missing;
        }
    }
}

// Rows top .. top + 15 of a slice, channels i and i + 4, as the left operand of a multiplication
template <int PITCH>
CUDA_INLINE void prepare_left(const float (*rows)[PITCH], int top, int i, mma_split left[4]) {
    const int g = (int) threadIdx.x % 32 / 4;
    UNROLL for (int x = 0; x < 4; ++x) {
        left[x] = mma_split_of(rows[top + g + x % 2 * 8][i + x / 2 * 4]);
    }
}

// Sixteen columns of both products: four independent multiplications, because a tensor core has a
// long latency but a high throughput. Only CHUNK_DELTA has products of keys.
template <int FORM>
CUDA_INLINE void prepare_add(float kk[2][4], float qk[2][4], const mma_split key[4],
        const mma_split query[4], const mma_split right[2][2]) {
    if (FORM == CHUNK_DELTA) {
        mma_add(kk[0], key, right[0]);
        mma_add(kk[1], key, right[1]);
    }
    mma_add(qk[0], query, right[0]);
    mma_add(qk[1], query, right[1]);
}

// No gate, or a gate per head. Leaves the products of keys, times the gates, in L, and writes A.
// Rows of queries are tokens, not factors.
struct prepare_plain {
    alignas(16) float key[2][CHUNK_FACTORS]
                         [SLICE_PITCH]; // one slice is used while the other is filled
    alignas(16) float query[2][CHUNK_FACTORS][SLICE_PITCH];
    float gate[CHUNK_FACTORS]; // per token

    __device__ __forceinline__ void fetch(
            const prepare_rows & rows, int d0, int d_k, int z, bool aligned) {
        if (d0 < d_k) {
            prepare_copy(key[z], rows.key, d0, d_k, 0.0f, aligned);
            prepare_copy(query[z], rows.query, d0, d_k, 0.0f, aligned);
        }
        cuda_copy_commit();
    }
};

template <int GATE, int FORM>
CUDA_INLINE void prepare_products(const chunk_args & a, const chunk_place & c,
        float (*L)[PREPARE_PITCH], prepare_rows & rows, prepare_plain & slice) {
    const householder_cuda_args & s = a.scan;

    const int tid = (int) threadIdx.x;
    const int g = tid % 32 / 4;
    const int m = tid % 4;
    const int top = tid / 32 * CHUNK_ROWS;
    const int d_k = s.batch.d_k;
    const int n_key = // columns up to the diagonal
            FORM == CHUNK_DELTA && top < c.n_factors ? top + CHUNK_ROWS : 0;
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
    slice.fetch(rows, 0, d_k, 0, a.aligned);

    float kk[CHUNK_FACTORS / 8][4] = {};
    float qk[CHUNK_FACTORS / 8][4] = {};
    for (int d0 = 0, z = 0; d0 < d_k; d0 += PREPARE_SLICE, z = 1 - z) {
        slice.fetch(rows, d0 + PREPARE_SLICE, d_k, 1 - z, a.aligned);
        cuda_copy_wait<1>();
        __syncthreads();
        UNROLL for (int step = 0; step < PREPARE_SLICE / 8; ++step) {
            const int i = 8 * step + m;
            mma_split left_k[4], left_q[4];
            if (FORM == CHUNK_DELTA) {
                prepare_left(slice.key[z], top, i, left_k);
            }
            prepare_left(slice.query[z], top, i, left_q);
            UNROLL for (int pair = 0; pair < CHUNK_FACTORS / 16; ++pair) {
                if (16 * pair < n_col) { // both products, even where only one is needed
                    mma_split right[2][2];
                    UNROLL for (int x = 0; x < 4; ++x) {
                        right[x / 2][x % 2] = mma_split_of(
                                slice.key[z][16 * pair + x / 2 * 8 + g][i + x % 2 * 4]);
                    }
                    prepare_add<FORM>(&kk[2 * pair], &qk[2 * pair], left_k, left_q, right);
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
    UNROLL for (int tile = 0; tile < CHUNK_FACTORS / 8; ++tile) {
        UNROLL for (int i = 0; i < 4; ++i) {
            const int row = tile_row(top, i);
            const int col = tile_col(tile, i);
            if (row < c.n_tokens) {
                const bool  seen = col < c.n_factors && rows.token[col] <= row;
                const float D =
                        GATE == HOUSEHOLDER_GATE_HEAD && seen ? L[row][rows.token[col]] : 1.0f;
                a.read[c.token_row(a, row) * CHUNK_FACTORS + col] = seen ? D * qk[tile][i] : 0.0f;
            }
            if (FORM == CHUNK_DELTA && GATE == HOUSEHOLDER_GATE_HEAD && col < row &&
                    row < c.n_factors) {
                kk[tile][i] *= L[rows.token[row]][rows.token[col]];
            }
        }
    }
    if (FORM == CHUNK_DELTA) {
        __syncthreads(); // D has been read
        UNROLL for (int tile = 0; tile < CHUNK_FACTORS / 8; ++tile) {
            UNROLL for (int i = 0; i < 4; ++i) {
                L[tile_row(top, i)][tile_col(tile, i)] = kk[tile][i];
            }
        }
    }
}

// A gate per channel: one slice of channels at a time. All rows are factors. The query of a factor
// that is not the last of its token is zero, or r with CHUNK_RANK_ONE; the gate of one that is not
// the first is 1.
template <int FORM> struct prepare_slice {
    static constexpr int KEYS = FORM == CHUNK_DELTA ? CHUNK_FACTORS : 1;

    alignas(16) float key[CHUNK_FACTORS][SLICE_PITCH];
    alignas(16) float query[CHUNK_FACTORS][SLICE_PITCH];
    alignas(16) float gate[CHUNK_FACTORS][SLICE_PITCH];
    float key_begin[KEYS][PREPARE_SLICE + 1];            // from_begin ∘ k
    float query_begin[CHUNK_FACTORS][PREPARE_SLICE + 1]; // from_begin ∘ q
    float key_end[CHUNK_FACTORS][PREPARE_SLICE + 1];     // to_end ∘ k
    float whole[CHUNK_WARPS][PREPARE_SLICE];             // product of the gates of a group
    float bonus[PREPARE_SLICE];

    __device__ __forceinline__ void fetch(
            const prepare_rows & rows, const float * u, int d0, int d_k, bool aligned) {
        const int i = (int) threadIdx.x;
        if (FORM == CHUNK_DIAGONAL && u != nullptr && i < PREPARE_SLICE) {
            cuda_copy(&bonus[i], u + d0 + i, d0 + i < d_k);
        }
        prepare_copy(key, rows.key, d0, d_k, 0.0f, aligned);
        prepare_copy(query, rows.query, d0, d_k, 0.0f, aligned);
        prepare_copy(gate, rows.gate, d0, d_k, 1.0f, aligned);
        cuda_copy_commit();
        cuda_copy_wait<0>();
    }

    // True if row e, with r as its query, is a row of L; the others are rows of A
    CUDA_INLINE bool solves(int e) {
        return FORM == CHUNK_RANK_ONE && e % 2 == 0;
    }

    // True if row e reads the state before the gate of its factor
    CUDA_INLINE bool early(int e, bool has_bonus) {
        return solves(e) || (FORM == CHUNK_DIAGONAL && has_bonus);
    }

    // Each thread has one channel of one group of factors.
    __device__ __forceinline__ void multiply(bool has_bonus) {
        const int i = (int) threadIdx.x % PREPARE_SLICE;
        const int w = (int) threadIdx.x / PREPARE_SLICE;
        if (w >= CHUNK_WARPS) {
            return;
        }
        float product = 1.0f;
        for (int x = 0; x < CHUNK_ROWS; ++x) {
            const int   e = w * CHUNK_ROWS + x;
            const float before = product;
            product *= gate[e][i];
            if (FORM == CHUNK_DELTA) {
                key_begin[FORM == CHUNK_DELTA ? e : 0][i] = product * key[e][i];
            }
            query_begin[e][i] = (early(e, has_bonus) ? before : product) * query[e][i];
        }
        whole[w][i] = product;
        product = 1.0f;
        for (int x = CHUNK_ROWS - 1; x >= 0; --x) {
            const int e = w * CHUNK_ROWS + x;
            key_end[e][i] = product * key[e][i];
            product *= gate[e][i];
        }
    }

    // Writes P ∘ K or P ∘ r, D_end ∘ K, P ∘ Q and P_end. Each thread has one channel of every
    // eighth factor.
    __device__ __forceinline__ void put(
            const chunk_args & a, const chunk_place & c, const prepare_rows & rows, int d0) const {
        constexpr int AT_ONCE = CHUNK_THREADS / PREPARE_SLICE;

        const int d_k = a.scan.batch.d_k;
        const int i = (int) threadIdx.x % PREPARE_SLICE;
        const int e0 = (int) threadIdx.x / PREPARE_SLICE;
        if (d0 + i >= d_k) {
            return;
        }
        float before = 1.0f; // products of the gates of the groups before and after
        UNROLL for (int w = 0; w < CHUNK_WARPS; ++w) {
            float after = 1.0f;
            UNROLL for (int x = CHUNK_WARPS - 1; x > w; --x) {
                after *= whole[x][i];
            }
            UNROLL for (int x = 0; x < CHUNK_ROWS / AT_ONCE; ++x) {
                const int e = w * CHUNK_ROWS + x * AT_ONCE + e0;
                if (e < c.n_factors) {
                    const int64_t at = c.factor_row(a, e) * d_k + d0 + i;
                    a.key_out[at] = after * key_end[e][i];
                    if (FORM == CHUNK_DELTA) {
                        a.key_in[at] = before * key_begin[FORM == CHUNK_DELTA ? e : 0][i];
                    }
                    if (FORM == CHUNK_RANK_ONE && e % 2 == 0) {
                        a.key_in[at] = before * query_begin[e][i];
                    } else if (rows.query[e] != nullptr) {
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

template <int FORM>
CUDA_INLINE void prepare_products_channel(const chunk_args & a, const chunk_place & c,
        float (*L)[PREPARE_PITCH], prepare_rows & rows, prepare_slice<FORM> & slice) {
    const householder_cuda_args & s = a.scan;
    constexpr bool                DELTA = FORM == CHUNK_DELTA;

    const int n_h = s.n_h;
    const int lane = (int) threadIdx.x % 32;
    const int w = (int) threadIdx.x / 32;
    const int g = lane / 4;
    const int m = lane % 4;
    const int top = w * CHUNK_ROWS;
    const int self = lane % CHUNK_ROWS; // the column of this lane inside a group

    // Inside a group, half of the lanes have keys and half queries; or, if there is one kind of
    // rows, half have the even channels and half the odd ones.
    const bool    ask = lane >= CHUNK_ROWS;
    const float * bonus = a.bonus.data != nullptr ? cuda_row(a.bonus, c.h, 0, 0) : nullptr;

    float kk[CHUNK_FACTORS / 8 - 2][4] = {};
    float qk[CHUNK_FACTORS / 8 - 2][4] = {};
    float inside[CHUNK_ROWS] = {};

    if (threadIdx.x < CHUNK_FACTORS) {
        const int     e = (int) threadIdx.x;
        const int     f = e % n_h;
        const int64_t t = c.token(e, n_h);
        rows.token[e] = e / n_h;
        rows.key[e] = e >= c.n_factors                   ? nullptr
                      : FORM == CHUNK_RANK_ONE && f == 0 ? cuda_row(s.w, c.h, 0, t)
                      : FORM == CHUNK_RANK_ONE           ? cuda_row(s.k, c.h, 0, t)
                                                         : cuda_row(s.k, c.h, f, t);
        rows.query[e] = e >= c.n_factors         ? nullptr
                        : f == n_h - 1           ? cuda_row(s.q, c.h, 0, t)
                        : FORM == CHUNK_RANK_ONE ? cuda_row(s.r, c.h, 0, t)
                                                 : nullptr;
        rows.gate[e] = e < c.n_factors && f == 0 ? cuda_row(s.gate, c.h, 0, t) : nullptr;
    }
    for (int d0 = 0; d0 < s.batch.d_k; d0 += PREPARE_SLICE) {
        __syncthreads(); // the previous slice has been used
        slice.fetch(rows, bonus, d0, s.batch.d_k, a.aligned);
        __syncthreads();
        slice.multiply(bonus != nullptr);
        __syncthreads();
        slice.put(a, c, rows, d0);

        UNROLL for (int step = 0; step < PREPARE_SLICE / 8; ++step) {
            const int i = 8 * step + m;
            mma_split left_k[4], left_q[4];
            if (DELTA) {
                prepare_left(slice.key_begin, top, i, left_k);
            }
            prepare_left(slice.query_begin, top, i, left_q);
            float between[2] = { 1.0f, 1.0f };
            UNROLL for (int v = CHUNK_WARPS - 2; v >= 0;
                    --v) { // groups before w, the nearest first
                if (v < w) {
                    mma_split right[2][2];
                    UNROLL for (int x = 0; x < 4; ++x) {
                        right[x / 2][x % 2] = mma_split_of(
                                between[x % 2] *
                                slice.key_end[v * CHUNK_ROWS + x / 2 * 8 + g][i + x % 2 * 4]);
                    }
                    prepare_add<FORM>(&kk[2 * v], &qk[2 * v], left_k, left_q, right);
                    between[0] *= slice.whole[v][i];
                    between[1] *= slice.whole[v][i + 4];
                }
            }
        }
        for (int i = DELTA ? 0 : ask; i < PREPARE_SLICE; i += DELTA ? 1 : 2) {
            const float own = bonus != nullptr ? slice.bonus[i] : 1.0f;
            float       p = slice.key[top + self][i];
            UNROLL for (int x = 0; x < CHUNK_ROWS; ++x) { // p = D_xi ∘ k_i
                const float row = !DELTA || ask ? slice.query[top + x][i] : slice.key[top + x][i];
                const float before = x == self ? own * p : p;
                p *= x > self ? slice.gate[top + x][i] : 1.0f;
                const float term = slice.early(x, bonus != nullptr) ? before : p;
                inside[x] = x >= self ? fmaf(row, term, inside[x]) : inside[x];
            }
        }
    }
    if (!DELTA) {
        UNROLL for (int x = 0; x < CHUNK_ROWS; ++x) {
            inside[x] += __shfl_xor_sync(0xFFFFFFFF, inside[x], CHUNK_ROWS);
        }
    }

    UNROLL for (int tile = 0; tile < CHUNK_FACTORS / 8; ++tile) {
        UNROLL for (int i = 0; i < 4; ++i) {
            const int  row = tile_row(top, i);
            const int  col = tile_col(tile, i);
            const bool before = tile / 2 < w;
            const bool reads = rows.query[row] != nullptr && !slice.solves(row);
            if (before && DELTA) {
                L[row][col] = kk[tile < 6 ? tile : 0][i];
            } else if (before && FORM == CHUNK_RANK_ONE) {
                L[row][col] = slice.solves(row) ? qk[tile < 6 ? tile : 0][i] : 0.0f;
            }
            if (tile / 2 != w && reads) {
                a.read[c.token_row(a, rows.token[row]) * CHUNK_FACTORS + col] =
                        before ? qk[tile < 6 ? tile : 0][i] : 0.0f;
            }
        }
    }
    UNROLL for (int x = 0; x < CHUNK_ROWS; ++x) {
        const int row = top + x;
        if (!ask && FORM != CHUNK_DIAGONAL) {
            L[row][top + self] = DELTA || slice.solves(row) ? inside[x] : 0.0f;
        } else if (ask && rows.query[row] != nullptr && !slice.solves(row)) {
            // zero above the diagonal
            a.read[c.token_row(a, rows.token[row]) * CHUNK_FACTORS + top + self] = inside[x];
        }
    }
}

// (I + L) X = I, one column per thread:  x_e = [e is this column] − Σ_{i<e} L_ei x_i
// T = X diag(β); β = 1 with CHUNK_RANK_ONE
template <int FORM>
CUDA_INLINE void prepare_solve(const chunk_args & a, const chunk_place & c,
        const float4 (*matrix)[PREPARE_PITCH / 4], const float *         beta) {
    constexpr bool DELTA = FORM == CHUNK_DELTA;

    const int tid = (int) threadIdx.x;
    if (tid >= CHUNK_FACTORS) {
        return;
    }
    float x[CHUNK_FACTORS];
    UNROLL for (int e = 0; e < CHUNK_FACTORS; ++e) {
        float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        UNROLL for (int i = 0; i < e; i += 4) {
            const float4 l = matrix[e][i / 4];
            sum[0] = fmaf(l.x, x[i], sum[0]);
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
                         : -(DELTA ? beta[e] : 1.0f) * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
        if (e < c.n_factors) {
            a.solve[c.factor_row(a, e) * CHUNK_FACTORS + tid] = x[e] * (DELTA ? beta[tid] : 1.0f);
        }
    }
}

// grid: (maximum number of chunks, heads), block: CHUNK_THREADS
template <int GATE, int FORM>
static __global__ void __launch_bounds__(CHUNK_THREADS, 3) chunk_prepare(const chunk_args a) {
    constexpr bool CHANNEL = GATE == HOUSEHOLDER_GATE_CHANNEL;
    constexpr bool SOLVE = FORM != CHUNK_DIAGONAL;
    constexpr bool MATRIX = SOLVE || GATE == HOUSEHOLDER_GATE_HEAD;

    __shared__ float4 matrix[MATRIX ? CHUNK_FACTORS : 1][PREPARE_PITCH / 4];
    __shared__ float  beta[CHUNK_FACTORS];

    const householder_cuda_args & s = a.scan;
    const int                     tid = (int) threadIdx.x;

    // L / β, below the diagonal
    float (*const L)[PREPARE_PITCH] = (float (*)[PREPARE_PITCH]) matrix;
    cuda_wait();

    chunk_place c;
    c.h = (int) blockIdx.y;
    if (!prepare_find(a, (int) blockIdx.x, &c)) {
        return;
    }
    for (int e = tid; FORM == CHUNK_DELTA && e < CHUNK_FACTORS; e += CHUNK_THREADS) {
        beta[e] = e < c.n_factors ? cuda_row(s.beta, c.h, e % s.n_h, c.token(e, s.n_h))[0] : 0.0f;
    }
    __shared__ prepare_rows rows;
    if constexpr (CHANNEL) {
        __shared__ prepare_slice<FORM> slice;
        prepare_products_channel<FORM>(a, c, L, rows, slice);
    } else {
        __shared__ prepare_plain slice;
        prepare_products<GATE, FORM>(a, c, L, rows, slice);
    }
    if constexpr (SOLVE) {
        __syncthreads();
        prepare_solve<FORM>(a, c, matrix, beta);
    }
}
