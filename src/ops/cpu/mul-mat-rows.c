// Matrix products with few columns, row by row, for weights in blocks of 32 (Q8_0, Q4_0).
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// A single column reads each weight once, so memory sets the pace, if everything else is faster:
//
// - Two rows go through their blocks together: their sums do not wait for each other, and both use
//   the numbers of a column that are in registers.
// - The factors d e of many blocks are computed ahead, in vectors.
// - Weights are prefetched. Two rows are neighbors in memory; the prefetch goes straight through
//   them while the blocks alternate, far enough ahead that it is always past the second row.
// - With few numbers in x, each thread rounds all of them for itself and takes one range of rows.
//   That is faster than to wait for other threads.
//
// As in ggml's dot products, the eight sums of four products in a block are scaled and added in
// F32, in the order of the blocks, and then added up. So a column has the bits that ggml gives it,
// alone and among others.

#include "mul-mat-rows.h"

#if MUL_MAT_ROWS

#    include "lrnn-ops.h"
#    include "mul-mat-bytes.h"
#    include "mul-mat-round.h"
#    include "simd.h"

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"

#    if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#        define HAVE_DPBUSD 1
#    else
#        define HAVE_DPBUSD 0
#    endif

enum {
    QK     = 32,   // weights of a block
    PART   = 32,   // blocks whose factors are computed together
    TILE   = 4,    // columns of a register tile
    ALONE  = 4096, // numbers of x that each thread rounds for itself, at most
    CHUNKS = 8,    // ranges of rows per thread, otherwise
    FAR    = 2048, // bytes from the second row to what is prefetched
};

// The columns, rounded. Arrays of all columns, one after the other.
struct columns {
    int8_t *  q;        // [K]
    int32_t * first;    // [K/4]: −o Σ q of four numbers, for weights stored as w + o
    float *   e;        // [K/32]: x = e q
    int64_t   n_blocks; // of a column
};

bool rows_supported(const struct ggml_tensor * dst) {
    const enum ggml_type type = dst->src[0]->type;
#    if MUL_MAT_BYTES
    const bool few = dst->ne[1] < BYTES_MIN_COLUMNS;
#    else
    const bool few = dst->ne[1] < BYTES_MANY_COLUMNS ||
                     ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) != 0;
#    endif
    return few && (type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0);
}

static int64_t n_numbers(const struct ggml_tensor * dst) {
    return ggml_nelements(dst->src[1]);
}

// n numbers: q, first and e, and a gap, so that no cache line belongs to two threads
static size_t columns_size(int64_t n) {
    return (size_t) (n + n + n / QK * (int64_t) sizeof(float) + 2 * VEC_BYTES) / VEC_BYTES *
           VEC_BYTES;
}

static struct columns columns_at(char * work, int64_t n, int64_t n_blocks) {
    return (struct columns) { (int8_t *) work, (int32_t *) (void *) (work + n),
        (float *) (void *) (work + 2 * n), n_blocks };
}

// Where range i of n begins: rows are computed in pairs.
static int64_t even(int64_t R, int64_t i, int64_t n) {
    return i == n ? R : R * i / n / 2 * 2;
}

size_t rows_work_size(const struct ggml_tensor * dst, int n_threads) {
    const int64_t n = n_numbers(dst);
    return columns_size(n) * (size_t) (n <= ALONE ? n_threads : 1);
}

//
// Columns
//

// Blocks begin … end of each column.
static void round_columns(
        const struct ggml_tensor * dst, const struct columns * out, int64_t begin, int64_t end) {
    const struct ggml_tensor * x    = dst->src[1];
    const __m256i              ones = _mm256_set1_epi8(1), pairs = _mm256_set1_epi16(1);
    const __m256i offset = _mm256_set1_epi32(dst->src[0]->type == GGML_TYPE_Q8_0 ? -128 : -8);
    for (int64_t i = 0; i < x->ne[1] * x->ne[2] * x->ne[3]; ++i) {
        const int64_t c = i % x->ne[1], i2 = i / x->ne[1] % x->ne[2], i3 = i / x->ne[1] / x->ne[2];
        const float * column = (const float *) ((const char *) x->data + c * (int64_t) x->nb[1] +
                                                i2 * (int64_t) x->nb[2] + i3 * (int64_t) x->nb[3]);
        for (int64_t b = begin; b < end; ++b) {
            const int64_t at    = i * out->n_blocks + b;
            int8_t *      q     = out->q + at * QK;
            out->e[at]          = round_block(column + b * QK, q);
            const __m256i fours = _mm256_madd_epi16(
                    _mm256_maddubs_epi16(ones, _mm256_loadu_si256((const __m256i *) q)), pairs);
            _mm256_storeu_si256(
                    (__m256i *) (out->first + at * (QK / 4)), _mm256_mullo_epi32(fours, offset));
        }
    }
}

//
// Products
//

// Two rows.
struct pair {
    const char * rows[2];  // may be the same
    int          n;        // rows to store: 1 or 2
    bool         prefetch; // the rows that follow
    char *       y;        // of the first row and column
    int64_t      nb1;      // bytes between columns of y
};

// d of eight blocks, which are `size` bytes apart: an instruction for each. A copy through memory
// would wait for its stores.
SIMD_INLINE __m256 load_factors(const char * block, int size) {
#    define D(i) (*(const uint16_t *) (const void *) (block + (i) * size))
    __m128i d = _mm_cvtsi32_si128(D(0));
    d         = _mm_insert_epi16(d, D(1), 1);
    d         = _mm_insert_epi16(d, D(2), 2);
    d         = _mm_insert_epi16(d, D(3), 3);
    d         = _mm_insert_epi16(d, D(4), 4);
    d         = _mm_insert_epi16(d, D(5), 5);
    d         = _mm_insert_epi16(d, D(6), 6);
    d         = _mm_insert_epi16(d, D(7), 7);
#    undef D
    return _mm256_cvtph_ps(d);
}

// de[c, b] = d[b] e[c, b], for n blocks of a row and n_columns columns, whose e begin at `e`
SIMD_INLINE void scale_part(const char * row, int size, const float * e, int64_t n_blocks,
        int64_t n, int n_columns, float de[TILE][PART]) {
    int64_t b = 0;
    for (; b + 8 <= n; b += 8) {
        const __m256 d = load_factors(row + b * size, size);
#    pragma GCC unroll 4
        for (int c = 0; c < n_columns; ++c) {
            _mm256_storeu_ps(de[c] + b, _mm256_mul_ps(d, _mm256_loadu_ps(e + c * n_blocks + b)));
        }
    }
    for (; b < n; ++b) {
        const float d = _cvtsh_ss(*(const uint16_t *) (const void *) (row + b * size));
#    pragma GCC unroll 4
        for (int c = 0; c < n_columns; ++c) {
            de[c][b] = d * e[c * n_blocks + b];
        }
    }
}

// The weights of a block: Q8_0 as they are, Q4_0 plus 8
SIMD_INLINE __m256i load_block(const char * block, bool is_q8_0) {
    const char * q = block + sizeof(uint16_t);
    if (is_q8_0) {
        return _mm256_loadu_si256((const __m256i *) q);
    }
    // weights 16 … 31 are the high halves of the bytes
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) q));
    return _mm256_and_si256(
            _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

// Eight sums of four products
SIMD_INLINE __m256i dot_fours(__m256i w, __m256i q, __m256i first, bool is_q8_0) {
#    if HAVE_DPBUSD
    const __m256i positive = is_q8_0 ? _mm256_xor_si256(w, _mm256_set1_epi8(INT8_MIN)) : w;
    return _mm256_dpbusd_epi32(first, positive, q);
#    else
    const __m256i pairs = _mm256_set1_epi16(1);
    if (is_q8_0) { // |w| and q with the sign of w
        return _mm256_madd_epi16(
                _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)), pairs);
    }
    return _mm256_add_epi32(first, _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), pairs));
#    endif
}

// The sum of eight, as in ggml's dot products
SIMD_INLINE float sum_eight(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_extractf128_ps(x, 1), _mm256_castps256_ps128(x));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The products of two rows and n columns from column c on
SIMD_INLINE void multiply_tile(
        const struct pair * p, const struct columns * x, int64_t c, int n, bool is_q8_0) {
    const int     size  = is_q8_0 ? (int) sizeof(block_q8_0) : (int) sizeof(block_q4_0);
    const int64_t first = c * x->n_blocks;
    const char *  far   = p->rows[1] + FAR;
    __m256        acc[2][TILE];
    float         de[2][TILE][PART];
#    pragma GCC   unroll 4
    for (int i = 0; i < n; ++i) {
        acc[0][i] = _mm256_setzero_ps();
        acc[1][i] = _mm256_setzero_ps();
    }
    for (int64_t b0 = 0; b0 < x->n_blocks; b0 += PART) {
        const int64_t n_part = x->n_blocks - b0 < PART ? x->n_blocks - b0 : PART;
#    pragma GCC unroll 2
        for (int r = 0; r < 2; ++r) {
            scale_part(
                    p->rows[r] + b0 * size, size, x->e + first + b0, x->n_blocks, n_part, n, de[r]);
        }
        for (int64_t b = 0; b < n_part; ++b) {
            if (p->prefetch) {
                _mm_prefetch(far, _MM_HINT_T0);
                far += 2 * size;
            }
            const __m256i w0 = load_block(p->rows[0] + (b0 + b) * size, is_q8_0);
            const __m256i w1 = load_block(p->rows[1] + (b0 + b) * size, is_q8_0);
#    pragma GCC unroll 4
            for (int i = 0; i < n; ++i) {
                const int64_t block = first + i * x->n_blocks + b0 + b;
                const __m256i q     = _mm256_loadu_si256((const __m256i *) (x->q + block * QK));
                const __m256i start =
                        _mm256_loadu_si256((const __m256i *) (x->first + block * (QK / 4)));
                acc[0][i] = _mm256_fmadd_ps(_mm256_set1_ps(de[0][i][b]),
                        _mm256_cvtepi32_ps(dot_fours(w0, q, start, is_q8_0)), acc[0][i]);
                acc[1][i] = _mm256_fmadd_ps(_mm256_set1_ps(de[1][i][b]),
                        _mm256_cvtepi32_ps(dot_fours(w1, q, start, is_q8_0)), acc[1][i]);
            }
        }
    }
#    pragma GCC unroll 4
    for (int i = 0; i < n; ++i) {
        float * y = (float *) (p->y + (c + i) * p->nb1);
        y[0]      = sum_eight(acc[0][i]);
        if (p->n == 2) {
            y[1] = sum_eight(acc[1][i]);
        }
    }
}

// The products of two rows and C columns
SIMD_INLINE void multiply_pair(struct pair * p, const struct columns * x, int64_t C, bool is_q8_0) {
    for (int64_t c = 0; c < C; c += TILE) {
        p->prefetch = c == 0;
        switch (C - c) {
            case 1: multiply_tile(p, x, c, 1, is_q8_0); break;
            case 2: multiply_tile(p, x, c, 2, is_q8_0); break;
            case 3: multiply_tile(p, x, c, 3, is_q8_0); break;
            default: multiply_tile(p, x, c, TILE, is_q8_0); break;
        }
    }
}

// Rows begin … end of all matrices
static void multiply_range(const struct ggml_tensor * dst, const struct columns * columns,
        int64_t begin, int64_t end) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1], *y = dst;
    for (int64_t batch = 0; batch < x->ne[2] * x->ne[3]; ++batch) {
        const int64_t i2 = batch % x->ne[2], i3 = batch / x->ne[2];
        // a matrix of w serves several of x
        const char * rows = (const char *) w->data +
                            i2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
                            i3 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3];
        char *        out  = (char *) y->data + i2 * (int64_t) y->nb[2] + i3 * (int64_t) y->nb[3];
        const int64_t skip = batch * x->ne[1] * columns->n_blocks;
        const struct columns own = { columns->q + skip * QK, columns->first + skip * (QK / 4),
            columns->e + skip, columns->n_blocks };
        for (int64_t r = begin; r < end; r += 2) {
            const char * row = rows + r * (int64_t) w->nb[1];
            struct pair  p   = {
                   .rows = { row, r + 1 < end ? row + w->nb[1] : row },
                   .n    = r + 1 < end ? 2 : 1,
                   .y    = out + r * (int64_t) sizeof(float),
                   .nb1  = (int64_t) y->nb[1],
            };
            if (w->type == GGML_TYPE_Q8_0) {
                multiply_pair(&p, &own, x->ne[1], true);
            } else {
                multiply_pair(&p, &own, x->ne[1], false);
            }
        }
    }
}

void rows_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work) {
    const int64_t n = n_numbers(dst), n_blocks = dst->src[1]->ne[0] / QK, R = dst->ne[0];
    const int64_t ith = params->ith, nth = params->nth;
    if (n <= ALONE) {
        const struct columns x = columns_at((char *) work + ith * columns_size(n), n, n_blocks);
        round_columns(dst, &x, 0, n_blocks);
        multiply_range(dst, &x, even(R, ith, nth), even(R, ith + 1, nth));
        return;
    }
    const struct columns x = columns_at(work, n, n_blocks);
    round_columns(dst, &x, ith * n_blocks / nth, (ith + 1) * n_blocks / nth);
    if (ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, (int) nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t job = ith; job < CHUNKS * nth;
            job      = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        multiply_range(dst, &x, even(R, job, CHUNKS * nth), even(R, job + 1, CHUNKS * nth));
    }
}

#endif
