#pragma once

// The part of the chunked Householder scan that goes from chunk to chunk (householder-chunk.cuh):
//     R = V − (P ∘ K) S ,   U = T R ,   O = scale ((P ∘ Q) S + A U) ,   S ← P_end ∘ S + (D_end ∘ K)ᵀ U
//
// A block is one sequence, one head and 16 columns of the state. A warp has 16 rows of every product. Left factors (keys, queries, T, A) are read
// from memory by the one warp that multiplies with them, so they need no shared memory; right factors (S, R, U) are what all warps need and lie in
// shared memory, already split for the tensor core. The state itself stays in registers, unsplit.

#include "householder-chunk.cuh"

// A right factor of 16 columns in shared memory. Columns are exchanged in a pattern of four rows, so that the lanes that read a multiplication's
// part of it touch every bank once.
struct chunk_right {
    mma_split * data;

    __device__ __forceinline__ mma_split & at(int row, int col) const { return data[row*CHUNK_COLS + (col ^ row % 4*4)]; }

    // rows [8·step, 8·step + 8), columns [8·half, 8·half + 8)
    __device__ __forceinline__ void get(int step, int half, mma_split b[2]) const {
        const int row = 8*step + (int) threadIdx.x % 4;
        const int col = 8*half + (int) threadIdx.x % 32/4;
        b[0] = at(row,     col);
        b[1] = at(row + 4, col);
    }
    // a tile of 16 rows from `top`, as the product of a multiplication lies
    __device__ __forceinline__ void put(int top, const float tile[2][4]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                at(tile_row(top, i), tile_col(half, i)) = mma_split_of(tile[half][i]);
            }
        }
    }
};

// Columns [8·step, 8·step + 8) of two rows, g and g + 8 of a tile, as the left factor of a multiplication
static __device__ __forceinline__ void chunk_left(const float * const row[2], int step, int n, float a[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        a[i] = chunk_at(row[i % 2], 8*step + (int) threadIdx.x % 4 + i/2*4, n);
    }
}

// c += (two rows of a tile) · (steps of eight rows of a right factor). The next few steps of the left factor are on their way while these are
// multiplied: with few blocks on a multiprocessor nothing else hides the way from memory.
static __device__ __forceinline__ void chunk_multiply(float c[2][4], const float * const row[2], int n, int steps, const chunk_right & right) {
    constexpr int AHEAD = 4;

    float left[AHEAD][4];
#pragma unroll
    for (int x = 0; x < AHEAD; ++x) {
        chunk_left(row, x, n, left[x]);
    }
    for (int step = 0; step < steps; step += AHEAD) {
        float next[AHEAD][4];
#pragma unroll
        for (int x = 0; x < AHEAD; ++x) {
            chunk_left(row, step + AHEAD + x, n, next[x]);
        }
#pragma unroll
        for (int x = 0; x < AHEAD; ++x) {
            if (step + x < steps) {
                mma_split a[4], b[2];
                mma_split_four(left[x], a);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    right.get(step + x, half, b);
                    mma_add(c[half], a, b);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                left[x][i] = next[x][i];
            }
        }
    }
}

// The state of a block: tiles of 16 rows, number w, w + 4, … at warp w.
template <int DK>
struct chunk_state {
    static constexpr int TILES = (DK + CHUNK_EVENTS - 1)/CHUNK_EVENTS;

    float S[TILES][2][4];

    static __device__ __forceinline__ int top(int tile) { return ((int) threadIdx.x/32 + CHUNK_WARPS*tile)*16; }

    __device__ __forceinline__ void load(const cuda_batch & b, const cuda_seq & seq, int h, int begin) {
        const float * from = seq.slot_in < 0 ? nullptr : cuda_head(b, seq.slot_in, h);
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int x = 0; x < 8; ++x) {
                const int r = tile_row(top(t), x % 4);
                const int j = begin + tile_col(x/4, x % 4);
                S[t][x/4][x % 4] = from != nullptr && r < b.d_k && j < b.d_v ? from[(int64_t) r*b.d_v + j] : 0.0f;
            }
        }
    }

    __device__ __forceinline__ void store(const cuda_batch & b, const cuda_seq & seq, int h, int begin, int64_t done) const {
        const int slot = cuda_slot_after(b, seq, done);
        if (slot < 0) {
            return;
        }
        float * to = cuda_head(b, slot, h);
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int x = 0; x < 8; ++x) {
                const int r = tile_row(top(t), x % 4);
                const int j = begin + tile_col(x/4, x % 4);
                if (r < b.d_k && j < b.d_v) {
                    to[(int64_t) r*b.d_v + j] = S[t][x/4][x % 4];
                }
            }
        }
    }

    __device__ __forceinline__ void share(const chunk_right & right) const {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            if (top(t) < DK) {
                right.put(top(t), S[t]);
            }
        }
    }

    // S ← gate ∘ S, a number a row
    __device__ __forceinline__ void scale_rows(const float * gate, int d_k) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float y = chunk_at(gate, tile_row(top(t), i), d_k);
                S[t][0][i] *= y;
                S[t][1][i] *= y;
            }
        }
    }

    __device__ __forceinline__ void scale(float gate) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int x = 0; x < 8; ++x) {
                S[t][x/4][x % 4] *= gate;
            }
        }
    }

    // The keys of eight events, transposed, as the left factors of this warp's tiles
    static __device__ __forceinline__ void left(const float * const * key, int step, int d_k, float a[TILES][4]) {
        const float * k[2] = { key[8*step + (int) threadIdx.x % 4], key[8*step + (int) threadIdx.x % 4 + 4] };
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                a[t][i] = chunk_at(k[i/2], top(t) + (int) threadIdx.x % 32/4 + i % 2*8, d_k);
            }
        }
    }

    // S ← S + (weight ∘ K)ᵀ U; key[e] is the row of event e
    __device__ __forceinline__ void add(const float * const * key, const float * weight, int d_k, int steps, const chunk_right & U) {
        float now[TILES][4], next[TILES][4];
        left(key, 0, d_k, now);
        for (int step = 0; step < steps; ++step) {
            left(key, step + 1 < steps ? step + 1 : step, d_k, next);

            const float y[2] = { weight[8*step + (int) threadIdx.x % 4], weight[8*step + (int) threadIdx.x % 4 + 4] };
            mma_split   b[2][2];
            U.get(step, 0, b[0]);
            U.get(step, 1, b[1]);
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                if (top(t) < DK) {
                    mma_split a[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        a[i] = mma_split_of(y[i/2]*now[t][i]);
                    }
                    mma_add(S[t][0], a, b[0]);
                    mma_add(S[t][1], a, b[1]);
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    now[t][i] = next[t][i];
                }
            }
        }
    }
};

// grid: (sequences · heads, groups of 16 columns), block: CHUNK_THREADS
template <int DK>
static __global__ void __launch_bounds__(CHUNK_THREADS, DK > 64 ? 2 : 3) householder_chunk(const householder_chunk_args a) {
    __shared__ mma_split     sh_S[DK*CHUNK_COLS];
    __shared__ mma_split     sh_U[CHUNK_EVENTS*CHUNK_COLS]; // R, then U
    __shared__ const float * sh_key[CHUNK_EVENTS];          // rows of K, or of D_end ∘ K
    __shared__ float         sh_in[CHUNK_EVENTS];           // P, if it is a number an event; else 1
    __shared__ float         sh_out[CHUNK_EVENTS];          // D_end, the same

    const householder_cuda_args & s = a.scan;
    const cuda_batch &            b = s.batch;
    cuda_wait();

    const int  h       = (int) (blockIdx.x % b.n_head);
    const int  begin   = (int) blockIdx.y*CHUNK_COLS;
    const int  end     = begin + CHUNK_COLS < b.d_v ? begin + CHUNK_COLS : b.d_v;
    const int  tid     = (int) threadIdx.x;
    const int  g       = tid % 32/4;
    const int  top     = tid/32*CHUNK_ROWS;
    const bool channel = s.gate_width > 1;

    cuda_seq seq;
    if (!cuda_seq_get(b, (int) (blockIdx.x/b.n_head), &seq)) {
        cuda_fill_nan(b, seq, h, begin, end, s.out, tid, CHUNK_THREADS);
        return;
    }
    const chunk_list  list(b, seq, a.tokens);
    const chunk_right state = { sh_S };
    const chunk_right right = { sh_U };

    chunk_state<DK> S;
    S.load(b, seq, h, begin);
    S.store(b, seq, h, begin, 0);
    S.share(state);

    for (int64_t n = 0; n < list.size(); ++n) {
        const chunk_range range    = list.at(n);
        const int64_t     first    = seq.first + range.begin;              // token of the batch
        const int64_t     rows     = h*b.n_tokens + first;                 // its row in the work buffer
        const int         n_events = range.n*s.n_h;
        const int         steps    = (n_events + 7)/8;

        // a thread for each event: its row, and the products of gates before and after it
        if (tid < CHUNK_EVENTS) {
            const int  t     = tid/s.n_h;
            const bool there = tid < n_events;
            float      in = 1.0f, out = 1.0f;
            if (s.gate_width == 1) {
                for (int x = 0; there && x < range.n; ++x) {
                    const float y = cuda_row(s.gate, h, 0, first + x)[0];
                    in  *= x <= t ? y : 1.0f;
                    out *= x >  t ? y : 1.0f;
                }
            }
            sh_in [tid] = in;
            sh_out[tid] = out;
            sh_key[tid] = !there ? nullptr : channel ? a.key_out + (rows*s.n_h + tid)*b.d_k : cuda_row(s.k, h, tid % s.n_h, first + t);
        }
        __syncthreads(); // these, and S

        // K S and Q S
        float         R[2][4] = {}, O[2][4] = {};
        const float * row[2];
        if (top < n_events) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int e = top + g + 8*i;
                row[i] = e >= n_events ? nullptr : channel ? a.key_in + (rows*s.n_h + e)*b.d_k : sh_key[e];
            }
            chunk_multiply(R, row, b.d_k, DK/8, state);
        }
        if (top < range.n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int t = top + g + 8*i;
                row[i] = t >= range.n ? nullptr : channel ? a.query_in + (rows + t)*b.d_k : cuda_row(s.q, h, 0, first + t);
            }
            chunk_multiply(O, row, b.d_k, DK/8, state);
        }

        // R = V − (P ∘ K) S
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int     e = tile_row(top, i);
            const float * v = e < n_events ? cuda_row(s.v, h, e % s.n_h, first + e/s.n_h) : nullptr;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float x = chunk_at(v, begin + tile_col(half, i), b.d_v);
                R[half][i] = fmaf(-sh_in[e], R[half][i], x);
            }
        }
        right.put(top, R);
        __syncthreads();

        // U = T R; T is zero above the diagonal
        float U[2][4] = {};
        if (top < n_events) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int e = top + g + 8*i;
                row[i] = e < n_events ? a.solve + (rows*s.n_h + e)*CHUNK_EVENTS : nullptr;
            }
            chunk_multiply(U, row, CHUNK_EVENTS, top/8 + 2, right);
        }
        __syncthreads(); // R has been read
        right.put(top, U);
        __syncthreads();

        // O = scale ((P ∘ Q) S + A U)
        if (top < range.n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int t = top + g + 8*i;
                row[i] = t < range.n ? a.read + (rows + t)*CHUNK_EVENTS : nullptr;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int   t = tile_row(top, i);
                const float y = t < range.n ? sh_in[t*s.n_h] : 0.0f;
                O[0][i] *= y;
                O[1][i] *= y;
            }
            chunk_multiply(O, row, CHUNK_EVENTS, steps, right);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int t = tile_row(top, i);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int j = begin + tile_col(half, i);
                    if (t < range.n && j < b.d_v) {
                        s.out[((first + t)*b.n_head + h)*b.d_v + j] = s.scale*O[half][i];
                    }
                }
            }
        }

        // S ← P_end ∘ S + (D_end ∘ K)ᵀ U
        if (channel) {
            S.scale_rows(a.gate_all + rows*b.d_k, b.d_k);
        } else {
            S.scale(sh_in[n_events - 1]);
        }
        S.add(sh_key, sh_out, b.d_k, steps, right);
        S.share(state); // S of before was read before U was made
        S.store(b, seq, h, begin, range.begin + range.n);
        __syncthreads(); // U, rows and gates have been read
    }
}
