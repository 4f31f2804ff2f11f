// Matrix products in bytes, on CPUs with AVX2 or VNNI.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R] in blocks; x [K, C] and y [R, C], F32
//
// First, the columns are rounded to 8 bits in blocks, as ggml does. Then a thread takes a panel of
// rows, unpacks a block of them, once, and multiplies it with every column
// (mul-mat-bytes-{32,256}.c). A single column reads each weight once, and memory sets the pace: the
// next panel is fetched into the second-level cache meanwhile.
//
// Sums of integers are exact, and blocks are added in increasing order, so an element depends
// neither on the number of threads nor on the other columns.

#include "product-bytes.h"

#if MUL_MAT_BYTES

#    include "glue.h"
#    include "lrnn-ops.h"
#    include "product-bytes-kernel.h"
#    include "product-columns.h"
#    include "row-queue.h"

#    include "ggml-cpu-impl.h"

enum {
    GROUP = 4,     // panels that a thread takes at once, at most
    ALONE = 16384, // numbers of x that each thread rounds for itself, at most
    CHUNK = 8192,  // bytes of the rows that a thread takes at once, then, at least
};

static const struct byte_kernel * kernel_of(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0: return &byte_kernel_32;
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K: return &byte_kernel_256;
#    if MUL_MAT_VNNI
        case GGML_TYPE_IQ4_XS: return &byte_kernel_256;
#    endif
        default: return NULL;
    }
}

bool bytes_supported(const struct ggml_tensor * dst) {
    const struct byte_kernel * kernel = kernel_of(dst->src[0]->type);
    if (kernel == &byte_kernel_256) {
        return dst->ne[1] > COLUMNS_FEW_256;
    }
    // with AVX2, many columns of the others are faster in F32
    return kernel != NULL && (MUL_MAT_VNNI || dst->ne[1] < COLUMNS_MANY ||
                                     ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) != 0);
}

// With few numbers in x, each thread rounds all of them for itself. That is faster than to wait for
// other threads.
static bool is_alone(const struct ggml_tensor * dst) {
    return ggml_nelements(dst->src[1]) <= ALONE;
}

size_t bytes_work_size(const struct ggml_tensor * dst, int n_threads) {
    const struct byte_kernel * kernel = kernel_of(dst->src[0]->type);
    const size_t size = (size_t) (ggml_nelements(dst->src[1]) / kernel->block) * kernel->block_size;
    return is_alone(dst) ? ggml_lrnn_cpu_own_work_size(size, n_threads) : size;
}

// Part i of n of every column: some of its blocks. They follow each other in the order of the
// kernel, one matrix after the other.
static void round_columns(const struct ggml_tensor * dst, char * out, int64_t i, int64_t n) {
    const struct ggml_tensor * x        = dst->src[1];
    const enum ggml_type       type     = dst->src[0]->type;
    const struct byte_kernel * kernel   = kernel_of(type);
    const struct columns       s        = columns_of(dst);
    const int64_t              n_blocks = x->ne[0] / kernel->block; // of a column
    const int64_t              begin = i * n_blocks / n, end = (i + 1) * n_blocks / n;
    const int64_t              size = (int64_t) kernel->block_size;
    for (int64_t j = 0; j < s.C * s.n2 * s.n3; ++j) {
        const float * column = (const float *) (const void *) columns_x(&s, x, j);
        const int64_t matrix = j / s.C * s.C * n_blocks, c = j % s.C;
        const int64_t first = kernel->by_block ? begin * s.C + c : c * n_blocks + begin;
        kernel->round(type, column + begin * kernel->block, end - begin,
                out + (matrix + first) * size, (kernel->by_block ? s.C : 1) * size);
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
static void multiply_range(const struct ggml_tensor * dst, const char * columns, int64_t batch,
        int64_t begin, int64_t end, int64_t c, int64_t n_columns, const char * next) {
    const struct ggml_tensor * w = dst->src[0], *x = dst->src[1], *y = dst;
    const struct byte_kernel * kernel   = kernel_of(w->type);
    const struct columns       s        = columns_of(dst);
    const int64_t              height   = kernel->height;
    const int64_t              n_blocks = x->ne[0] / kernel->block;
    const int64_t              i2 = batch % s.n2, i3 = batch / s.n2;
    const int64_t first = batch * s.C * n_blocks + (kernel->by_block ? c : c * n_blocks);
    const char *  rows  = matrix_of(dst, &s, batch);
    char * out = (char *) y->data + i2 * (int64_t) y->nb[2] + i3 * (int64_t) y->nb[3] + c * s.y_nb1;
    for (int64_t r = begin; r < end; r += height) {
        const int64_t n_rows = end - r < height ? end - r : height;
        struct panel  p      = {
                  .type      = w->type,
                  .next      = r + height < end ? rows + (r + height) * (int64_t) w->nb[1] : next,
                  .n_rows    = n_rows,
                  .n_blocks  = n_blocks,
                  .n_columns = n_columns,
                  .x         = columns + first * (int64_t) kernel->block_size,
                  .step      = kernel->by_block ? s.C : n_blocks,
                  .y         = out + r * (int64_t) sizeof(float),
                  .nb1       = s.y_nb1,
        };
        for (int64_t i = 0; i < height; ++i) {
            p.rows[i] = rows + (r + (i < n_rows ? i : n_rows - 1)) * (int64_t) w->nb[1];
        }
        kernel->multiply(&p);
    }
}

// Rows of a chunk of at least CHUNK bytes, in panels
static int64_t chunk_rows(const struct ggml_tensor * dst) {
    const struct ggml_tensor * w      = dst->src[0];
    const int64_t              height = kernel_of(w->type)->height;
    const int64_t              panel  = height * (int64_t) ggml_row_size(w->type, w->ne[0]);
    return (CHUNK + panel - 1) / panel * height;
}

static int64_t n_chunks(const struct ggml_tensor * dst) {
    return (dst->ne[0] + chunk_rows(dst) - 1) / chunk_rows(dst);
}

int64_t bytes_begin(const struct ggml_tensor * dst, int i, int n) {
    const int64_t begin = share_begin(n_chunks(dst), i, n) * chunk_rows(dst);
    return begin < dst->ne[0] ? begin : dst->ne[0];
}

static void multiply_alone(
        const struct ggml_compute_params * params, const struct ggml_tensor * dst, char * columns) {
    const struct columns s     = columns_of(dst);
    struct share         share = share_of(params, n_chunks(dst));
    const int64_t        R = dst->ne[0], height = chunk_rows(dst);
    round_columns(dst, columns, 0, 1);
    for (int64_t chunk; share_next(&share, &chunk);) {
        const int64_t begin = chunk * height, end = begin + height;
        const int64_t next = share.next * height * (int64_t) dst->src[0]->nb[1];
        for (int64_t batch = 0; batch < s.n2 * s.n3; ++batch) {
            multiply_range(dst, columns, batch, begin, end < R ? end : R, 0, s.C,
                    share.next < 0 ? NULL : matrix_of(dst, &s, batch) + next);
        }
    }
}

bool bytes_is_own(const struct ggml_tensor * dst) {
    return is_alone(dst);
}

void bytes_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, void * work) {
    const int64_t ith = params->ith, nth = params->nth;
    char *        columns = work;
    if (is_alone(dst)) {
        multiply_alone(params, dst, ggml_lrnn_cpu_own_work(params));
        return;
    }
    round_columns(dst, columns, ith, nth);
    if (ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, (int) nth);
    }
    ggml_barrier(params->threadpool);

    const struct columns       s         = columns_of(dst);
    const int64_t              R         = dst->ne[0];
    const int64_t              n_batches = s.n2 * s.n3;
    const struct byte_kernel * kernel    = kernel_of(dst->src[0]->type);
    int64_t                    height    = GROUP * kernel->height; // of a group of panels
    while (height > kernel->height && (R + height - 1) / height * n_batches < 4 * nth) {
        height -= kernel->height;
    }
    const int64_t width    = kernel->width;
    const int64_t n_groups = (R + height - 1) / height;
    const int64_t n_parts  = (s.C + width - 1) / width;
    for (int64_t job = ith, next; job < n_groups * n_parts * n_batches; job = next) {
        next                 = ggml_threadpool_chunk_add(params->threadpool, 1);
        const int64_t r      = job % n_groups * height;
        const int64_t c      = job / n_groups % n_parts * width;
        const char *  matrix = matrix_of(dst, &s, next / n_groups / n_parts % n_batches);
        multiply_range(dst, columns, job / n_groups / n_parts, r, r + height < R ? r + height : R,
                c, s.C - c < width ? s.C - c : width,
                matrix + next % n_groups * height * (int64_t) dst->src[0]->nb[1]);
    }
}

#endif
