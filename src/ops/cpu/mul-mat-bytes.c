// Matrix products in bytes, for weights in blocks of 32 (Q8_0, Q4_0), on CPUs with AVX2 or VNNI.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// A vector holds four weights of each of HEIGHT rows, as w + o: the sum over a block begins with
// −o Σ x[k, c] instead of 0 (mul-mat-bytes-simd.h).
//
// First, the columns are rounded to 8 bits in blocks of 32, as ggml does. Then a thread takes a
// panel of HEIGHT rows, transposes a block of them, once, and multiplies it with every column. A
// single column reads each weight once, and memory sets the pace: the next panel is fetched into
// the second-level cache meanwhile.
//
// Sums of integers are exact, and blocks are added in increasing order, so an element depends
// neither on the number of threads nor on the other columns.

#include "mul-mat-bytes.h"

#if MUL_MAT_BYTES

#    include "glue.h"
#    include "lrnn-ops.h"
#    include "mul-mat-bytes-simd.h"
#    include "mul-mat-columns.h"
#    include "mul-mat-round.h"

enum {
    PART  = 32,    // blocks of a row that stay in the first-level cache, transposed
    GROUP = 4,     // panels that a thread takes at once, at most
    WIDTH = 256,   // columns that are multiplied with a panel before the next panel
    ALONE = 16384, // numbers of x that each thread rounds for itself, at most
};

// A block of a column.
struct column_block {
    int32_t q[FOURS]; // four numbers in each
    float   e;        // x = e q
    int32_t sum;      // −o Σ q
};

// A part of the rows of a panel.
struct row_part {
    rows_i   w[PART][FOURS];  // w + o: four weights of each row
    uint16_t d[PART][HEIGHT]; // F16
};

bool bytes_supported(const struct ggml_tensor * dst) {
    const enum ggml_type type = dst->src[0]->type;
    const bool           many = !MUL_MAT_VNNI && dst->ne[1] >= COLUMNS_MANY &&
                      ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) == 0; // faster in F32
    return (type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0) && !many;
}

// With few numbers in x, each thread rounds all of them for itself and takes one range of rows.
// That is faster than to wait for other threads.
static bool is_alone(const struct ggml_tensor * dst) {
    return ggml_nelements(dst->src[1]) <= ALONE;
}

size_t bytes_work_size(const struct ggml_tensor * dst, int n_threads) {
    return (size_t) (ggml_nelements(dst->src[1]) / QK) * sizeof(struct column_block) *
           (size_t) (is_alone(dst) ? n_threads : 1);
}

//
// Columns
//

// Rounds 32 numbers.
static void column_block_init(struct column_block * block, const float * x, int offset) {
    block->e        = round_block(x, (int8_t *) block->q);
    const __m256i q = _mm256_loadu_si256((const __m256i *) block->q);
    const __m256i fours =
            _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    sum         = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum         = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    block->sum  = -offset * _mm_cvtsi128_si32(sum);
}

// Part i of n of every column: some of its blocks.
static void round_columns(
        const struct ggml_tensor * dst, struct column_block * out, int64_t i, int64_t n) {
    const struct ggml_tensor * x = dst->src[1];
    const struct columns       s = columns_of(dst);
    const int     offset         = dst->src[0]->type == GGML_TYPE_Q8_0 ? OFFSET_Q8_0 : OFFSET_Q4_0;
    const int64_t n_blocks       = x->ne[0] / QK; // of a column
    const int64_t begin = i * n_blocks / n, end = (i + 1) * n_blocks / n;
    for (int64_t j = 0; j < s.C * s.n2 * s.n3; ++j, out += n_blocks) {
        const float * column = (const float *) (const void *) columns_x(&s, x, j);
        for (int64_t b = begin; b < end; ++b) {
            column_block_init(&out[b], column + b * QK, offset);
        }
    }
}

//
// Products
//

// A panel and the columns it is multiplied with.
struct panel {
    const char *                rows[HEIGHT]; // those past the end repeat the last one
    const char *                next;         // rows of the next panel; may be NULL
    bool                        is_q8_0;      // or Q4_0
    int64_t                     n_rows;       // that exist
    int64_t                     n_blocks;     // of a row and of a column
    int64_t                     n_columns;
    const struct column_block * x;   // [n_blocks, n_columns]
    char *                      y;   // the first row
    int64_t                     nb1; // bytes between columns of y
};

// y[.., c] (+)= Σ_b … for blocks b0 … b0 + n_blocks and n columns from column c0 on. The first tile
// of columns unpacks the weights and keeps them for the others.
SIMD_INLINE void multiply_columns(const struct panel * p, struct row_part * part, int64_t b0,
        int64_t n_blocks, int64_t c0, int n, bool first, bool is_q8_0) {
    const struct column_block * x    = p->x + c0 * p->n_blocks + b0;
    char *                      y    = p->y + c0 * p->nb1;
    const bool                  keep = p->n_columns > TILE;
    const int64_t               size = is_q8_0 ? sizeof(block_q8_0) : sizeof(block_q4_0);
    rows_f                      acc[TILE];
#    pragma GCC                 unroll 8
    for (int c = 0; c < n; ++c) {
        acc[c] = b0 > 0 ? rows_load(y + c * p->nb1, p->n_rows) : rows_zero();
    }
    for (int64_t b = 0; b < n_blocks; ++b, ++x) {
        rows_i w[FOURS], dot[TILE];
        if (first && p->next != NULL) { // these rows are neighbors in memory
            for (int64_t i = 0; i < HEIGHT * size; i += 64) {
                _mm_prefetch(p->next + (b0 + b) * HEIGHT * size + i, _MM_HINT_T1);
            }
        }
        if (first && is_q8_0) {
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
            dot[c] = dot_begin(x[c * p->n_blocks].sum, is_q8_0);
        }
#    pragma GCC unroll 8
        for (int i = 0; i < FOURS; ++i) {
#    pragma GCC unroll 8
            for (int c = 0; c < n; ++c) {
                dot[c] = dot_add(dot[c], w[i], x[c * p->n_blocks].q[i], is_q8_0);
            }
        }
        const rows_f d = rows_from_f16(part->d[b]);
#    pragma GCC unroll 8
        for (int c = 0; c < n; ++c) {
            const struct column_block * v = &x[c * p->n_blocks];
            acc[c] = rows_add(acc[c], dot_end(dot[c], v->sum, is_q8_0), v->e, d);
        }
    }
#    pragma GCC unroll 8
    for (int c = 0; c < n; ++c) {
        rows_store(y + c * p->nb1, acc[c], p->n_rows);
    }
}

SIMD_INLINE void multiply_tile(const struct panel * p, struct row_part * part, int64_t b0,
        int64_t n_blocks, int64_t c, bool first, bool is_q8_0) {
    switch (p->n_columns - c) {
        case 1: multiply_columns(p, part, b0, n_blocks, c, 1, first, is_q8_0); break;
        case 2: multiply_columns(p, part, b0, n_blocks, c, 2, first, is_q8_0); break;
        case 3: multiply_columns(p, part, b0, n_blocks, c, 3, first, is_q8_0); break;
#    if MUL_MAT_VNNI
        case 4: multiply_columns(p, part, b0, n_blocks, c, 4, first, is_q8_0); break;
        case 5: multiply_columns(p, part, b0, n_blocks, c, 5, first, is_q8_0); break;
        case 6: multiply_columns(p, part, b0, n_blocks, c, 6, first, is_q8_0); break;
        case 7: multiply_columns(p, part, b0, n_blocks, c, 7, first, is_q8_0); break;
#    endif
        default: multiply_columns(p, part, b0, n_blocks, c, TILE, first, is_q8_0); break;
    }
}

static void multiply_q8_0(
        const struct panel * p, struct row_part * part, int64_t b0, int64_t n_blocks, int64_t c) {
    if (c == 0) {
        multiply_tile(p, part, b0, n_blocks, 0, true, true);
    } else {
        multiply_tile(p, part, b0, n_blocks, c, false, true);
    }
}

static void multiply_q4_0(
        const struct panel * p, struct row_part * part, int64_t b0, int64_t n_blocks, int64_t c) {
    if (c == 0) {
        multiply_tile(p, part, b0, n_blocks, 0, true, false);
    } else {
        multiply_tile(p, part, b0, n_blocks, c, false, false);
    }
}

// The factors of n blocks of a row, which begin with them: d[i][0]
SIMD_INLINE void copy_factors_of(const char * row, int64_t n, int64_t size, uint16_t * d) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, row += 8 * size, d += 8 * HEIGHT) {
#    pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            memcpy(d + j * HEIGHT, row + j * size, sizeof(uint16_t));
        }
    }
    for (; i < n; ++i, row += size, d += HEIGHT) {
        memcpy(d, row, sizeof(uint16_t));
    }
}

static void copy_factors(const char * row, int64_t n, bool is_q8_0, uint16_t * d) {
    if (is_q8_0) {
        copy_factors_of(row, n, sizeof(block_q8_0), d);
    } else {
        copy_factors_of(row, n, sizeof(block_q4_0), d);
    }
}

static void multiply_panel(const struct panel * p) {
    const size_t    size = p->is_q8_0 ? sizeof(block_q8_0) : sizeof(block_q4_0);
    struct row_part part;
    for (int64_t b = 0; b < p->n_blocks; b += PART) {
        const int64_t n = p->n_blocks - b < PART ? p->n_blocks - b : PART;
        for (int r = 0; r < HEIGHT; ++r) {
            const char * row = p->rows[r] + b * (int64_t) size;
            copy_factors(row, n, p->is_q8_0, &part.d[0][r]);
        }
        for (int64_t c = 0; c < p->n_columns; c += TILE) {
            if (p->is_q8_0) {
                multiply_q8_0(p, &part, b, n, c);
            } else {
                multiply_q4_0(p, &part, b, n, c);
            }
        }
    }
}

// The matrix of w for matrix `batch` of x; one of w serves several of x.
static const char * matrix_of(
        const struct ggml_tensor * dst, const struct columns * s, int64_t batch) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    return (const char *) w->data + batch % s->n2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
           batch / s->n2 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3];
}

// Rows begin … end of columns c … c + n_columns of matrix `batch` of y; `columns` is x, rounded.
// The thread continues with the rows at `next`.
static void multiply_range(const struct ggml_tensor * dst, const struct column_block * columns,
        int64_t batch, int64_t begin, int64_t end, int64_t c, int64_t n_columns,
        const char * next) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1], *y = dst;
    const struct columns      s        = columns_of(dst);
    const int64_t             n_blocks = x->ne[0] / QK;
    const int64_t             i2 = batch % s.n2, i3 = batch / s.n2;
    const char *              rows = matrix_of(dst, &s, batch);
    char * out = (char *) y->data + i2 * (int64_t) y->nb[2] + i3 * (int64_t) y->nb[3] + c * s.y_nb1;
    for (int64_t r = begin; r < end; r += HEIGHT) {
        const int64_t n_rows = end - r < HEIGHT ? end - r : HEIGHT;
        struct panel  p      = {
                  .next      = r + HEIGHT < end ? rows + (r + HEIGHT) * (int64_t) w->nb[1] : next,
                  .is_q8_0   = w->type == GGML_TYPE_Q8_0,
                  .n_rows    = n_rows,
                  .n_blocks  = n_blocks,
                  .n_columns = n_columns,
                  .x         = columns + (batch * s.C + c) * n_blocks,
                  .y         = out + r * (int64_t) sizeof(float),
                  .nb1       = s.y_nb1,
        };
        for (int64_t i = 0; i < HEIGHT; ++i) {
            p.rows[i] = rows + (r + (i < n_rows ? i : n_rows - 1)) * (int64_t) w->nb[1];
        }
        multiply_panel(&p);
    }
}

static void multiply_alone(
        const struct ggml_tensor * dst, struct column_block * columns, int64_t ith, int64_t nth) {
    const struct columns s        = columns_of(dst);
    const int64_t        n_panels = (dst->ne[0] + HEIGHT - 1) / HEIGHT;
    const int64_t begin = n_panels * ith / nth * HEIGHT, end = n_panels * (ith + 1) / nth * HEIGHT;
    round_columns(dst, columns, 0, 1);
    for (int64_t batch = 0; batch < s.n2 * s.n3; ++batch) {
        multiply_range(
                dst, columns, batch, begin, end < dst->ne[0] ? end : dst->ne[0], 0, s.C, NULL);
    }
}

bool bytes_is_own(const struct ggml_tensor * dst) {
    return is_alone(dst);
}

void bytes_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work) {
    const int64_t         ith = params->ith, nth = params->nth;
    struct column_block * columns = work;
    if (is_alone(dst)) {
        multiply_alone(dst, ggml_lrnn_cpu_own_work(params), ith, nth);
        return;
    }
    round_columns(dst, columns, ith, nth);
    if (ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, (int) nth);
    }
    ggml_barrier(params->threadpool);

    const struct columns s         = columns_of(dst);
    const int64_t        R         = dst->ne[0];
    const int64_t        n_batches = s.n2 * s.n3;
    int64_t              height    = GROUP * HEIGHT; // of a group of panels
    while (height > HEIGHT && (R + height - 1) / height * n_batches < 4 * nth) {
        height -= HEIGHT;
    }
    const int64_t n_groups = (R + height - 1) / height;
    const int64_t n_parts  = (s.C + WIDTH - 1) / WIDTH;
    for (int64_t job = ith, next; job < n_groups * n_parts * n_batches; job = next) {
        next                 = ggml_threadpool_chunk_add(params->threadpool, 1);
        const int64_t r      = job % n_groups * height;
        const int64_t c      = job / n_groups % n_parts * WIDTH;
        const char *  matrix = matrix_of(dst, &s, next / n_groups / n_parts % n_batches);
        multiply_range(dst, columns, job / n_groups / n_parts, r, r + height < R ? r + height : R,
                c, s.C - c < WIDTH ? s.C - c : WIDTH,
                matrix + next % n_groups * height * (int64_t) dst->src[0]->nb[1]);
    }
}

#endif
