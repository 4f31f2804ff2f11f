// Matrix products with many columns, in F32 for weights of every type.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], of any type; x [K, C] and y [R, C], F32
//
// Some types are multiplied in bytes instead, where the CPU can, with few columns, too
// (mul-mat-bytes.c), or by ggml's dot products (mul-mat-dots.c). Few columns of F32 are multiplied
// row by row (mul-mat-rows.c) or, if rows are short and odd, many at a time (mul-mat-short.c).
//
// First, all threads transpose x into tiles of TILE columns, so that a vector holds one row of
// several columns. Then a thread takes a panel of PANEL rows of w and goes through it in parts of
// PART weights. It converts a part of each row to F32, once, and multiplies it with all columns.
// The weights stay as they are in the model file, and the converted part stays in the second-level
// cache.
//
// An element of y is a sum over k in increasing order, one sum per part. It depends neither on the
// number of threads nor on the other columns.

#include "glue.h"
#include "lrnn-ops.h"
#include "product-bytes.h"
#include "product-columns.h"
#include "product-vec-dot.h"
#include "product-rows.h"
#include "product-odd-rows.h"
#include "product-weights.h"
#include "simd.h"

#include "ggml-backend.h"
#include "ggml-cpu-impl.h"

// The accumulators of a register tile are ROWS × TILE_VECS vectors: 24 of 32 registers with AVX-512
// and NEON, 12 of 16 with AVX2.
#if defined(__AVX512F__) || defined(__aarch64__)
#    define TILE_VECS 4
#else
#    define TILE_VECS 2
#endif

enum {
    ROWS  = 6,   // of a register tile
    PANEL = 48,  // rows of a panel: a multiple of ROWS and of VEC
    BLOCK = 512, // columns that are multiplied with a panel before the next panel

    // floats between two rows of sums; a power of two would map all rows to the same sets of a
    // cache
    SUMS_STRIDE = BLOCK + 16,

    TILE        = TILE_VECS * VEC, // columns of a tile
    PART        = 512,             // weights of a row that are converted together: whole blocks
    PART_STRIDE = PART + 16,       // as SUMS_STRIDE
};

struct product {
    const struct ggml_tensor *w, *x, *y;
    int64_t                   K, R, C;
    int64_t                   C_padded;  // C, rounded up to whole vectors
    int64_t                   n_batches; // matrices of x
    float *                   columns;   // of x, packed: [C_padded, K] per batch
};

//
// Which products
//

// True if ggml's kernel for a type is faster than F32 on this CPU, though it rounds x to 8 bits (to
// BF16 if the weights are). With VNNI, an instruction adds four times as many products of bytes as
// of floats.
static bool ggml_is_faster(enum ggml_type type) {
    switch (type) {
#if defined(__AVX512VNNI__)
        case GGML_TYPE_Q2_K:
        case GGML_TYPE_Q3_K:
        case GGML_TYPE_IQ1_S:
        case GGML_TYPE_IQ1_M:
        case GGML_TYPE_IQ2_XXS:
        case GGML_TYPE_IQ2_XS:
        case GGML_TYPE_IQ2_S:
        case GGML_TYPE_IQ3_XXS:
        case GGML_TYPE_IQ3_S: return true;
#endif
#if defined(__AVX512BF16__)
        case GGML_TYPE_BF16: return true;
#endif
        default: return false;
    }
}

static bool is_in_bytes(const struct ggml_tensor * dst) {
#if MUL_MAT_BYTES
    return bytes_supported(dst);
#else
    (void) dst;
    return false;
#endif
}

static bool is_by_rows(const struct ggml_tensor * dst) {
#if MUL_MAT_ROWS
    return rows_supported(dst) || short_supported(dst);
#else
    (void) dst;
    return false;
#endif
}

static bool is_supported(const struct ggml_tensor * dst) {
    const struct ggml_tensor * w = dst->src[0];
    const struct ggml_tensor * x = dst->src[1];
    return x->type == GGML_TYPE_F32 && ggml_get_op_params_i32(dst, 1) == GGML_HINT_NONE &&
           (is_by_rows(dst) || is_in_bytes(dst) || dots_supported(dst) ||
                   (x->ne[1] >= COLUMNS_MANY && !ggml_is_faster(w->type) &&
                           ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) == 0)) &&
           (w->type == GGML_TYPE_F32 || ggml_get_type_traits(w->type)->to_float != NULL) &&
           w->nb[0] == ggml_type_size(w->type) && x->nb[0] == sizeof(float) &&
           dst->nb[0] == sizeof(float) && w->ne[0] > 0;
}

//
// Work buffer: x as tiles, then a part of a panel and its sums for each thread
//

static struct product product_of(const struct ggml_tensor * dst, float * work) {
    const struct ggml_tensor * w = dst->src[0];
    const struct ggml_tensor * x = dst->src[1];
    return (struct product) {
        .w         = w,
        .x         = x,
        .y         = dst,
        .K         = w->ne[0],
        .R         = w->ne[1],
        .C         = x->ne[1],
        .C_padded  = (x->ne[1] + VEC - 1) / VEC * VEC,
        .n_batches = x->ne[2] * x->ne[3],
        .columns   = work,
    };
}

enum { WORK_PER_THREAD = PANEL * (PART_STRIDE + SUMS_STRIDE) }; // floats

size_t ggml_lrnn_cpu_mul_mat_work_size(const struct ggml_tensor * dst, int n_threads) {
    if (dst->op != GGML_OP_MUL_MAT || !is_supported(dst)) {
        return 0;
    }
#if MUL_MAT_ROWS
    if (short_supported(dst)) {
        return VEC_BYTES; // not 0, which means that ggml computes the product
    }
    if (is_by_rows(dst)) {
        return rows_work_size(dst, n_threads) + VEC_BYTES;
    }
#endif
#if MUL_MAT_BYTES
    if (is_in_bytes(dst)) {
        return bytes_work_size(dst, n_threads) + VEC_BYTES;
    }
#endif
    if (dots_supported(dst)) {
        return dots_work_size(dst) + VEC_BYTES;
    }
    const struct product p      = product_of(dst, NULL);
    const int64_t        floats = p.n_batches * p.C_padded * p.K + n_threads * WORK_PER_THREAD;
    return (size_t) floats * sizeof(float) + VEC_BYTES;
}

bool ggml_lrnn_cpu_mul_mat_is_own(const struct ggml_tensor * dst) {
    // ggml has buffers with weights in another order, for kernels of its own
    ggml_backend_buffer_t buffer = dst->src[0]->buffer;
    if (!is_supported(dst) || (buffer != NULL && !ggml_backend_buffer_is_host(buffer))) {
        return false;
    }
#if MUL_MAT_ROWS
    if (short_supported(dst)) {
        return true;
    }
    if (is_by_rows(dst)) {
        return rows_is_own(dst);
    }
#endif
#if MUL_MAT_BYTES
    if (is_in_bytes(dst)) {
        return bytes_is_own(dst);
    }
#endif
    return false;
}

void ggml_lrnn_cpu_mul_mat_share(
        const struct ggml_tensor * dst, int ith, int nth, const char ** begin, const char ** end) {
    int64_t first = 0, last = 0; // rows
#if MUL_MAT_ROWS
    if (short_supported(dst)) {
        first = short_begin(dst, ith, nth);
        last  = short_begin(dst, ith + 1, nth);
    } else if (is_by_rows(dst)) {
        first = rows_begin(dst, ith, nth);
        last  = rows_begin(dst, ith + 1, nth);
    }
#endif
#if MUL_MAT_BYTES
    if (is_in_bytes(dst)) {
        first = bytes_begin(dst, ith, nth);
        last  = bytes_begin(dst, ith + 1, nth);
    }
#endif
    *begin = (const char *) dst->src[0]->data + first * (int64_t) dst->src[0]->nb[1];
    *end   = (const char *) dst->src[0]->data + last * (int64_t) dst->src[0]->nb[1];
}

//
// Transposition
//

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
#pragma GCC unroll 4
    for (int n = 1; n < VEC; n *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < VEC / 2; ++i) {
            u[2 * i]     = __builtin_shufflevector(v[i], v[i + VEC / 2], INTERLEAVE_LO);
            u[2 * i + 1] = __builtin_shufflevector(v[i], v[i + VEC / 2], INTERLEAVE_HI);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VEC; ++i) {
            v[i] = u[i];
        }
    }
}

// Columns of a tile that begins at column c.
static int64_t tile_width(const struct product * p, int64_t c) {
    return p->C_padded - c < TILE ? p->C_padded - c : TILE;
}

// Columns c … c + VEC of a batch: x [K, C] → rows of a tile, which are `width` floats apart.
// Columns past the end are zero.
static void pack_columns(
        const struct product * p, const char * x, int64_t c, float * out, int64_t width) {
    const int64_t n = p->C - c < VEC ? p->C - c : VEC;
    int64_t       k = 0;
    for (; k + VEC <= p->K; k += VEC) {
        vec v[VEC];
        for (int i = 0; i < VEC; ++i) {
            v[i] = i < n ? vec_load((const float *) (x + (c + i) * (int64_t) p->x->nb[1]) + k)
                         : (vec) { 0.0f };
        }
        transpose(v);
        for (int i = 0; i < VEC; ++i) {
            vec_store(out + (k + i) * width, v[i]);
        }
    }
    for (; k < p->K; ++k) {
        for (int i = 0; i < VEC; ++i) {
            out[k * width + i] =
                    i < n ? ((const float *) (x + (c + i) * (int64_t) p->x->nb[1]))[k] : 0.0f;
        }
    }
}

// The share of thread ith.
static void pack(const struct product * p, int ith, int nth) {
    const int64_t n_groups = p->C_padded / VEC;
    for (int64_t job = ith; job < p->n_batches * n_groups; job += nth) {
        const int64_t batch = job / n_groups;
        const int64_t c     = job % n_groups * VEC;
        const int64_t first = c / TILE * TILE; // of the tile
        const char *  x     = (const char *) p->x->data + batch % p->x->ne[2] * p->x->nb[2] +
                         batch / p->x->ne[2] * p->x->nb[3];
        float * tile = p->columns + (batch * p->C_padded + first) * p->K;
        pack_columns(p, x, c, tile + (c - first), tile_width(p, first));
    }
}

//
// The product of ROWS rows of a part and a tile
//

// sums[r, c] (+)= Σ_k part[r, k] tile[k, c]        c < n_vecs·VEC
SIMD_INLINE void multiply_rows(
        const float * part, const float * tile, int64_t n, int n_vecs, float * sums, bool add) {
    vec acc[ROWS][TILE_VECS];
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; ++i) {
            acc[r][i] = (vec) { 0.0f };
        }
    }
    for (int64_t k = 0; k < n; ++k) {
        vec x[TILE_VECS];
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; ++i) {
            x[i] = vec_load(tile + (k * n_vecs + i) * VEC);
        }
#pragma GCC unroll 6
        for (int r = 0; r < ROWS; ++r) {
            const vec w = vec_set1(part[r * PART_STRIDE + k]);
#pragma GCC unroll 4
            for (int i = 0; i < n_vecs; ++i) {
                acc[r][i] = vec_fma(w, x[i], acc[r][i]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; ++i) {
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

//
// Panels
//

// sums [BLOCK, PANEL] → y, rows r … r + n_rows of columns c … c + n_columns
static void store_panel(
        const float * sums, char * y, size_t nb1, int64_t n_rows, int64_t n_columns) {
    for (int64_t c = 0; c < n_columns; c += VEC) {
        const int64_t nc = n_columns - c < VEC ? n_columns - c : VEC;
        for (int64_t r = 0; r < n_rows; r += VEC) {
            const int64_t nr = n_rows - r < VEC ? n_rows - r : VEC;
            vec           v[VEC];
            for (int i = 0; i < VEC; ++i) {
                v[i] = vec_load(sums + (r + i) * SUMS_STRIDE + c);
            }
            transpose(v);
            for (int i = 0; i < nc; ++i) {
                float * out = (float *) (y + (c + i) * (int64_t) nb1) + r;
                if (nr == VEC) {
                    vec_store(out, v[i]);
                } else {
                    vec_store_n(out, v[i], nr);
                }
            }
        }
    }
}

// sums[r, c] = Σ_k w[r, k] x[k, c] for n_rows rows, which begin at `rows`, and n_columns columns
// from column c on, whose tiles begin at `tiles`. part [PART, PANEL], sums [BLOCK, PANEL]
static void multiply_float(const struct product * p, const char * rows, int64_t n_rows,
        const float * tiles, int64_t c, int64_t n_columns, float * part, float * sums) {
    for (int64_t k = 0; k < p->K; k += PART) {
        const int64_t n = p->K - k < PART ? p->K - k : PART;
        for (int64_t i = 0; i < n_rows; ++i) {
            weights_to_float(
                    p->w->type, rows + i * (int64_t) p->w->nb[1], k, n, part + i * PART_STRIDE);
        }
        for (int64_t t = 0; t < n_columns; t += TILE) {
            const int64_t width = tile_width(p, c + t);
            multiply_tile(
                    part, tiles + t * p->K + k * width, n, n_rows, width / VEC, sums + t, k > 0);
        }
    }
}

// Rows r … r + n_rows, columns c … c + n_columns of a batch. part [PART, PANEL],
// sums [BLOCK, PANEL]
static void multiply_panel(const struct product * p, int64_t batch, int64_t r, int64_t n_rows,
        int64_t c, int64_t n_columns, float * part, float * sums) {
    const struct ggml_tensor *w = p->w, *x = p->x, *y = p->y;
    const int64_t             i2 = batch % x->ne[2], i3 = batch / x->ne[2];
    // a matrix of w serves several of x
    const char * rows = (const char *) w->data + i2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
                        i3 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3] + r * (int64_t) w->nb[1];
    const float * tiles = p->columns + (batch * p->C_padded + c) * p->K;
    multiply_float(p, rows, n_rows, tiles, c, n_columns, part, sums);
    char * out = (char *) y->data + i2 * (int64_t) y->nb[2] + i3 * (int64_t) y->nb[3] +
                 c * (int64_t) y->nb[1] + r * (int64_t) sizeof(float);
    store_panel(sums, out, y->nb[1], n_rows, n_columns);
}

bool ggml_lrnn_cpu_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    if (params->use_ref || !is_supported(dst)) {
        return false;
    }
    float * work = (float *) (((uintptr_t) params->wdata + VEC_BYTES - 1) / VEC_BYTES * VEC_BYTES);
#if MUL_MAT_ROWS
    if (short_supported(dst)) {
        short_multiply(params, dst);
        return true;
    }
    if (is_by_rows(dst)) {
        rows_multiply(params, dst, work);
        return true;
    }
#endif
#if MUL_MAT_BYTES
    if (is_in_bytes(dst)) {
        bytes_multiply(params, dst, work);
        return true;
    }
#endif
    if (dots_supported(dst)) {
        dots_multiply(params, dst, (char *) work);
        return true;
    }
    const struct product p = product_of(dst, work);
    float * part = work + p.n_batches * p.C_padded * p.K + (int64_t) params->ith * WORK_PER_THREAD;
    float * sums = part + PANEL * PART_STRIDE;
    memset(part, 0, WORK_PER_THREAD * sizeof(float)); // rows past the end are multiplied, too

    pack(&p, params->ith, params->nth);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);

    // Narrower panels if there are too few for all threads.
    int64_t height = PANEL;
    while (height > ROWS && (p.R + height - 1) / height * p.n_batches < 4 * params->nth) {
        height -= ROWS;
    }
    const int64_t n_panels = (p.R + height - 1) / height;
    const int64_t n_blocks = (p.C + BLOCK - 1) / BLOCK;
    for (int64_t job = params->ith; job < n_panels * n_blocks * p.n_batches;
            job      = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t r     = job % n_panels * height;
        const int64_t c     = job / n_panels % n_blocks * BLOCK;
        const int64_t batch = job / n_panels / n_blocks;
        multiply_panel(&p, batch, r, p.R - r < height ? p.R - r : height, c,
                p.C - c < BLOCK ? p.C - c : BLOCK, part, sums);
    }
    return true;
}
