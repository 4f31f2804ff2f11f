// Matrix products in bytes, for weights in blocks of 32 (Q8_0, Q4_0), on CPUs with VNNI.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// One instruction adds the products of four weights and four numbers of x, in each of 16 rows. Its
// first operand is unsigned, so the weights are taken with an offset, w + o, and the sum over a
// block begins with −o Σ x[k, c] instead of 0.
//
// First, all threads round the columns to 8 bits in blocks of 32, as ggml does. Then a thread takes
// a panel of 16 rows, transposes a block of them, once, and multiplies it with every column.
//
// Sums of integers are exact, and blocks are added in increasing order, so an element depends
// neither on the number of threads nor on the other columns. Few columns have the bits of ggml's
// dot products, which compute a single column (multiply_fours). Many columns need fewer additions
// in F32: one for a block (multiply_columns).

#include "mul-mat-bytes.h"

#if MUL_MAT_BYTES

#    include "lrnn-ops.h"
#    include "mul-mat-round.h"
#    include "simd.h"

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"

enum {
    QK     = 32,     // weights of a block
    FOURS  = QK / 4, // operands of a block
    HEIGHT = VEC,    // rows of a panel
    PART   = 32,     // blocks of a row that stay in the first-level cache, transposed
    TILE   = 8,      // columns of a register tile
    GROUP  = 4,      // panels that a thread takes at once, at most
    WIDTH  = 256,    // columns that are multiplied with a panel before the next panel
    FEW    = 48,     // the same by fours
};

// A block of a column.
struct column_block {
    int32_t q[FOURS]; // four numbers in each
    float   e;        // x = e q
    int32_t sum;      // −o Σ q
};

// A part of the rows of a panel.
struct row_part {
    __m512i  w[PART][FOURS];   // w + o: four weights of each row
    uint16_t d[PART][HEIGHT];  // F16
    __m512   sums[FEW][FOURS]; // of each column, by fours
};

// A column has the bits that it has alone.
static bool is_by_fours(const struct ggml_tensor * dst) {
    return dst->ne[1] < BYTES_MANY_COLUMNS ||
           ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) != 0;
}

bool bytes_supported(const struct ggml_tensor * dst) {
    const enum ggml_type type = dst->src[0]->type;
    return (type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0) && dst->ne[1] >= BYTES_MIN_COLUMNS;
}

size_t bytes_work_size(const struct ggml_tensor * dst) {
    const struct ggml_tensor * x      = dst->src[1];
    const size_t               firsts = is_by_fours(dst) ? FOURS * sizeof(int32_t) : 0;
    return (size_t) (ggml_nelements(x) / QK) * (sizeof(struct column_block) + firsts);
}

//
// Columns
//

// Rounds 32 numbers and stores −o Σ q for all of them, and for each four of them in `first` unless
// it is NULL.
static void column_block_init(
        struct column_block * block, int32_t * first, const float * x, int offset) {
    block->e           = round_block(x, (int8_t *) block->q);
    const __m256i ones = _mm256_set1_epi8(1), q = _mm256_loadu_si256((const __m256i *) block->q);
    const __m256i fours = _mm256_mullo_epi32(
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, q), _mm256_set1_epi32(-offset));
    block->sum = _mm512_reduce_add_epi32(_mm512_zextsi256_si512(fours));
    if (first != NULL) {
        _mm256_storeu_si256((__m256i *) first, fours);
    }
}

// The share of thread ith: some blocks of each column.
static void round_columns(const struct ggml_tensor * dst, struct column_block * out,
        int32_t * first, int ith, int nth) {
    const struct ggml_tensor * x        = dst->src[1];
    const int                  offset   = dst->src[0]->type == GGML_TYPE_Q8_0 ? 128 : 8;
    const int64_t              n_blocks = x->ne[0] / QK; // of a column
    const int64_t              begin = ith * n_blocks / nth, end = (ith + 1) * n_blocks / nth;
    for (int64_t i = 0; i < x->ne[1] * x->ne[2] * x->ne[3]; ++i, out += n_blocks) {
        const int64_t c = i % x->ne[1], i2 = i / x->ne[1] % x->ne[2], i3 = i / x->ne[1] / x->ne[2];
        const float * column = (const float *) ((const char *) x->data + c * (int64_t) x->nb[1] +
                                                i2 * (int64_t) x->nb[2] + i3 * (int64_t) x->nb[3]);
        for (int64_t b = begin; b < end; ++b) {
            column_block_init(&out[b], first == NULL ? NULL : first + (i * n_blocks + b) * FOURS,
                    column + b * QK, offset);
        }
    }
}

//
// Rows
//

// Transposes 4 × 4 numbers in each 128 bits.
SIMD_INLINE void transpose_quarters(__m512i v[4]) {
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

// Block b of 16 rows → w[i]: weights 4 i … 4 i + 3 of each row, plus 128
SIMD_INLINE void unpack_q8_0(const char * const rows[HEIGHT], int64_t b, __m512i w[FOURS]) {
    __m512i     v[FOURS]; // two rows in each: [weights 0 … 15, weights 16 … 31] of r and of r + 4
#    pragma GCC unroll 8
    for (int i = 0; i < FOURS; ++i) {
        const int r = i % 4 + i / 4 * 8;
        v[i]        = _mm512_inserti64x4(
                _mm512_castsi256_si512(_mm256_loadu_si256(
                        (const __m256i *) ((const block_q8_0 *) rows[r] + b)->qs)),
                _mm256_loadu_si256((const __m256i *) ((const block_q8_0 *) rows[r + 4] + b)->qs),
                1);
    }
    transpose_quarters(v);
    transpose_quarters(v + 4);
#    pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i offset = _mm512_set1_epi8(INT8_MIN);
        w[i]                 = _mm512_xor_si512(_mm512_shuffle_i32x4(v[i], v[i + 4], 0x88), offset);
        w[i + 4]             = _mm512_xor_si512(_mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd), offset);
    }
}

// The same, plus 8. Weights 16 … 31 are the high halves of the bytes.
SIMD_INLINE void unpack_q4_0(const char * const rows[HEIGHT], int64_t b, __m512i w[FOURS]) {
    __m512i     v[4]; // rows r, r + 4, r + 8 and r + 12
#    pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
        __m128i q[4];
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            q[i] = _mm_loadu_si128(
                    (const __m128i *) ((const block_q4_0 *) rows[r + 4 * i] + b)->qs);
        }
        v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(q[1], q[0])),
                _mm256_set_m128i(q[3], q[2]), 1);
    }
    transpose_quarters(v);
#    pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i low = _mm512_set1_epi8(15);
        w[i]              = _mm512_and_si512(v[i], low);
        w[i + 4]          = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), low);
    }
}

//
// Products
//

// A panel and the columns it is multiplied with.
struct panel {
    const char *                rows[HEIGHT]; // those past the end repeat the last one
    const char *                next;         // the rows that follow
    bool                        is_q8_0;      // or Q4_0
    bool                        by_fours;     // as ggml
    __mmask16                   mask;         // rows that exist
    int64_t                     n_blocks;     // of a row and of a column
    int64_t                     n_columns;
    const struct column_block * x;     // [n_blocks, n_columns]
    const int32_t *             first; // [FOURS, n_blocks, n_columns]: −o Σ q of four numbers
    char *                      y;     // the first row
    size_t                      nb1;   // bytes between columns of y
};

// y[.., c] (+)= Σ_b … for blocks b0 … b0 + n_blocks and n columns from column c0 on. The first tile
// of columns unpacks the weights and keeps them for the others.
SIMD_INLINE void multiply_columns(const struct panel * p, struct row_part * part, int64_t b0,
        int64_t n_blocks, int64_t c0, int n, bool first) {
    const struct column_block * x    = p->x + c0 * p->n_blocks + b0;
    char *                      y    = p->y + c0 * (int64_t) p->nb1;
    const bool                  keep = p->n_columns > TILE;
    __m512                      acc[TILE];
#    pragma GCC                 unroll 8
    for (int c = 0; c < n; ++c) {
        acc[c] = b0 > 0 ? _mm512_maskz_loadu_ps(p->mask, y + c * (int64_t) p->nb1)
                        : _mm512_setzero_ps();
    }
    for (int64_t b = 0; b < n_blocks; ++b, ++x) {
        __m512i w[FOURS], dot[TILE];
        if (first && p->is_q8_0) {
            unpack_q8_0(p->rows, b0 + b, w);
        } else if (first) {
            unpack_q4_0(p->rows, b0 + b, w);
        }
#    pragma GCC unroll 8
        for (int i = 0; i < FOURS; ++i) {
            if (!first) {
                w[i] = part->w[b][i];
            } else if (keep) {
                part->w[b][i] = w[i];
            }
        }
#    pragma GCC unroll 8
        for (int c = 0; c < n; ++c) {
            dot[c] = _mm512_set1_epi32(x[c * p->n_blocks].sum);
        }
#    pragma GCC unroll 8
        for (int i = 0; i < FOURS; ++i) {
#    pragma GCC unroll 8
            for (int c = 0; c < n; ++c) {
                dot[c] = _mm512_dpbusd_epi32(
                        dot[c], w[i], _mm512_set1_epi32(x[c * p->n_blocks].q[i]));
            }
        }
        const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) part->d[b]));
#    pragma GCC unroll 8
        for (int c = 0; c < n; ++c) {
            const __m512 e = _mm512_set1_ps(x[c * p->n_blocks].e);
            acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[c]), e), d, acc[c]);
        }
    }
#    pragma GCC unroll 8
    for (int c = 0; c < n; ++c) {
        _mm512_mask_storeu_ps(y + c * (int64_t) p->nb1, p->mask, acc[c]);
    }
}

// The same with the bits of ggml's dot products: a sum in F32 for each four weights of a block, and
// then the sum of the eight.
SIMD_INLINE void multiply_fours(const struct panel * p, struct row_part * part, int64_t b0,
        int64_t n_blocks, int64_t c0, int n, bool first) {
    const struct column_block * x     = p->x + c0 * p->n_blocks + b0;
    const int32_t *             start = p->first + (c0 * p->n_blocks + b0) * FOURS;
    char *                      y     = p->y + c0 * (int64_t) p->nb1;
    __m512                      acc[2][FOURS];
#    pragma GCC                 unroll 2
    for (int c = 0; c < n; ++c) {
#    pragma GCC unroll 8
        for (int i = 0; i < FOURS; ++i) {
            acc[c][i] = b0 > 0 ? part->sums[c0 + c][i] : _mm512_setzero_ps();
        }
    }
    for (int64_t b = 0; b < n_blocks; ++b, ++x, start += FOURS) {
        __m512i w[FOURS];
        if (first) { // the rows of the next panel follow in memory
            const int64_t size = p->is_q8_0 ? sizeof(block_q8_0) : sizeof(block_q4_0);
            for (int64_t i = 0; i < HEIGHT * size; i += 64) {
                _mm_prefetch(p->next + (b0 + b) * HEIGHT * size + i, _MM_HINT_T1);
            }
        }
        if (first && p->is_q8_0) {
            unpack_q8_0(p->rows, b0 + b, w);
        } else if (first) {
            unpack_q4_0(p->rows, b0 + b, w);
        }
#    pragma GCC unroll 8
        for (int i = 0; i < FOURS; ++i) {
            if (!first) {
                w[i] = part->w[b][i];
            } else {
                part->w[b][i] = w[i];
            }
        }
        const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) part->d[b]));
#    pragma GCC unroll 2
        for (int c = 0; c < n; ++c) {
            const struct column_block * v  = &x[c * p->n_blocks];
            const __m512                de = _mm512_mul_ps(d, _mm512_set1_ps(v->e));
#    pragma GCC unroll 8
            for (int i = 0; i < FOURS; ++i) {
                const __m512i zero = _mm512_set1_epi32(start[c * p->n_blocks * FOURS + i]);
                const __m512i dot  = _mm512_dpbusd_epi32(zero, w[i], _mm512_set1_epi32(v->q[i]));
                acc[c][i]          = _mm512_fmadd_ps(de, _mm512_cvtepi32_ps(dot), acc[c][i]);
            }
        }
    }
#    pragma GCC unroll 2
    for (int c = 0; c < n; ++c) {
        __m512 * a = acc[c];
        if (b0 + n_blocks < p->n_blocks) {
            for (int i = 0; i < FOURS; ++i) {
                part->sums[c0 + c][i] = a[i];
            }
            continue;
        }
        const __m512 even = _mm512_add_ps(_mm512_add_ps(a[4], a[0]), _mm512_add_ps(a[6], a[2]));
        const __m512 odd  = _mm512_add_ps(_mm512_add_ps(a[5], a[1]), _mm512_add_ps(a[7], a[3]));
        _mm512_mask_storeu_ps(y + c * (int64_t) p->nb1, p->mask, _mm512_add_ps(even, odd));
    }
}

SIMD_INLINE void multiply_tile(const struct panel * p, struct row_part * part, int64_t b0,
        int64_t n_blocks, int64_t c, bool first) {
    switch (p->n_columns - c) {
        case 1: multiply_columns(p, part, b0, n_blocks, c, 1, first); break;
        case 2: multiply_columns(p, part, b0, n_blocks, c, 2, first); break;
        case 3: multiply_columns(p, part, b0, n_blocks, c, 3, first); break;
        case 4: multiply_columns(p, part, b0, n_blocks, c, 4, first); break;
        case 5: multiply_columns(p, part, b0, n_blocks, c, 5, first); break;
        case 6: multiply_columns(p, part, b0, n_blocks, c, 6, first); break;
        case 7: multiply_columns(p, part, b0, n_blocks, c, 7, first); break;
        default: multiply_columns(p, part, b0, n_blocks, c, TILE, first); break;
    }
}

static void multiply_panel(const struct panel * p) {
    const size_t    size = p->is_q8_0 ? sizeof(block_q8_0) : sizeof(block_q4_0);
    struct row_part part;
    for (int64_t b = 0; b < p->n_blocks; b += PART) {
        const int64_t n = p->n_blocks - b < PART ? p->n_blocks - b : PART;
        for (int r = 0; r < HEIGHT; ++r) {
            const char * row = p->rows[r] + b * (int64_t) size;
            for (int64_t i = 0; i < n; ++i) {
                memcpy(&part.d[i][r], row + i * (int64_t) size, sizeof(uint16_t)); // begins a block
            }
        }
        if (p->by_fours) {
            for (int64_t c = 0; c < p->n_columns; c += 2) {
                if (p->n_columns - c == 1) {
                    multiply_fours(p, &part, b, n, c, 1, c == 0);
                } else if (c == 0) {
                    multiply_fours(p, &part, b, n, c, 2, true);
                } else {
                    multiply_fours(p, &part, b, n, c, 2, false);
                }
            }
            continue;
        }
        multiply_tile(p, &part, b, n, 0, true);
        for (int64_t c = TILE; c < p->n_columns; c += TILE) {
            multiply_tile(p, &part, b, n, c, false);
        }
    }
}

void bytes_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1], *y = dst;
    const int64_t             n_all   = ggml_nelements(x) / QK;
    struct column_block *     columns = work;
    int32_t *                 starts  = is_by_fours(dst) ? (int32_t *) (columns + n_all) : NULL;
    round_columns(dst, columns, starts, params->ith, params->nth);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);

    const int64_t R = w->ne[1], C = x->ne[1];
    const int64_t n_batches = x->ne[2] * x->ne[3];
    int64_t       height    = GROUP * HEIGHT; // of a group of panels
    while (height > HEIGHT && (R + height - 1) / height * n_batches < 4 * params->nth) {
        height -= HEIGHT;
    }
    const int64_t n_groups = (R + height - 1) / height;
    const int64_t width    = is_by_fours(dst) ? FEW : WIDTH;
    const int64_t n_parts  = (C + width - 1) / width;
    for (int64_t job = params->ith; job < n_groups * n_parts * n_batches;
            job      = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t first = job % n_groups * height;
        const int64_t c     = job / n_groups % n_parts * width;
        const int64_t batch = job / n_groups / n_parts;
        const int64_t i2 = batch % x->ne[2], i3 = batch / x->ne[2];
        // a matrix of w serves several of x
        const char * rows = (const char *) w->data +
                            i2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
                            i3 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3];
        char * out = (char *) y->data + i2 * (int64_t) y->nb[2] + i3 * (int64_t) y->nb[3] +
                     c * (int64_t) y->nb[1];
        const int64_t   end = first + height < R ? first + height : R;
        const int32_t * firsts =
                starts == NULL ? NULL : starts + (batch * C + c) * (x->ne[0] / QK) * FOURS;
        for (int64_t r = first; r < end; r += HEIGHT) {
            const int64_t n_rows   = end - r < HEIGHT ? end - r : HEIGHT;
            const int64_t n_blocks = x->ne[0] / QK;
            struct panel  p        = {
                        .next      = rows + (r + HEIGHT) * (int64_t) w->nb[1],
                        .is_q8_0   = w->type == GGML_TYPE_Q8_0,
                        .by_fours  = is_by_fours(dst),
                        .mask      = (__mmask16) ((1u << n_rows) - 1),
                        .n_blocks  = n_blocks,
                        .n_columns = C - c < width ? C - c : width,
                        .x         = columns + (batch * C + c) * n_blocks,
                        .first     = firsts,
                        .y         = out + r * (int64_t) sizeof(float),
                        .nb1       = y->nb[1],
            };
            for (int64_t i = 0; i < HEIGHT; ++i) {
                p.rows[i] = rows + (r + (i < n_rows ? i : n_rows - 1)) * (int64_t) w->nb[1];
            }
            multiply_panel(&p);
        }
    }
}

#endif
