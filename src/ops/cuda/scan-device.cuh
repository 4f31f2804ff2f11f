#pragma once

// Shared by the kernels: sequences and slots as in lrnn-ops.h, rows of tokens, and the layout of a
// state across the lanes of a warp. This header and those with kernels use only the CUDA language,
// so that tests can run them on a CPU.

#include <stdint.h>

#define CUDA_INLINE       static __device__ __forceinline__

// UNROLL for (…): completely, or n times
#define UNROLL            _Pragma("unroll")
#define UNROLL_BY(n)      UNROLL_TEXT(unroll n)
#define UNROLL_TEXT(text) _Pragma(#text)

// Waits for the earlier kernels of the stream. ggml-cuda lets a kernel begin before they end
// (programmatic dependent launch), so every kernel here calls this first.
CUDA_INLINE void cuda_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A tensor of tokens, [width, heads, factors, tokens]; strides in floats.
struct cuda_rows {
    const float * data; // NULL: the tensor is absent
    int64_t       head, factor, token;
    int           share;   // state heads that use one head of this tensor
    bool          aligned; // every row starts at a multiple of 16 bytes and is made of such pieces
};

CUDA_INLINE const float * cuda_row(const cuda_rows & x, int h, int64_t factor, int64_t t) {
    return x.data + (h / x.share) * x.head + factor * x.factor + t * x.token;
}

struct cuda_batch {
    float *         state;       // [slots], each [heads][head_size]
    int64_t         slot_stride; // in floats
    int64_t         head_size;
    const int32_t * ids; // [sequences][4 + n_snap]
    int             n_snap;
    int64_t         n_slots;
    int64_t         n_tokens;
    int             n_head;
    int             d_k, d_v;

    // A kernel computes the sequences with min_count to max_count tokens. If step and chunk kernel
    // are both launched, they divide the batch: lengths are known only on the device.
    int  min_count, max_count;
    bool aligned; // rows of states and the output start at multiples of 8 bytes
};

struct cuda_seq {
    int             slot_in, slot_out;
    int64_t         first, count;
    const int32_t * snaps;
};

// Reads sequence s. Returns false if a slot or a token is out of range; such a sequence must not be
// computed.
CUDA_INLINE bool cuda_seq_get(const cuda_batch & b, int s, cuda_seq * seq) {
    const int32_t * id = b.ids + (int64_t) s * (4 + b.n_snap);
    seq->slot_in = id[0];
    seq->slot_out = id[1];
    seq->first = id[2];
    seq->count = id[3];
    seq->snaps = id + 4;

    bool ok = seq->slot_in >= -1 && seq->slot_in < b.n_slots && seq->slot_out >= 0 &&
              seq->slot_out < b.n_slots && seq->first >= 0 && seq->count >= 0 &&
              seq->first + seq->count <= b.n_tokens;
    for (int i = 0; i < b.n_snap; ++i) {
        ok = ok && seq->snaps[i] >= -1 && seq->snaps[i] < b.n_slots;
    }
    return ok;
}

// True if this kernel computes a sequence; ok: the result of cuda_seq_get. One out of range belongs
// to the kernel with min_count 0, which writes NaN.
CUDA_INLINE bool cuda_seq_is_mine(const cuda_batch & b, const cuda_seq & seq, bool ok) {
    return ok ? seq.count >= b.min_count && seq.count <= b.max_count : b.min_count == 0;
}

// Two adjacent floats; the address is a multiple of 8 bytes.
CUDA_INLINE float2 cuda_load_pair(const float * from) {
#if !defined(__CUDACC__)
    cuda_emu::check_aligned(from, 8);
#endif
    return *(const float2 *) from;
}
// Four of them; a multiple of 16 bytes.
CUDA_INLINE float4 cuda_load_four(const float * from) {
#if !defined(__CUDACC__)
    cuda_emu::check_aligned(from, 16);
#endif
    return *(const float4 *) from;
}
CUDA_INLINE void cuda_store_pair(float * to, float x, float y) {
#if !defined(__CUDACC__)
    cuda_emu::check_aligned(to, 8);
#endif
    *(float2 *) to = make_float2(x, y);
}

// Writes the first n of two adjacent columns of a state or of the output.
CUDA_INLINE void cuda_put_pair(const cuda_batch & b, float * to, int n, float x, float y) {
    if (b.aligned) {
        if (n > 0) {
            cuda_store_pair(to, x, y);
        }
        return;
    }
    if (n > 0) {
        to[0] = x;
    }
    if (n > 1) {
        to[1] = y;
    }
}

// The slot for the state after `done` tokens of the sequence; -1: none.
CUDA_INLINE int cuda_slot_after(const cuda_batch & b, const cuda_seq & seq, int64_t done) {
    const int64_t back = seq.count - done; // tokens before the end
    return back == 0 ? seq.slot_out : back <= b.n_snap ? seq.snaps[back - 1] : -1;
}

// The state of head h in a slot.
CUDA_INLINE float * cuda_head(const cuda_batch & b, int64_t slot, int h) {
    return b.state + slot * b.slot_stride + h * b.head_size;
}

// Sequences are cut into pieces, count(s) of them in sequence s. Finds piece `index` of the batch:
// returns its sequence and sets `piece`, its number there; returns −1 if there are fewer. All lanes
// of a warp call this; each looks at one sequence of 32.
template <typename Count>
CUDA_INLINE int cuda_find_piece(int n_seqs, int index, int * piece, Count && count) {
    const int lane = (int) threadIdx.x % 32;
    for (int s0 = 0; s0 < n_seqs; s0 += 32) {
        const int n = s0 + lane < n_seqs ? count(s0 + lane) : 0;
        int       end = n; // the pieces of this lane's sequence and of those before
        UNROLL for (int x = 1; x < 32; x *= 2) {
            const int before = __shfl_up_sync(0xFFFFFFFF, end, x);
            end += lane >= x ? before : 0;
        }
        const int total = __shfl_sync(0xFFFFFFFF, end, 31);
        if (index < total) {
            int which = index < end && index >= end - n ? lane : 0; // of one lane
            UNROLL for (int x = 16; x > 0; x /= 2) {
                which |= __shfl_xor_sync(0xFFFFFFFF, which, x);
            }
            *piece = index - __shfl_sync(0xFFFFFFFF, end - n, which);
            return s0 + which;
        }
        index -= total;
    }
    return -1;
}

// The output of a sequence that is out of range: NaN for each of its tokens that exists, in columns
// [begin, end) of head h.
CUDA_INLINE void cuda_fill_nan(const cuda_batch & b, const cuda_seq & seq, int h, int begin,
        int end, float * out, int thread, int n_threads) {
    const int64_t first = seq.first < 0 ? 0 : seq.first;
    const int64_t last = seq.first + seq.count < b.n_tokens ? seq.first + seq.count : b.n_tokens;
    for (int64_t t = first; t < last; ++t) {
        for (int j = begin + thread; j < end; j += n_threads) {
            out[(t * b.n_head + h) * b.d_v + j] = __int_as_float(0x7FC00000);
        }
    }
}

// exp(x) to within two units in the last place, with multiplications and additions only. ggml-cuda
// is compiled with -use_fast_math, which replaces expf by an approximation whose error grows with
// |x|.
//     x = n ln 2 + r, |r| ≤ ln 2 / 2;   exp(x) = 2ⁿ (1 + r + r²/2! + … + r⁷/7!)
CUDA_INLINE float cuda_exp(float x) {
    if (!(x > -104.0f)) {
        return x <= -104.0f ? 0.0f : x; // NaN stays NaN
    }
    if (x > 89.0f) {
        return __int_as_float(0x7F800000); // infinity
    }
    const float n = rintf(x * 1.44269504f);
    const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x)); // ln 2 in two parts
    float       p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const int e = (int) n;
    const int f = e / 2; // 2ⁿ may be out of range where 2ⁿ p is not
    return p * __int_as_float((127 + f) * 0x800000) * __int_as_float((127 + e - f) * 0x800000);
}

//
// The state in registers
//
// Columns of S never mix, so a warp takes a few columns through the whole sequence and keeps them
// in registers. ROW_LANES of its 32 lanes share the rows, COL_LANES share the columns; each lane
// holds ROWS rows of COLS columns. S is read from memory along rows: the COL_LANES·COLS columns of
// a warp are 32 bytes of a row (64 for DK = 16).
//
// d_k may be anything up to DK, and d_v anything. Rows from d_k to DK and columns beyond d_v are
// zero and stay zero.
//
template <int DK> struct cuda_tile {
    static constexpr int ROW_LANES = DK == 16 ? 4 : 8;
    static constexpr int COL_LANES = 32 / ROW_LANES;
    static constexpr int COLS = 2;
    static constexpr int ROWS = DK / ROW_LANES;
    static constexpr int QUADS = ROWS / 4; // groups of four rows, one vector in shared memory
    static constexpr int WARP_COLS = COL_LANES * COLS;
    static constexpr int MAX_WARPS = 4;
    static constexpr int MAX_COLS = MAX_WARPS * WARP_COLS; // of a block
    static constexpr int THREADS = 32 * MAX_WARPS;

    // blocks per multiprocessor: leaves 255 or 128 registers per thread, so that nothing spills
    static constexpr int MIN_BLOCKS = DK > 128 ? 2 : 4;

    // factors in shared memory at a time; tokens in the signed-gate scan
    static constexpr int FACTORS = DK > 128 ? 4 : 8;

    static_assert(ROWS % 4 == 0 && QUADS >= 1, "rows of a lane must be whole vectors");

    float S[COLS][ROWS];

    int row_lane, col_lane;

    __device__ __forceinline__ void place() {
        row_lane = (int) threadIdx.x % 32 / COL_LANES;
        col_lane = (int) threadIdx.x % COL_LANES;
    }
    // row m·4 + e of this lane
    __device__ __forceinline__ int row(int m, int e) const {
        return (m * ROW_LANES + row_lane) * 4 + e;
    }
    // index of the vector with these four rows
    __device__ __forceinline__ int quad(int m) const {
        return m * ROW_LANES + row_lane;
    }
    // column n of this lane, relative to the block
    __device__ __forceinline__ int col(int n) const {
        return (int) (threadIdx.x / 32) * WARP_COLS + col_lane * COLS + n;
    }
    // the columns of this lane, of a row with the columns of the block
    __device__ __forceinline__ void columns(const float4 * x, float y[COLS]) const {
        static_assert(COLS == 2, "a lane has two adjacent columns");
        const float2 pair = ((const float2 *) x)[col(0) / 2];
        y[0] = pair.x;
        y[1] = pair.y;
    }
    // from row i − 1 of this lane to row i, in floats
    CUDA_INLINE int64_t next_row(const cuda_batch & b, int i) {
        return (int64_t) (i % 4 == 0 ? 4 * ROW_LANES - 3 : 1) * b.d_v;
    }
    // true if every row is in the state and this lane can access its two columns together
    __device__ __forceinline__ bool in_pairs(const cuda_batch & b) const {
        return b.aligned && b.d_k == DK;
    }

    // Loads the state before the first token. `begin` is the first column of the block.
    __device__ __forceinline__ void load(
            const cuda_batch & b, const cuda_seq & seq, int h, int begin) {
        const float * from = seq.slot_in < 0 ? nullptr : cuda_head(b, seq.slot_in, h);
        if (from != nullptr && in_pairs(b)) {
            const bool there = begin + col(0) < b.d_v;
            from += (int64_t) row(0, 0) * b.d_v + begin + col(0);
            UNROLL for (int i = 0; i < ROWS; ++i, from += next_row(b, i)) {
                const float2 pair = there ? cuda_load_pair(from) : make_float2(0.0f, 0.0f);
                S[0][i] = pair.x;
                S[1][i] = pair.y;
            }
            return;
        }
        UNROLL for (int i = 0; i < ROWS; ++i) {
            UNROLL for (int n = 0; n < COLS; ++n) {
                const int r = row(i / 4, i % 4);
                const int j = begin + col(n);
                S[n][i] = from != nullptr && r < b.d_k && j < b.d_v ? from[(int64_t) r * b.d_v + j]
                                                                    : 0.0f;
            }
        }
    }

    // Stores the state after `done` tokens if there is a slot for it.
    __device__ __forceinline__ void store(
            const cuda_batch & b, const cuda_seq & seq, int h, int begin, int64_t done) const {
        const int slot = cuda_slot_after(b, seq, done);
        if (slot < 0) {
            return;
        }
        float * to = cuda_head(b, slot, h);
        to += (int64_t) row(0, 0) * b.d_v + begin + col(0);
        UNROLL for (int i = 0; i < ROWS; ++i, to += next_row(b, i)) {
            if (row(i / 4, i % 4) < b.d_k) {
                cuda_put_pair(b, to, b.d_v - begin - col(0), S[0][i], S[1][i]);
            }
        }
    }

    // sum over the lanes that share a column; each of them gets the sum
    CUDA_INLINE float sum_rows(float x) {
        UNROLL for (int lanes = COL_LANES; lanes < 32; lanes *= 2) {
            x += __shfl_xor_sync(0xFFFFFFFF, x, lanes);
        }
        return x;
    }

    // Sᵀ x for the columns of this lane
    __device__ __forceinline__ void dot(const float4 * x, float out[COLS]) const {
        UNROLL for (int n = 0; n < COLS; ++n) {
            out[n] = 0.0f;
        }
        UNROLL for (int m = 0; m < QUADS; ++m) {
            const float4 a = x[quad(m)];
            UNROLL for (int n = 0; n < COLS; ++n) {
                out[n] = fmaf(S[n][4 * m + 0], a.x, out[n]);
                out[n] = fmaf(S[n][4 * m + 1], a.y, out[n]);
                out[n] = fmaf(S[n][4 * m + 2], a.z, out[n]);
                out[n] = fmaf(S[n][4 * m + 3], a.w, out[n]);
            }
        }
        UNROLL for (int n = 0; n < COLS; ++n) {
            out[n] = sum_rows(out[n]);
        }
    }

    // S ← S + x yᵀ
    __device__ __forceinline__ void add(const float4 * x, const float y[COLS]) {
        UNROLL for (int m = 0; m < QUADS; ++m) {
            const float4 a = x[quad(m)];
            UNROLL for (int n = 0; n < COLS; ++n) {
                S[n][4 * m + 0] = fmaf(a.x, y[n], S[n][4 * m + 0]);
                S[n][4 * m + 1] = fmaf(a.y, y[n], S[n][4 * m + 1]);
                S[n][4 * m + 2] = fmaf(a.z, y[n], S[n][4 * m + 2]);
                S[n][4 * m + 3] = fmaf(a.w, y[n], S[n][4 * m + 3]);
            }
        }
    }

    // S ← g ∘ S, per key channel
    __device__ __forceinline__ void scale_rows(const float4 * g) {
        UNROLL for (int m = 0; m < QUADS; ++m) {
            const float4 a = g[quad(m)];
            UNROLL for (int n = 0; n < COLS; ++n) {
                S[n][4 * m + 0] *= a.x;
                S[n][4 * m + 1] *= a.y;
                S[n][4 * m + 2] *= a.z;
                S[n][4 * m + 3] *= a.w;
            }
        }
    }

    // S ← g S
    __device__ __forceinline__ void scale(float g) {
        UNROLL for (int i = 0; i < ROWS; ++i) {
            UNROLL for (int n = 0; n < COLS; ++n) {
                S[n][i] *= g;
            }
        }
    }

    // out[j] = factor · x for the columns of this lane, or factor · x / below. The lanes that share
    // a column have the same x; one of them writes.
    __device__ __forceinline__ void put(const cuda_batch & b, int h, int begin, int64_t t,
            const float x[COLS], float factor, bool divide, float below, float * out) const {
        float mine = 0.0f;
        UNROLL for (int n = 0; n < COLS; ++n) {
            // multiplied first: otherwise the compiler indexes x and moves it to local memory
            const float y = factor * x[n];
            mine = row_lane == n ? y : mine;
        }
        const int j = begin + col(row_lane);
        if (row_lane < COLS && j < b.d_v) {
            out[(t * b.n_head + h) * b.d_v + j] = divide ? __fdiv_rn(mine, below) : mine;
        }
    }
};

//
// Asynchronous copies into shared memory
//
// The next rows are copied while the last ones are used, so that a warp does not wait for memory.
// Copies between two calls of cuda_copy_commit are a group.

// Starts to copy one float. Without `there`, writes zero and does not read `from`; this pads rows.
CUDA_INLINE void cuda_copy(float * to, const float * from, bool there) {
#if !defined(__CUDACC__)
    cuda_emu::copy_async(to, from, 4, there);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                         (uint32_t) __cvta_generic_to_shared(to)),
            "l"(from), "r"(there ? 4 : 0)
            : "memory");
#else
    *to = there ? *from : 0.0f;
#endif
}

// The same for four floats. Both addresses are multiples of 16 bytes.
CUDA_INLINE void cuda_copy_four(float4 * to, const float * from, bool there) {
#if !defined(__CUDACC__)
    cuda_emu::copy_async((float *) to, from, 16, there);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         (uint32_t) __cvta_generic_to_shared(to)),
            "l"(from), "r"(there ? 16 : 0)
            : "memory");
#else
    *to = there ? *(const float4 *) from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
}

CUDA_INLINE void cuda_copy_commit() {
#if !defined(__CUDACC__)
    cuda_emu::copy_commit();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for the copies of this thread, except for the KEEP groups committed last. Copies of other
// threads are visible after a barrier.
template <int KEEP> CUDA_INLINE void cuda_copy_wait() {
#if !defined(__CUDACC__)
    cuda_emu::copy_wait(KEEP);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
#endif
}

// Copies the first n elements of a row, padded with zeros to `padded`, with the lanes of a warp.
// aligned: cuda_rows.aligned of its tensor. MAX: the most that `padded` can be.
template <int MAX>
CUDA_INLINE void cuda_copy_row(float4 * to, const float * from, int n, int padded, bool aligned) {
    const int lane = (int) threadIdx.x % 32;
    if (aligned) {
        UNROLL for (int x = 0; x < (MAX + 127) / 128; ++x) {
            const int i = 32 * x + lane;
            if (4 * i < padded) {
                cuda_copy_four(to + i, from + 4 * i, 4 * i < n);
            }
        }
    } else {
        UNROLL_BY(1) for (int i = lane; i < padded; i += 32) {
            cuda_copy((float *) to + i, from + i, i < n);
        }
    }
}
