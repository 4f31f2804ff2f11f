// Matrix products with few columns, row by row.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R] in blocks; x [K, C] and y [R, C], F32
//
// A single column reads each weight once, so memory sets the pace, if everything else is faster:
//
// - Two rows go through their blocks together: their sums do not wait for each other, and both use
//   the numbers of a column that are in registers.
// - Weights are prefetched. Two rows are neighbors in memory; the prefetch goes straight through
//   them while the blocks alternate, far enough ahead that it is always past the second row.
// - With few numbers in x, each thread rounds all of them for itself; columns in F32 are not
//   rounded at all. Then it takes one range of rows. That is faster than to wait for the others.
//
// The kernels (mul-mat-rows-*.c) give a column the bits that ggml's dot products
// give it, alone and among others.

#include "product-rows.h"

#if MUL_MAT_ROWS

#    include "glue.h"
#    include "lrnn-ops.h"
#    include "product-columns.h"
#    include "row-queue.h"
#    include "simd.h"

#    include "ggml-cpu-impl.h"

enum {
    ALONE  = 4096,  // numbers of x that each thread rounds for itself, at most
    CHUNK  = 16384, // bytes of the rows that a thread takes at once, at least
    CHUNKS = 8,     // ranges of rows per thread, otherwise
};

static const struct row_kernel * kernel_of(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_K: return &row_kernel_q4_k;
        case GGML_TYPE_Q6_K: return &row_kernel_q6_k;
        case GGML_TYPE_F32: return &row_kernel_f32;
#    if !defined(__AVX512FP16__) // ggml would multiply in F16
        case GGML_TYPE_F16: return &row_kernel_f16;
#    endif
        default: return NULL;
    }
}

bool rows_supported(const struct ggml_tensor * dst) {
    const struct row_kernel * kernel = kernel_of(dst->src[0]->type);
    if (kernel == NULL || dst->src[0]->ne[0] % kernel->block != 0) {
        return false;
    }
    const bool by_column = ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) != 0;
    switch (dst->src[0]->type) {
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q6_K: return dst->ne[1] <= COLUMNS_FEW_256;
        case GGML_TYPE_F16: return dst->ne[1] == 1;
        default: return dst->ne[1] < COLUMNS_MANY || by_column;
    }
}

static bool is_rounded(const struct ggml_tensor * dst) {
    return kernel_of(dst->src[0]->type)->round != NULL;
}

// Bytes between rounded columns, so that no cache line belongs to two
static int64_t stride_of(const struct ggml_tensor * dst) {
    const size_t size = kernel_of(dst->src[0]->type)->column_size(dst->src[0]->ne[0]);
    return (int64_t) ((size + 63) / 64 * 64);
}

static bool is_alone(const struct ggml_tensor * dst) {
    return !is_rounded(dst) || ggml_nelements(dst->src[1]) <= ALONE;
}

size_t rows_work_size(const struct ggml_tensor * dst, int n_threads) {
    const size_t size = is_rounded(dst) ? (size_t) (ggml_nrows(dst->src[1]) * stride_of(dst)) : 0;
    return is_alone(dst) ? ggml_lrnn_cpu_own_work_size(size, n_threads) : size;
}

// Part i of n of all columns
static void round_columns(const struct ggml_tensor * dst, char * out, int64_t i, int64_t n) {
    const struct ggml_tensor * x        = dst->src[1];
    const enum ggml_type       type     = dst->src[0]->type;
    const struct row_kernel *  kernel   = kernel_of(type);
    const struct columns       s        = columns_of(dst);
    const int64_t              n_blocks = x->ne[0] / kernel->block, stride = stride_of(dst);
    for (int64_t j = 0; j < s.C * s.n2 * s.n3; ++j, out += stride) {
        kernel->round(type, (const float *) (const void *) columns_x(&s, x, j), x->ne[0],
                i * n_blocks / n, (i + 1) * n_blocks / n, out);
    }
}

// Rows begin … end of all matrices; `rounded` are the columns, unless they are used as they are.
static void multiply_range(
        const struct ggml_tensor * dst, const char * rounded, int64_t begin, int64_t end) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1], *y = dst;
    const struct row_kernel * kernel = kernel_of(w->type);
    const struct columns      s      = columns_of(dst);
    const int64_t             stride = is_rounded(dst) ? stride_of(dst) : s.x_nb1;
    for (int64_t batch = 0; batch < s.n2 * s.n3; ++batch) {
        const int64_t i2 = batch % s.n2, i3 = batch / s.n2;
        const char *  columns =
                is_rounded(dst) ? rounded + batch * s.C * stride : columns_x(&s, x, batch * s.C);
        // a matrix of w serves several of x
        const char * rows = (const char *) w->data +
                            i2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
                            i3 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3];
        char * out = (char *) y->data + i2 * (int64_t) y->nb[2] + i3 * (int64_t) y->nb[3];
        for (int64_t r = begin; r < end; r += 2) {
            const char *    row = rows + r * (int64_t) w->nb[1];
            struct row_pair p   = {
                  .rows = { row, r + 1 < end ? row + w->nb[1] : row },
                  .n    = r + 1 < end ? 2 : 1,
                  .nb1  = s.y_nb1,
            };
            for (int64_t c = 0; c < s.C; c += ROWS_TILE) {
                p.prefetch = c == 0;
                p.y        = out + r * (int64_t) sizeof(float) + c * p.nb1;
                kernel->multiply(&p, columns + c * stride, stride, x->ne[0],
                        s.C - c < ROWS_TILE ? (int) (s.C - c) : ROWS_TILE);
            }
        }
    }
}

// Rows of a chunk of at least CHUNK bytes, in pairs
static int64_t chunk_rows(const struct ggml_tensor * dst) {
    const struct ggml_tensor * w   = dst->src[0];
    const int64_t              row = (int64_t) ggml_row_size(w->type, w->ne[0]);
    return (CHUNK + 2 * row - 1) / (2 * row) * 2;
}

static int64_t n_chunks(const struct ggml_tensor * dst) {
    return (dst->ne[0] + chunk_rows(dst) - 1) / chunk_rows(dst);
}

bool rows_is_own(const struct ggml_tensor * dst) {
    return is_alone(dst);
}

int64_t rows_begin(const struct ggml_tensor * dst, int i, int n) {
    const int64_t begin = share_begin(n_chunks(dst), i, n) * chunk_rows(dst);
    return begin < dst->ne[0] ? begin : dst->ne[0];
}

// Where range i of n begins: rows are computed in pairs.
static int64_t range_begin(int64_t R, int64_t i, int64_t n) {
    return i == n ? R : R * i / n / 2 * 2;
}

void rows_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work) {
    const int64_t ith = params->ith, nth = params->nth;
    char *        columns = work;
    if (is_alone(dst)) {
        if (is_rounded(dst)) {
            columns = ggml_lrnn_cpu_own_work(params);
            round_columns(dst, columns, 0, 1);
        }
        struct share  share = share_of(params, n_chunks(dst));
        const int64_t R = dst->ne[0], height = chunk_rows(dst);
        for (int64_t chunk; share_next(&share, &chunk);) {
            const int64_t begin = chunk * height;
            multiply_range(dst, columns, begin, begin + height < R ? begin + height : R);
        }
        return;
    }
    round_columns(dst, columns, ith, nth);
    if (ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, (int) nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t job = ith; job < CHUNKS * nth;
            job      = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        multiply_range(dst, columns, range_begin(dst->ne[0], job, CHUNKS * nth),
                range_begin(dst->ne[0], job + 1, CHUNKS * nth));
    }
}

#endif
