// Matrix products with few columns and short rows that are not whole steps of mul-mat-rows-f32.c,
// such as the 48 weights of a row of Mamba's steps Δ.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], F32 or F16; x [K, C] and y [R, C], F32
//
// A vector goes along a row, and at the end of the row its numbers are added up. That would take
// most of the time, so VEC sums at a time are added up: those of VEC rows and one column, or of
// fewer rows and COLUMNS columns. Each is computed in the same order, so a column has the same bits
// alone and among others.

#include "product-odd-rows.h"

#if MUL_MAT_ROWS

#    include "lrnn-ops.h"
#    include "product-columns.h"
#    include "product-weights.h"
#    include "simd.h"

#    include "ggml-cpu-impl.h"

enum {
    MAX_K   = 512,
    COLUMNS = VEC == 16 ? 4 : 2, // of a register tile, if there are that many
    ROWS    = VEC / COLUMNS,     // of such a tile
    BLOCK   = VEC,               // rows that are multiplied with all columns before the next
    FAR     = 2 * BLOCK,         // rows from those in use to those that are prefetched
};

bool short_supported(const struct ggml_tensor * dst) {
    const struct ggml_tensor * w = dst->src[0];
    return (w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16) && w->ne[0] <= MAX_K &&
           w->ne[0] % ROWS_F32_STEP != 0 &&
           (dst->ne[1] < COLUMNS_MANY || ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) != 0);
}

// A block of rows as floats
struct block {
    const char * rows;
    int64_t      nb1; // bytes between rows
    int64_t      K;
    int64_t      n; // rows
};

SIMD_INLINE const float * row_of(const struct block * b, int64_t i) {
    return (const float *) (const void *) (b->rows + (i < b->n ? i : b->n - 1) * b->nb1);
}

// Rows r … r + n_rows of a block times n_columns columns, which are x_nb1 and y_nb1 bytes apart.
// n_rows · n_columns = VEC. Rows past the end repeat the last one and are not stored.
SIMD_INLINE void multiply(const struct block * b, int64_t r, int n_rows, const char * x,
        int64_t x_nb1, int n_columns, char * y, int64_t y_nb1, bool prefetch) {
    const float *rows[VEC], *columns[COLUMNS];
#    pragma GCC  unroll 16
    for (int i = 0; i < n_rows; ++i) {
        rows[i] = row_of(b, r + i);
    }
#    pragma GCC unroll 4
    for (int c = 0; c < n_columns; ++c) {
        columns[c] = (const float *) (const void *) (x + c * x_nb1);
    }
    vec         acc[VEC]; // [n_rows, n_columns]
#    pragma GCC unroll 16
    for (int i = 0; i < VEC; ++i) {
        acc[i] = (vec) { 0.0f };
    }
    const char *  far  = b->rows + (r + FAR) * b->nb1; // straight through the rows that follow
    const int64_t rest = b->K % VEC, whole = b->K - rest;
#    pragma GCC   unroll 4
    for (int first = 0; first < n_rows; first += ROWS) { // in the order of memory
        for (int64_t k = 0; k < whole; k += VEC) {
#    pragma GCC unroll 4
            for (int i = first; i < first + ROWS; ++i) {
                const vec w = vec_load(rows[i] + k);
                if (prefetch) {
                    __builtin_prefetch(far);
                    far += 64;
                }
#    pragma GCC unroll 4
                for (int c = 0; c < n_columns; ++c) {
                    acc[c * n_rows + i] = vec_fma(w, vec_load(columns[c] + k), acc[c * n_rows + i]);
                }
            }
        }
    }
    if (rest > 0) {
#    pragma GCC unroll 16
        for (int i = 0; i < VEC; ++i) {
            acc[i] = vec_fma(vec_load_n(rows[i % n_rows] + whole, rest),
                    vec_load_n(columns[i / n_rows] + whole, rest), acc[i]);
        }
    }
    float sums[VEC];
    vec_sums(sums, acc);
#    pragma GCC unroll 4
    for (int c = 0; c < n_columns; ++c) {
        char * out = y + r * (int64_t) sizeof(float) + c * y_nb1;
        if (r + n_rows <= b->n) { // a constant size
            memcpy(out, sums + c * n_rows, (size_t) n_rows * sizeof(float));
        } else {
            memcpy(out, sums + c * n_rows, (size_t) (b->n - r) * sizeof(float));
        }
    }
}

// All rows of a block times n_columns columns
SIMD_INLINE void multiply_columns(const struct block * b, const char * x, int64_t x_nb1,
        int n_columns, char * y, int64_t y_nb1, bool prefetch) {
    const int n_rows = VEC / n_columns;
    for (int64_t r = 0; r < b->n; r += n_rows) {
        if (prefetch) {
            multiply(b, r, n_rows, x, x_nb1, n_columns, y, y_nb1, true);
        } else {
            multiply(b, r, n_rows, x, x_nb1, n_columns, y, y_nb1, false);
        }
    }
}

static void multiply_block(
        const struct block * b, const char * x, const struct columns * s, char * y, bool prefetch) {
    int64_t c = 0;
    for (; c + COLUMNS <= s->C; c += COLUMNS, x += COLUMNS * s->x_nb1, y += COLUMNS * s->y_nb1) {
        multiply_columns(b, x, s->x_nb1, COLUMNS, y, s->y_nb1, prefetch && c == 0);
    }
    for (; c < s->C; ++c, x += s->x_nb1, y += s->y_nb1) {
        multiply_columns(b, x, s->x_nb1, 1, y, s->y_nb1, prefetch && c == 0);
    }
}

int64_t short_begin(const struct ggml_tensor * dst, int i, int n) {
    const int64_t n_blocks = (dst->ne[0] + BLOCK - 1) / BLOCK, begin = n_blocks * i / n * BLOCK;
    return begin < dst->ne[0] ? begin : dst->ne[0];
}

void short_multiply(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    const struct columns      s = columns_of(dst);
    const int64_t             K = w->ne[0], begin = short_begin(dst, params->ith, params->nth),
                  end = short_begin(dst, params->ith + 1, params->nth);
    for (int64_t batch = 0; batch < s.n2 * s.n3; ++batch) {
        const int64_t i2 = batch % s.n2, i3 = batch / s.n2;
        // a matrix of w serves several of x
        const char * rows = (const char *) w->data +
                            i2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
                            i3 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3];
        const char * columns = columns_x(&s, x, batch * s.C);
        char *       y = (char *) dst->data + i2 * (int64_t) dst->nb[2] + i3 * (int64_t) dst->nb[3];
        for (int64_t r = begin; r < end; r += BLOCK) {
            const int64_t n_rows = end - r < BLOCK ? end - r : BLOCK;
            struct block  b      = { rows + r * (int64_t) w->nb[1], (int64_t) w->nb[1], K, n_rows };
            float         converted[BLOCK * MAX_K];
            if (w->type != GGML_TYPE_F32) {
                for (int64_t i = 0; i < n_rows; ++i) {
                    weights_to_float(w->type, b.rows + i * b.nb1, 0, K, converted + i * K);
                }
                b.rows = (const char *) converted;
                b.nb1  = K * (int64_t) sizeof(float);
            }
            multiply_block(
                    &b, columns, &s, y + r * (int64_t) sizeof(float), w->type == GGML_TYPE_F32);
        }
    }
}

#endif
