// Matrix products in bytes, for weights in blocks of 32 (Q8_0, Q4_0), on CPUs with VNNI.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// One instruction adds the products of four weights and four numbers of x, in each of 16 columns:
// four times as many as a multiply-add of floats. Its first operand is unsigned, so the weights are
// stored with an offset, w + o, and the sum over a block begins with −o Σ x[k, c] instead of 0.
//
// As in ggml's dot products, each column is rounded to 8 bits in blocks of 32. A sum depends
// neither on the number of threads nor on the other columns.

#include "mul-mat.h"

#if MUL_MAT_BYTES

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"
#    include "simd-mappings.h"

enum {
    QK        = 32,   // weights of a block
    PART      = 1024, // weights of a row that are unpacked together
    TILE_VECS = 2,
};

// A block of VEC columns.
struct column_block {
    int8_t  q[QK / 4][VEC][4]; // four numbers of a column are adjacent
    float   e[VEC];            // x = e q
    int32_t first[VEC];        // −o Σ q
};

// A part of PANEL rows.
struct row_part {
    uint8_t q[PANEL][PART + 64]; // w + o; 64: as in SUMS_STRIDE
    float   d[PANEL][PART / QK];
};

_Static_assert(sizeof(struct row_part) <= BYTES_PART_SIZE, "the part of a panel has room");

bool bytes_supported(enum ggml_type type) {
    return type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0;
}

size_t bytes_column_size(int64_t K) {
    return (size_t) (K / QK) * sizeof(struct column_block) / VEC;
}

// Rounds 32 numbers to multiples of e = max |x| / 127. e is NaN if a number is not finite.
static void round_block(const float * x, struct column_block * block, int c, int offset) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + VEC);
    const __m512 zero = _mm512_setzero_ps();
    const float  max  = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const __m512 none = _mm512_fmadd_ps(a, zero, _mm512_mul_ps(b, zero)); // 0 or NaN
    const bool   ok   = _mm512_cmp_ps_mask(none, zero, _CMP_NEQ_UQ) == 0;

    const __m512  scale = _mm512_set1_ps(max > 0.0f ? 127.0f / max : 0.0f);
    const __m512i qa    = _mm512_cvtps_epi32(_mm512_mul_ps(a, scale));
    const __m512i qb    = _mm512_cvtps_epi32(_mm512_mul_ps(b, scale));
    int8_t        q[QK];
    _mm_storeu_si128((__m128i *) q, _mm512_cvtsepi32_epi8(qa));
    _mm_storeu_si128((__m128i *) (q + VEC), _mm512_cvtsepi32_epi8(qb));
    for (int i = 0; i < QK / 4; ++i) {
        memcpy(block->q[i][c], q + 4 * i, 4);
    }
    block->e[c]     = ok ? max / 127.0f : NAN;
    block->first[c] = ok ? -offset * _mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb)) : 0;
}

void bytes_pack(const struct product * p, const char * x, int64_t c, char * out) {
    struct column_block * blocks = (struct column_block *) out;
    const int64_t         n      = p->C - c < VEC ? p->C - c : VEC;
    const int             offset = p->w->type == GGML_TYPE_Q8_0 ? 128 : 8;
    if (n < VEC) {
        memset(blocks, 0, (size_t) (p->K / QK) * sizeof(*blocks));
    }
    for (int i = 0; i < n; ++i) {
        const float * column = (const float *) (x + (c + i) * (int64_t) p->x->nb[1]);
        for (int64_t b = 0; b < p->K / QK; ++b) {
            round_block(column + b * QK, &blocks[b], i, offset);
        }
    }
}

static void unpack_q8_0(const block_q8_0 * x, int64_t n, uint8_t * q, float * d) {
    for (int64_t i = 0; i < n; ++i) {
        const __m256i w = _mm256_loadu_si256((const __m256i *) x[i].qs);
        _mm256_storeu_si256(
                (__m256i *) (q + i * QK), _mm256_xor_si256(w, _mm256_set1_epi8(INT8_MIN)));
        d[i] = GGML_CPU_FP16_TO_FP32(x[i].d);
    }
}

static void unpack_q4_0(const block_q4_0 * x, int64_t n, uint8_t * q, float * d) {
    const __m128i low = _mm_set1_epi8(15);
    for (int64_t i = 0; i < n; ++i) {
        const __m128i w = _mm_loadu_si128((const __m128i *) x[i].qs);
        _mm_storeu_si128((__m128i *) (q + i * QK), _mm_and_si128(w, low));
        _mm_storeu_si128(
                (__m128i *) (q + i * QK + QK / 2), _mm_and_si128(_mm_srli_epi16(w, 4), low));
        d[i] = GGML_CPU_FP16_TO_FP32(x[i].d);
    }
}

// sums (+)= ROWS rows × n_vecs vectors of columns, n_blocks blocks; x[i]: vector i
SIMD_INLINE void multiply_rows(const struct row_part * w, int64_t r0,
        const struct column_block * x0, const struct column_block * x1, int64_t n_blocks,
        int n_vecs, float * sums, bool add) {
    __m512      acc[ROWS][TILE_VECS];
#    pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
        acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    }
    for (int64_t b = 0; b < n_blocks; ++b) {
        const struct column_block * x[TILE_VECS] = { x0 + b, x1 + b };
        __m512i                     dot[ROWS][TILE_VECS];
#    pragma GCC unroll 6
        for (int r = 0; r < ROWS; ++r) {
#    pragma GCC unroll 2
            for (int i = 0; i < n_vecs; ++i) {
                dot[r][i] = _mm512_loadu_si512(x[i]->first);
            }
        }
        for (int k = 0; k < QK / 4; ++k) {
            __m512i v[TILE_VECS];
#    pragma GCC unroll 2
            for (int i = 0; i < n_vecs; ++i) {
                v[i] = _mm512_loadu_si512(x[i]->q[k]);
            }
#    pragma GCC unroll 6
            for (int r = 0; r < ROWS; ++r) {
                int32_t four;
                memcpy(&four, &w->q[r0 + r][b * QK + 4 * k], sizeof(four));
#    pragma GCC unroll 2
                for (int i = 0; i < n_vecs; ++i) {
                    dot[r][i] = _mm512_dpbusd_epi32(dot[r][i], _mm512_set1_epi32(four), v[i]);
                }
            }
        }
#    pragma GCC unroll 2
        for (int i = 0; i < n_vecs; ++i) {
            const __m512 e = _mm512_loadu_ps(x[i]->e);
#    pragma GCC unroll 6
            for (int r = 0; r < ROWS; ++r) {
                const __m512 d = _mm512_set1_ps(w->d[r0 + r][b]);
                acc[r][i]      = _mm512_fmadd_ps(
                        _mm512_mul_ps(_mm512_cvtepi32_ps(dot[r][i]), e), d, acc[r][i]);
            }
        }
    }
#    pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
#    pragma GCC unroll 2
        for (int i = 0; i < n_vecs; ++i) {
            float * out = sums + r * SUMS_STRIDE + i * VEC;
            vec_store(out, add ? vec_load(out) + (vec) acc[r][i] : (vec) acc[r][i]);
        }
    }
}

void bytes_multiply(const struct product * p, const char * rows, int64_t n_rows,
        const char * columns, int64_t n_columns, void * part, float * sums) {
    struct row_part * w        = part;
    const int64_t     n_blocks = p->K / QK; // of a row
    for (int64_t b = 0; b < n_blocks; b += PART / QK) {
        const int64_t n = n_blocks - b < PART / QK ? n_blocks - b : PART / QK;
        for (int64_t r = 0; r < n_rows; ++r) {
            const char * row = rows + r * (int64_t) p->w->nb[1];
            if (p->w->type == GGML_TYPE_Q8_0) {
                unpack_q8_0((const block_q8_0 *) row + b, n, w->q[r], w->d[r]);
            } else {
                unpack_q4_0((const block_q4_0 *) row + b, n, w->q[r], w->d[r]);
            }
        }
        for (int64_t c = 0; c < n_columns; c += TILE_VECS * VEC) {
            const struct column_block * x =
                    (const struct column_block *) columns + c / VEC * n_blocks + b;
            for (int64_t r = 0; r < n_rows; r += ROWS) {
                float * out = sums + r * SUMS_STRIDE + c;
                if (n_columns - c > VEC) {
                    multiply_rows(w, r, x, x + n_blocks, n, 2, out, b > 0);
                } else {
                    multiply_rows(w, r, x, x, n, 1, out, b > 0);
                }
            }
        }
    }
}

#endif
