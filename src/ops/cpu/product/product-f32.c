// Matrix products with many columns, in F32 for weights of every type.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]
//
// x is transposed into tiles of TILE columns, so that a vector holds one row of several columns. A
// strip of rows is then converted to F32 in parts of PART weights, and each part is multiplied with
// all columns. The weights stay as they are in the model file, and the converted part stays in the
// second-level cache.
//
// An element of y is a sum over k in increasing order, one sum per part.

#include "product-weights.h"
#include "product.h"
#include "simd.h"

// The accumulators of a register tile are ROWS × TILE_VECS vectors: 24 of 32 registers with AVX-512
// and NEON, 12 of 16 with AVX2.
#if defined(__AVX512F__) || defined(__aarch64__)
#    define TILE_VECS 4
#else
#    define TILE_VECS 2
#endif

enum {
    ROWS = 6,        // of a register tile
    MAX_ROWS = 48,   // of a slice: a multiple of ROWS and of VEC
    MAX_WIDTH = 512, // columns of a slice

    // floats between two rows of sums; a power of two would map all rows to the same sets of a
    // cache
    SUMS_STRIDE = MAX_WIDTH + 16,

    TILE = TILE_VECS * VEC,  // columns of a tile
    PART = 512,              // weights of a row that are converted together: whole blocks
    PART_STRIDE = PART + 16, // as SUMS_STRIDE
};

static bool supports(const struct ggml_tensor * dst) {
    return !product_is_few(dst);
}

// ---- Transposition ------------------------------------------------------------------------------

#if VEC == 16
#    define INTERLEAVE_LO 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#    define INTERLEAVE_HI 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VEC == 8
#    define INTERLEAVE_LO 0, 8, 1, 9, 2, 10, 3, 11
#    define INTERLEAVE_HI 4, 12, 5, 13, 6, 14, 7, 15
#else
#    define INTERLEAVE_LO 0, 4, 1, 5
#    define INTERLEAVE_HI 2, 6, 3, 7
#endif

// Transposes VEC × VEC numbers: interleaving rows i and i + VEC/2, log2(VEC) times, exchanges the
// bits of the row number and those of the column number.
SIMD_INLINE void transpose(vec v[VEC]) {
    vec u[VEC];
    UNROLL(4) for (int n = 1; n < VEC; n *= 2) {
        UNROLL(8) for (int i = 0; i < VEC / 2; ++i) {
            u[2 * i] = __builtin_shufflevector(v[i], v[i + VEC / 2], INTERLEAVE_LO);
            u[2 * i + 1] = __builtin_shufflevector(v[i], v[i + VEC / 2], INTERLEAVE_HI);
        }
        UNROLL(16) for (int i = 0; i < VEC; ++i) {
            v[i] = u[i];
        }
    }
}

// C, rounded up to whole vectors
static int64_t padded(int64_t C) {
    return (C + VEC - 1) / VEC * VEC;
}

// Columns of a tile that begins at column c.
static int64_t tile_width(int64_t C, int64_t c) {
    return padded(C) - c < TILE ? padded(C) - c : TILE;
}

static size_t prepared_size(int64_t K, int64_t C) {
    return (size_t) (padded(C) * K) * sizeof(float);
}

// Columns c … c + VEC of a matrix → rows of a tile, which are `width` floats apart. Columns past
// the end are zero.
static void pack_columns(const struct product * p, const struct product_matrix * m, int64_t c,
        float * out, int64_t width) {
    const float * x[VEC];
    for (int i = 0; i < VEC; ++i) {
        x[i] = c + i < m->C ? product_x(p, m, c + i) : NULL;
    }
    int64_t k = 0;
    for (; k + VEC <= p->K; k += VEC) {
        vec v[VEC];
        for (int i = 0; i < VEC; ++i) {
            v[i] = x[i] != NULL ? vec_load(x[i] + k) : (vec) { 0.0f };
        }
        transpose(v);
        for (int i = 0; i < VEC; ++i) {
            vec_store(out + (k + i) * width, v[i]);
        }
    }
    for (; k < p->K; ++k) {
        for (int i = 0; i < VEC; ++i) {
            out[k * width + i] = x[i] != NULL ? x[i][k] : 0.0f;
        }
    }
}

// Share i of n of the columns: [C, K] → tiles, [padded C, K] for each matrix
static void prepare(const struct product * p, char * out, int64_t i, int64_t n) {
    int64_t n_vecs = 0;
    for (int64_t m = 0; m < p->n_matrices; ++m) {
        const struct product_matrix matrix = product_matrix_of(p, m);
        for (int64_t c = 0; c < matrix.C; c += VEC, ++n_vecs) {
            if (n_vecs % n == i) {
                const int64_t first = c / TILE * TILE; // of the tile
                float *       tile = (float *) (void *) (out + matrix.offset) + first * p->K;
                pack_columns(p, &matrix, c, tile + (c - first), tile_width(matrix.C, first));
            }
        }
    }
}

// ---- The product of ROWS rows of a part and a tile ----------------------------------------------

// sums[r, c] (+)= Σ_k part[r, k] tile[k, c]        c < n_vecs·VEC
SIMD_INLINE void multiply_rows(
        const float * part, const float * tile, int64_t n, int n_vecs, float * sums, bool add) {
    vec acc[ROWS][TILE_VECS];
    UNROLL(6) for (int r = 0; r < ROWS; ++r) {
        UNROLL(4) for (int i = 0; i < n_vecs; ++i) {
            acc[r][i] = (vec) { 0.0f };
        }
    }
    for (int64_t k = 0; k < n; ++k) {
        vec x[TILE_VECS];
        UNROLL(4) for (int i = 0; i < n_vecs; ++i) {
            x[i] = vec_load(tile + (k * n_vecs + i) * VEC);
        }
        UNROLL(6) for (int r = 0; r < ROWS; ++r) {
            const vec w = vec_set1(part[r * PART_STRIDE + k]);
            UNROLL(4) for (int i = 0; i < n_vecs; ++i) {
                acc[r][i] = vec_fma(w, x[i], acc[r][i]);
            }
        }
    }
    UNROLL(6) for (int r = 0; r < ROWS; ++r) {
        UNROLL(4) for (int i = 0; i < n_vecs; ++i) {
            float * out = sums + r * SUMS_STRIDE + i * VEC;
            vec_store(out, add ? vec_load(out) + acc[r][i] : acc[r][i]);
        }
    }
}

static void multiply_tile(const float * part, const float * tile, int64_t n, int64_t n_rows,
        int64_t n_vecs, float * sums, bool add) {
    for (int64_t r = 0; r < n_rows;
            r += ROWS, part += ROWS * PART_STRIDE, sums += ROWS * SUMS_STRIDE) {
        switch (n_vecs) {
            case 1: multiply_rows(part, tile, n, 1, sums, add); break;
#if TILE_VECS == 4
            case 2: multiply_rows(part, tile, n, 2, sums, add); break;
            case 3: multiply_rows(part, tile, n, 3, sums, add); break;
#endif
            default: multiply_rows(part, tile, n, TILE_VECS, sums, add); break;
        }
    }
}

// ---- Slices -------------------------------------------------------------------------------------

// sums [MAX_WIDTH, MAX_ROWS] → y
static void store(const float * sums, const struct product_part * p) {
    for (int64_t c = 0; c < p->n_columns; c += VEC) {
        const int64_t nc = p->n_columns - c < VEC ? p->n_columns - c : VEC;
        for (int64_t r = 0; r < p->n_rows; r += VEC) {
            const int64_t nr = p->n_rows - r < VEC ? p->n_rows - r : VEC;
            vec           v[VEC];
            for (int i = 0; i < VEC; ++i) {
                v[i] = vec_load(sums + (r + i) * SUMS_STRIDE + c);
            }
            transpose(v);
            for (int i = 0; i < nc; ++i) {
                float * out = (float *) (void *) product_y(p, r, c + i);
                if (nr == VEC) {
                    vec_store(out, v[i]);
                } else {
                    vec_store_n(out, v[i], nr);
                }
            }
        }
    }
}

struct work {
    float part[MAX_ROWS * PART_STRIDE];
    float sums[MAX_ROWS * SUMS_STRIDE];
};

static void multiply(const struct product_part * p) {
    struct work * work = p->work;
    for (int64_t i = p->n_rows; i % ROWS != 0; ++i) { // rows past the end are multiplied, too
        memset(work->part + i * PART_STRIDE, 0, PART_STRIDE * sizeof(float));
    }
    for (int64_t k = 0; k < p->K; k += PART) {
        const int64_t n = p->K - k < PART ? p->K - k : PART;
        for (int64_t i = 0; i < p->n_rows; ++i) {
            weights_to_float(
                    p->type, p->rows + i * p->row_size, k, n, work->part + i * PART_STRIDE);
        }
        for (int64_t t = 0; t < p->n_columns; t += TILE) {
            const int64_t width = tile_width(p->C, p->first + t);
            const float * tile =
                    (const float *) (const void *) p->columns + (p->first + t) * p->K + k * width;
            multiply_tile(work->part, tile, n, p->n_rows, width / VEC, work->sums + t, k > 0);
        }
    }
    store(work->sums, p);
}

const struct product_kernel product_f32 = {
    .name = "f32",
    .types = UINT64_MAX,
    .supports = supports,
    .experts = true,
    .prepared_size = prepared_size,
    .prepare = prepare,
    .height = ROWS,
    .slice_rows = MAX_ROWS,
    .slice_columns = MAX_WIDTH,
    .work_size = sizeof(struct work),
    .multiply = multiply,
};
