// Few columns and short rows that are not whole steps of product-rows-f32.c, such as the 48 weights
// of a row of Mamba's steps Δ.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], F32 or F16; x [K, C] and y [R, C], F32
//
// A vector goes along a row, and at the end of the row its numbers are added up. That would take
// most of the time, so VEC sums at a time are added up: those of VEC rows and one column, or of
// fewer rows and COLUMNS columns. Each is computed in the same order.

#include "product-rows.h"

#if PRODUCT_AVX2

#    include "product-weights.h"
#    include "simd.h"

enum {
    MAX_K = 512,
    COLUMNS = VEC == 16 ? 4 : 2, // of a register tile, if there are that many
    ROWS = VEC / COLUMNS,        // of such a tile
    STRIP = VEC,                 // rows that are multiplied with all columns before the next
    FAR = 2 * STRIP,             // rows from those in use to those that are prefetched
};

static bool supports(const struct ggml_tensor * dst) {
    const int64_t K = dst->src[0]->ne[0];
    return K <= MAX_K && K % ROWS_STEP != 0 && product_is_few(dst);
}

// A strip of rows as floats
struct strip {
    const char * rows;
    int64_t      row_size; // bytes between rows
    int64_t      K;
    int64_t      n; // rows
};

SIMD_INLINE const float * row_of(const struct strip * s, int64_t i) {
    return (const float *) (const void *) (s->rows + (i < s->n ? i : s->n - 1) * s->row_size);
}

// Rows r … r + n_rows of a strip times n_columns columns, which are x_nb1 and y_nb1 bytes apart.
// n_rows · n_columns = VEC. Rows past the end repeat the last one and are not stored.
SIMD_INLINE void multiply_tile(const struct strip * s, int64_t r, int n_rows, const char * x,
        int64_t x_nb1, int n_columns, char * y, int64_t y_nb1, bool prefetch) {
    const float *rows[VEC], *columns[COLUMNS];
    UNROLL(16) for (int i = 0; i < n_rows; ++i) {
        rows[i] = row_of(s, r + i);
    }
    UNROLL(4) for (int c = 0; c < n_columns; ++c) {
        columns[c] = (const float *) (const void *) (x + c * x_nb1);
    }
    vec acc[VEC]; // [n_rows, n_columns]
    UNROLL(16) for (int i = 0; i < VEC; ++i) {
        acc[i] = (vec) { 0.0f };
    }
    const char *  far = s->rows + (r + FAR) * s->row_size; // straight through the rows that follow
    const int64_t rest = s->K % VEC, whole = s->K - rest;
    UNROLL(4) for (int first = 0; first < n_rows; first += ROWS) { // in the order of memory
        for (int64_t k = 0; k < whole; k += VEC) {
            UNROLL(4) for (int i = first; i < first + ROWS; ++i) {
                const vec w = vec_load(rows[i] + k);
                if (prefetch) {
                    __builtin_prefetch(far);
                    far += 64;
                }
                UNROLL(4) for (int c = 0; c < n_columns; ++c) {
                    acc[c * n_rows + i] = vec_fma(w, vec_load(columns[c] + k), acc[c * n_rows + i]);
                }
            }
        }
    }
    if (rest > 0) {
        UNROLL(16) for (int i = 0; i < VEC; ++i) {
            acc[i] = vec_fma(vec_load_n(rows[i % n_rows] + whole, rest),
                    vec_load_n(columns[i / n_rows] + whole, rest), acc[i]);
        }
    }
    float sums[VEC];
    vec_sums(sums, acc);
    UNROLL(4) for (int c = 0; c < n_columns; ++c) {
        char * out = y + r * (int64_t) sizeof(float) + c * y_nb1;
        if (r + n_rows <= s->n) { // a constant size
            memcpy(out, sums + c * n_rows, (size_t) n_rows * sizeof(float));
        } else {
            memcpy(out, sums + c * n_rows, (size_t) (s->n - r) * sizeof(float));
        }
    }
}

// All rows of a strip times n_columns columns
SIMD_INLINE void multiply_columns(const struct strip * s, const char * x, int64_t x_nb1,
        int n_columns, char * y, int64_t y_nb1, bool prefetch) {
    const int n_rows = VEC / n_columns;
    for (int64_t r = 0; r < s->n; r += n_rows) {
        if (prefetch) {
            multiply_tile(s, r, n_rows, x, x_nb1, n_columns, y, y_nb1, true);
        } else {
            multiply_tile(s, r, n_rows, x, x_nb1, n_columns, y, y_nb1, false);
        }
    }
}

static void multiply_strip(
        const struct strip * s, const struct product_part * p, char * y, bool prefetch) {
    const char * x = p->columns + p->first * p->x_nb1;
    for (int64_t c = 0, n; c < p->n_columns; c += n, x += n * p->x_nb1, y += n * p->y_nb1) {
        n = c + COLUMNS <= p->n_columns ? COLUMNS : 1;
        if (n == COLUMNS) {
            multiply_columns(s, x, p->x_nb1, COLUMNS, y, p->y_nb1, prefetch && c == 0);
        } else {
            multiply_columns(s, x, p->x_nb1, 1, y, p->y_nb1, prefetch && c == 0);
        }
    }
}

static void multiply(const struct product_part * p) {
    const bool is_f32 = p->type == GGML_TYPE_F32;
    for (int64_t r = 0; r < p->n_rows; r += STRIP) {
        const int64_t n = p->n_rows - r < STRIP ? p->n_rows - r : STRIP;
        struct strip  s = { p->rows + r * p->row_size, p->row_size, p->K, n };
        float         converted[STRIP * MAX_K];
        if (!is_f32) {
            for (int64_t i = 0; i < n; ++i) {
                weights_to_float(p->type, s.rows + i * s.row_size, 0, p->K, converted + i * p->K);
            }
            s.rows = (const char *) converted;
            s.row_size = p->K * (int64_t) sizeof(float);
        }
        multiply_strip(&s, p, p->y + r * (int64_t) sizeof(float), is_f32);
    }
}

const struct product_kernel product_odd_rows = {
    .name = "odd rows",
    .types = PRODUCT_TYPE(F32) | PRODUCT_TYPE(F16),
    .supports = supports,
    .private_max = INT64_MAX,
    .height = STRIP,
    .min_slice_size = 8192,
    .multiply = multiply,
};

#endif
