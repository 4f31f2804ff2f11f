#pragma once

// The part of the chunk path that takes the state from chunk to chunk (chunk.cuh):
//     R = V − (P ∘ K) S ,   U = T R             or, with nothing to solve, U = diag(f) X
//     O = scale ((P ∘ Q) S + A U)
//     S ← P_end ∘ S + (D_end ∘ K)ᵀ U            or, stepped, S ← g ∘ S + k_e u_eᵀ
//
// A block is one sequence, one head and 16 columns of the state. A warp has 16 rows of every
// product. Left operands (keys, queries, T, A) are read from memory by the one warp that uses them,
// so they need no shared memory. Right operands (S, R, U) are used by all warps and are in shared
// memory, already split for the tensor core. The state itself stays in registers, not split.

#include "chunk.cuh"

// A right operand of 16 columns in shared memory, in the order in which lanes read it: rows in
// groups of 16, two multiplications each. The assignment of the 16 rows to the two multiplications
// is free as long as the columns of the left operand match. Here lane % 4 = m has rows 4m .. 4m + 3
// of a group, two per multiplication, so that a left operand is read four columns at a time.
struct alignas(16) chunk_fragment { // of one lane, for one multiplication
    uint32_t hi[2], lo[2];
};

struct chunk_right {
    chunk_fragment * data; // [multiplications][2 halves of 8 columns][32 lanes]

    // the permutation avoids bank conflicts of lanes that write adjacent rows and lanes that read
    __device__ __forceinline__ chunk_fragment & at(int step, int half, int lane) const {
        return data[(step * 2 + half) * 32 + (lane ^ lane / 8 * 2)];
    }
    __device__ __forceinline__ void get(int step, int half, mma_split b[2]) const {
        const chunk_fragment f = at(step, half, (int) threadIdx.x % 32);
        b[0].hi = f.hi[0];
        b[1].hi = f.hi[1];
        b[0].lo = f.lo[0];
        b[1].lo = f.lo[1];
    }
    // one element; hi + lo is the number that was split
    __device__ __forceinline__ float get_one(int row, int half, int col) const {
        const chunk_fragment & f = at(row / 16 * 2 + row / 2 % 2, half, col * 4 + row % 16 / 4);
        return __int_as_float((int) f.hi[row % 2]) + __int_as_float((int) f.lo[row % 2]);
    }
    // writes a tile of 16 rows from `top`, in the layout of a product
    __device__ __forceinline__ void put(int top, const float tile[2][4]) const {
        UNROLL for (int half = 0; half < 2; ++half) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const int        row = tile_row(0, i); // of the group
                const int        lane = tile_col(0, i) * 4 + row / 4;
                chunk_fragment & f = at(top / 8 + row / 2 % 2, half, lane);
                const mma_split  x = mma_split_of(tile[half][i]);
                f.hi[row % 2] = x.hi;
                f.lo[row % 2] = x.lo;
            }
        }
    }
};

// A row of a left operand, zero beyond its n elements
struct chunk_row {
    const float * data;
    int           n;

    // elements 4m .. 4m + 3 of a group of 16. ALIGNED: data is a multiple of 16 bytes, n of 4.
    template <bool ALIGNED> __device__ __forceinline__ void get(int group, float x[4]) const {
        const int     first = 16 * group + (int) threadIdx.x % 4 * 4;
        const int     there = n - first;
        const float * from = data + first;
        if constexpr (ALIGNED) {
            const float4 four =
                    there > 0 ? cuda_load_four(from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            x[0] = four.x;
            x[1] = four.y;
            x[2] = four.z;
            x[3] = four.w;
        } else {
            UNROLL for (int i = 0; i < 4; ++i) {
                x[i] = i < there ? from[i] : 0.0f;
            }
        }
    }
};

// c += (rows g and g + 8 of a tile) · (groups of 16 rows of a right operand). The next groups of
// the left operand are loaded while these are multiplied: with few blocks on a multiprocessor
// nothing else hides the latency of memory.
template <bool ALIGNED>
CUDA_INLINE void chunk_multiply(
        float c[2][4], const chunk_row row[2], int groups, const chunk_right & right) {
    constexpr int AHEAD = 2;

    float left[AHEAD][2][4];
    UNROLL for (int x = 0; x < 2 * AHEAD; ++x) {
        row[x % 2].get<ALIGNED>(x / 2, left[x / 2][x % 2]);
    }
    for (int group = 0; group < groups; group += AHEAD) {
        UNROLL for (int x = 0; x < AHEAD; ++x) {
            float next[2][4];
            row[0].get<ALIGNED>(group + x + AHEAD, next[0]);
            row[1].get<ALIGNED>(group + x + AHEAD, next[1]);
            if (group + x < groups) {
                UNROLL for (int step = 0; step < 2; ++step) {
                    const float now[4] = { left[x][0][2 * step], left[x][1][2 * step],
                        left[x][0][2 * step + 1], left[x][1][2 * step + 1] };
                    mma_split   a[4], b[2][2];
                    mma_split_four(now, a);
                    right.get(2 * (group + x) + step, 0, b[0]);
                    right.get(2 * (group + x) + step, 1, b[1]);
                    mma_add(c[0], a, b[0]);
                    mma_add(c[1], a, b[1]);
                }
            }
            UNROLL for (int i = 0; i < 8; ++i) {
                left[x][i / 4][i % 4] = next[i / 4][i % 4];
            }
        }
    }
}

// The state of a block: warp w has the tiles of 16 rows w, w + 4, …
template <int DK> struct chunk_state {
    static constexpr int TILES = (DK + CHUNK_FACTORS - 1) / CHUNK_FACTORS;

    float S[TILES][2][4];

    CUDA_INLINE int top(int tile) {
        return ((int) threadIdx.x / 32 + CHUNK_WARPS * tile) * 16;
    }
    CUDA_INLINE bool there(int tile) {
        return DK % CHUNK_FACTORS == 0 || top(tile) < DK;
    }

    __device__ __forceinline__ void load(
            const cuda_batch & b, const cuda_seq & seq, int h, int begin) {
        const float * from = seq.slot_in < 0 ? nullptr : cuda_head(b, seq.slot_in, h);
        UNROLL for (int t = 0; t < TILES; ++t) {
            UNROLL for (int x = 0; x < 8; x += 2) {
                const int     r = tile_row(top(t), x % 4);
                const float * row =
                        from != nullptr && r < b.d_k ? from + (int64_t) r * b.d_v : nullptr;
                const float2 pair =
                        chunk_pair_at(row, begin + tile_col(x / 4, x % 4), b.d_v, b.aligned);
                S[t][x / 4][x % 4] = pair.x;
                S[t][x / 4][x % 4 + 1] = pair.y;
            }
        }
    }

    __device__ __forceinline__ void store(
            const cuda_batch & b, const cuda_seq & seq, int h, int begin, int64_t done) const {
        const int slot = cuda_slot_after(b, seq, done);
        if (slot < 0) {
            return;
        }
        float * to = cuda_head(b, slot, h);
        UNROLL for (int t = 0; t < TILES; ++t) {
            UNROLL for (int x = 0; x < 8; x += 2) {
                const int r = tile_row(top(t), x % 4);
                if (r < b.d_k) {
                    const int j = begin + tile_col(x / 4, x % 4);
                    cuda_put_pair(b, to + (int64_t) r * b.d_v + j, b.d_v - j, S[t][x / 4][x % 4],
                            S[t][x / 4][x % 4 + 1]);
                }
            }
        }
    }

    __device__ __forceinline__ void share(const chunk_right & right) const {
        UNROLL for (int t = 0; t < TILES; ++t) {
            if (there(t)) {
                right.put(top(t), S[t]);
            }
        }
    }

    // S ← gate ∘ S, per row
    __device__ __forceinline__ void scale_rows(const float * gate, int d_k) {
        UNROLL for (int t = 0; t < TILES; ++t) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const float y = chunk_at(gate, tile_row(top(t), i), d_k);
                S[t][0][i] *= y;
                S[t][1][i] *= y;
            }
        }
    }

    __device__ __forceinline__ void scale(float gate) {
        UNROLL for (int t = 0; t < TILES; ++t) {
            UNROLL for (int x = 0; x < 8; ++x) {
                S[t][x / 4][x % 4] *= gate;
            }
        }
    }

    // The first of the two factors that this lane has in multiplication `step`
    CUDA_INLINE int factor_of(int step) {
        return step / 2 * 16 + (int) threadIdx.x % 4 * 4 + step % 2 * 2;
    }

    // The keys of eight factors, transposed, as the left operands of this warp's tiles
    CUDA_INLINE void left(const float * const * key, int step, int d_k, float a[TILES][4]) {
        const float * k[2] = { key[factor_of(step)], key[factor_of(step) + 1] };
        UNROLL for (int t = 0; t < TILES; ++t) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const int r = top(t) + (int) threadIdx.x % 32 / 4 + i % 2 * 8;
                a[t][i] = r < d_k ? k[i / 2][r] : 0.0f;
            }
        }
    }

    // S ← S + (weight ∘ K)ᵀ U; key[e] is the row of factor e, or any row where U is zero
    __device__ __forceinline__ void add(const float * const * key, const float * weight, int d_k,
            int groups, const chunk_right & U) {
        const int steps = 2 * groups;
        float     now[TILES][4], next[TILES][4];
        left(key, 0, d_k, now);
        for (int step = 0; step < steps; ++step) {
            left(key, step + 1 < steps ? step + 1 : step, d_k, next);

            const float y[2] = { weight[factor_of(step)], weight[factor_of(step) + 1] };
            mma_split   b[2][2];
            U.get(step, 0, b[0]);
            U.get(step, 1, b[1]);
            UNROLL for (int t = 0; t < TILES; ++t) {
                if (there(t)) {
                    mma_split a[4];
                    UNROLL for (int i = 0; i < 4; ++i) {
                        a[i] = mma_split_of(y[i / 2] * now[t][i]);
                    }
                    mma_add(S[t][0], a, b[0]);
                    mma_add(S[t][1], a, b[1]);
                }
                UNROLL for (int i = 0; i < 4; ++i) {
                    now[t][i] = next[t][i];
                }
            }
        }
    }

    // S ← S + key u_eᵀ
    __device__ __forceinline__ void add_one(
            const float * key, int d_k, int e, const chunk_right & U) {
        float u[4];
        UNROLL for (int x = 0; x < 4; ++x) {
            u[x] = U.get_one(e, x / 2, tile_col(0, x % 2));
        }
        UNROLL for (int t = 0; t < TILES; ++t) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const float k = chunk_at(key, tile_row(top(t), i), d_k);
                S[t][0][i] = fmaf(k, u[i % 2], S[t][0][i]);
                S[t][1][i] = fmaf(k, u[2 + i % 2], S[t][1][i]);
            }
        }
    }
};

// grid: (maximum number of sequences · heads, groups of 16 columns), block: CHUNK_THREADS
// SOLVE: CHUNK_DELTA and CHUNK_RANK_ONE
template <int DK, bool SOLVE>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2) chunk_scan(const chunk_args a) {
    __shared__ chunk_fragment sh_S[DK * CHUNK_COLS / 2];
    __shared__ chunk_fragment sh_U[CHUNK_FACTORS * CHUNK_COLS / 2]; // R, then U
    __shared__ const float *  sh_key[CHUNK_FACTORS];  // rows of K and w, or of D_end ∘ K
    __shared__ float          sh_gate[CHUNK_FACTORS]; // per token, if the gate is per head
    __shared__ float          sh_in[CHUNK_FACTORS]; // P per factor, if the gate is per head; else 1
    __shared__ float          sh_out[CHUNK_FACTORS]; // D_end, likewise

    const householder_cuda_args & s = a.scan;
    const cuda_batch &            b = s.batch;
    cuda_wait();

    const int  h = (int) (blockIdx.x % b.n_head);
    const int  begin = (int) blockIdx.y * CHUNK_COLS;
    const int  end = begin + CHUNK_COLS < b.d_v ? begin + CHUNK_COLS : b.d_v;
    const int  tid = (int) threadIdx.x;
    const int  g = tid % 32 / 4;
    const int  top = tid / 32 * CHUNK_ROWS;
    const bool channel = s.gate_width > 1;
    const bool rank_one = SOLVE && s.r.data != nullptr;

    cuda_seq  seq;
    int       piece = 0;
    const int which = cuda_find_piece(a.n_seqs, (int) (blockIdx.x / b.n_head), &piece,
            [&](int i) { return cuda_seq_is_mine(b, seq, cuda_seq_get(b, i, &seq)) ? 1 : 0; });
    if (which < 0) {
        return; // fewer sequences are long enough than there could be
    }
    if (!cuda_seq_get(b, which, &seq)) {
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

    // Where this thread's factors are in a chunk, and the rows of this head: divisions are slow and
    // have the same results in every chunk.
    const int     t_key = tid / s.n_h;
    const int     f_key = tid % s.n_h;
    const int     t_v[2] = { (top + g) / s.n_h, (top + g + 8) / s.n_h };
    const int     f_v[2] = { (top + g) % s.n_h, (top + g + 8) % s.n_h };
    const float * keys = cuda_row(s.k, h, 0, 0);
    const float * values = cuda_row(s.v, h, 0, 0);
    const float * query = cuda_row(s.q, h, 0, 0);
    const float * gates = cuda_row(s.gate, h, 0, 0);

    // groups of 16 rows; the constant DK / 16 would be unrolled, with more registers than there are
    const int n_keys = (b.d_k + 15) / 16;

    for (int n = 0; n < list.size(); ++n) {
        const chunk_range range = list.at(n);
        const int64_t     first = seq.first + range.begin; // token of the batch
        const int64_t     rows = h * b.n_tokens + first;   // its row in the work buffer
        const int         n_factors = range.n * s.n_h;
        const int         groups = (n_factors + 15) / 16;

        if (s.gate_width == 1) {
            if (tid < range.n) {
                sh_gate[tid] = gates[(first + tid) * s.gate.token];
            }
            __syncthreads();
        }
        // one thread per factor: its row, and the products of the gates before and after it
        if (tid < CHUNK_FACTORS) {
            const bool is = tid < n_factors; // after the last one, repeat it
            const int  e = is ? tid : n_factors - 1;
            const int  t = is ? t_key : range.n - 1;
            const int  f = is ? f_key : s.n_h - 1;
            float      in = 1.0f, out = 1.0f;
            UNROLL_BY(8) for (int x = 0; x < (s.gate_width == 1 ? range.n : 0); ++x) {
                in *= x <= t ? sh_gate[x] : 1.0f;
                out *= x > t ? sh_gate[x] : 1.0f;
            }
            sh_in[tid] = in;
            sh_out[tid] = out;
            if (channel && !range.stepped) {
                sh_key[tid] = a.key_out + (rows * s.n_h + e) * b.d_k;
            } else if (rank_one) { // w, then k
                sh_key[tid] = cuda_row(f == 0 ? s.w : s.k, h, 0, first + t);
            } else {
                sh_key[tid] = keys + f * s.k.factor + (first + t) * s.k.token;
            }
        }
        float V[2][4]; // loaded early, used below
        UNROLL for (int i = 0; i < 4; i += 2) {
            const int     e = tile_row(top, i);
            const bool    has = e < n_factors && !(rank_one && e % 2 == 0);
            const int     f = rank_one ? 0 : f_v[i / 2];
            const float * v =
                    has ? values + f * s.v.factor + (first + t_v[i / 2]) * s.v.token : nullptr;
            const bool  scaled = !SOLVE && has && s.beta.data != nullptr;
            const float in = scaled ? cuda_row(s.beta, h, 0, first + e)[0] : 1.0f;
            UNROLL for (int half = 0; half < 2; ++half) {
                const float2 pair = chunk_pair_at(v, begin + tile_col(half, i), b.d_v, a.aligned);
                V[half][i] = scaled ? pair.x * in : pair.x;
                V[half][i + 1] = scaled ? pair.y * in : pair.y;
            }
        }
        if (!SOLVE) {
            right.put(top, V); // U
        }
        __syncthreads(); // rows, gates and S

        // K S and Q S
        float     R[2][4] = {}, O[2][4] = {};
        chunk_row row[2];
        if (SOLVE && top < n_factors) {
            UNROLL for (int i = 0; i < 2; ++i) {
                const int  e = top + g + 8 * i;
                const bool has = e < n_factors && !(rank_one && e % 2 == 1); // others read nothing
                row[i] = { channel ? a.key_in + (rows * s.n_h + e) * b.d_k : sh_key[e],
                    has ? b.d_k : 0 };
            }
            if (a.aligned) {
                chunk_multiply<true>(R, row, n_keys, state);
            } else {
                chunk_multiply<false>(R, row, n_keys, state);
            }
        }
        if (top < range.n) {
            UNROLL for (int i = 0; i < 2; ++i) {
                const int t = top + g + 8 * i;
                row[i] = { channel ? a.query_in + (rows + t) * b.d_k
                                   : query + (first + t) * s.q.token,
                    t < range.n ? b.d_k : 0 };
            }
            if (a.aligned) {
                chunk_multiply<true>(O, row, n_keys, state);
            } else {
                chunk_multiply<false>(O, row, n_keys, state);
            }
        }

        if constexpr (SOLVE) {
            // R = V − (P ∘ K) S
            UNROLL for (int i = 0; i < 4; ++i) {
                const float y = sh_in[tile_row(top, i)];
                R[0][i] = fmaf(-y, R[0][i], V[0][i]);
                R[1][i] = fmaf(-y, R[1][i], V[1][i]);
            }
            right.put(top, R);
            __syncthreads();

            // U = T R; T is zero above the diagonal
            float U[2][4] = {};
            if (top < n_factors) {
                UNROLL for (int i = 0; i < 2; ++i) {
                    const int e = top + g + 8 * i;
                    row[i] = { a.solve + (rows * s.n_h + e) * CHUNK_FACTORS,
                        e < n_factors ? CHUNK_FACTORS : 0 };
                }
                chunk_multiply<true>(U, row, top / 16 + 1, right);
            }
            __syncthreads(); // R has been read
            right.put(top, U);
            __syncthreads();
        }

        // O = scale ((P ∘ Q) S + A U)
        if (top < range.n) {
            UNROLL for (int i = 0; i < 2; ++i) {
                const int t = top + g + 8 * i;
                row[i] = { a.read + (rows + t) * CHUNK_FACTORS, t < range.n ? CHUNK_FACTORS : 0 };
            }
            UNROLL for (int i = 0; i < 4; ++i) {
                const int   t = tile_row(top, i);
                const float y = t < range.n ? sh_in[t * s.n_h] : 0.0f;
                O[0][i] *= y;
                O[1][i] *= y;
            }
            chunk_multiply<true>(O, row, groups, right);
            UNROLL for (int i = 0; i < 4; i += 2) {
                const int t = tile_row(top, i);
                if (t >= range.n) {
                    continue;
                }
                const bool  divide = !SOLVE && a.below.data != nullptr;
                const float below = divide ? cuda_row(a.below, h, 0, first + t)[0] : 1.0f;
                float *     out = s.out + ((first + t) * b.n_head + h) * b.d_v;
                UNROLL for (int half = 0; half < 2; ++half) {
                    float y[2] = { s.scale * O[half][i], s.scale * O[half][i + 1] };
                    if (divide) {
                        y[0] = __fdiv_rn(y[0], below);
                        y[1] = __fdiv_rn(y[1], below);
                    }
                    const int j = begin + tile_col(half, i);
                    cuda_put_pair(b, out + j, b.d_v - j, y[0], y[1]);
                }
            }
        }

        if (range.stepped) { // S ← g ∘ S + k_e u_eᵀ
            UNROLL_BY(1) for (int e = 0, t = 0; t < range.n; ++t) {
                if (channel) {
                    S.scale_rows(gates + (first + t) * s.gate.token, b.d_k);
                } else if (s.gate_width == 1) {
                    S.scale(sh_gate[t]);
                }
                UNROLL_BY(1) for (int f = 0; f < s.n_h; ++f, ++e) {
                    S.add_one(sh_key[e], b.d_k, e, right);
                }
                S.store(b, seq, h, begin, range.begin + t + 1);
            }
        } else { // S ← P_end ∘ S + (D_end ∘ K)ᵀ U
            if (channel) {
                S.scale_rows(a.gate_all + rows * b.d_k, b.d_k);
            } else {
                S.scale(sh_in[n_factors - 1]);
            }
            S.add(sh_key, sh_out, b.d_k, groups, right);
            S.store(b, seq, h, begin, range.begin + range.n);
        }
        __syncthreads(); // S, U, rows and gates have been used
        S.share(state);
    }
}
