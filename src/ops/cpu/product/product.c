// Matrix products on the CPU: which kernel computes a product, and how threads divide it.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], of any type; x [K, C] and y [R, C], F32
//
// First, the columns are prepared for the kernel: rounded, transposed, or nothing. With few numbers
// in x each thread does that for itself and then takes slices of rows from a queue, without a
// barrier. With more, the threads divide the columns, wait for each other, and take slices of rows
// and columns from a common counter.
//
// A kernel computes an element in the same order in any case, so it depends neither on the number
// of threads nor on the other columns.

#include "product.h"

#include "barriers.h"
#include "glue.h"
#include "row-queue.h"

#include "ggml-cpu-impl.h"

//
// Which kernel
//

static bool supports_any(const struct ggml_tensor * dst) {
    (void) dst;
    return true;
}

// Types whose kernel in ggml is faster than F32 on this CPU, though it rounds x to 8 bits (to BF16
// if the weights are). With VNNI, an instruction adds four times as many products of bytes as of
// floats.
static const struct product_kernel product_ggml = {
    .name = "ggml",
    .types = 0
#if defined(__AVX512VNNI__)
             | PRODUCT_TYPE(Q2_K) | PRODUCT_TYPE(Q3_K) | PRODUCT_TYPE(IQ1_S) | PRODUCT_TYPE(IQ1_M) |
             PRODUCT_TYPE(IQ2_XXS) | PRODUCT_TYPE(IQ2_XS) | PRODUCT_TYPE(IQ2_S) |
             PRODUCT_TYPE(IQ3_XXS) | PRODUCT_TYPE(IQ3_S)
#endif
#if defined(__AVX512BF16__)
             | PRODUCT_TYPE(BF16)
#endif
            ,
    .supports = supports_any,
};

// The first kernel that supports a product computes it.
static const struct product_kernel * const kernels[] = {
#if PRODUCT_AVX2
    &product_odd_rows,
    &product_rows_f32,
    &product_rows_f16,
    &product_rows_k,
    &product_q8_0,
    &product_k,
#else
    &product_vec_dot,
#endif
    &product_ggml,
    &product_f32,
};

_Static_assert(GGML_TYPE_COUNT <= 64, "a type is a bit of product_kernel.types");

const struct product_kernel * product_kernel_of(const struct ggml_tensor * dst) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    if (x->type != GGML_TYPE_F32 || ggml_get_op_params_i32(dst, 1) != GGML_HINT_NONE ||
            (w->type != GGML_TYPE_F32 && ggml_get_type_traits(w->type)->to_float == NULL) ||
            w->nb[0] != ggml_type_size(w->type) || x->nb[0] != sizeof(float) ||
            dst->nb[0] != sizeof(float) || w->ne[0] == 0) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); ++i) {
        const struct product_kernel * kernel = kernels[i];
        if ((kernel->types >> w->type & 1) != 0 && kernel->supports(dst)) {
            return kernel->multiply != NULL ? kernel : NULL;
        }
    }
    return NULL;
}

bool product_is_private(const struct product_kernel * kernel, const struct ggml_tensor * dst) {
    return ggml_nelements(dst->src[1]) <= kernel->private_max;
}

static struct product product_of(
        const struct product_kernel * kernel, const struct ggml_tensor * dst) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    const bool     one = x->ne[1] == 1 && x->ne[3] == 1 && w->ne[2] == 1; // column per matrix
    struct product p = { .w = w, .x = x, .y = dst, .K = w->ne[0], .R = w->ne[1] };
    p.C = x->ne[one ? 2 : 1];
    p.n2 = one ? 1 : x->ne[2];
    p.n_matrices = p.n2 * x->ne[3];
    p.r2 = p.n2 / w->ne[2];
    p.r3 = x->ne[3] / w->ne[3];
    p.x_nb1 = (int64_t) x->nb[one ? 2 : 1];
    p.y_nb1 = (int64_t) dst->nb[one ? 2 : 1];
    if (kernel->round != NULL) {
        p.prepared_size = (size_t) (p.K / kernel->block * p.C) * kernel->block_size;
    } else if (kernel->prepare != NULL) {
        p.prepared_size = kernel->prepared_size(p.K, p.C);
    }
    return p;
}

//
// Columns
//

// Share i of n of the blocks of every column
static void prepare(const struct product_kernel * kernel, const struct product * p, char * out,
        int64_t i, int64_t n) {
    if (kernel->prepare != NULL) {
        kernel->prepare(p, out, i, n);
    }
    if (kernel->round == NULL) {
        return;
    }
    const int64_t n_blocks = p->K / kernel->block; // of a column
    const int64_t begin = i * n_blocks / n, end = (i + 1) * n_blocks / n;
    const int64_t size = (int64_t) kernel->block_size;
    for (int64_t m = 0; m < p->n_matrices; ++m, out += p->prepared_size) {
        for (int64_t c = 0; c < p->C; ++c) {
            const int64_t first = kernel->by_block ? begin * p->C + c : c * n_blocks + begin;
            kernel->round(p->w->type, product_x(p, m, c) + begin * kernel->block, end - begin,
                    out + first * size, (kernel->by_block ? p->C : 1) * size);
        }
    }
}

//
// Rows
//

// The matrix of w for matrix m of x; one of w serves several of x.
static const char * matrix_of(const struct product * p, int64_t m) {
    return (const char *) p->w->data + m % p->n2 / p->r2 * (int64_t) p->w->nb[2] +
           m / p->n2 / p->r3 * (int64_t) p->w->nb[3];
}

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Rows r … r + n_rows and columns c … c + n_columns of matrix m
static struct product_part part_of(const struct product * p, const char * columns, int64_t m,
        int64_t r, int64_t n_rows, int64_t c, int64_t n_columns) {
    return (struct product_part) {
        .type = p->w->type,
        .K = p->K,
        .rows = matrix_of(p, m) + r * (int64_t) p->w->nb[1],
        .row_size = (int64_t) p->w->nb[1],
        .n_rows = min(n_rows, p->R - r),
        .columns = p->prepared_size == 0 ? (const char *) product_x(p, m, 0)
                                         : columns + m * (int64_t) p->prepared_size,
        .C = p->C,
        .x_nb1 = p->x_nb1,
        .first = c,
        .n_columns = min(n_columns, p->C - c),
        .y = (char *) p->y->data + m % p->n2 * (int64_t) p->y->nb[2] +
             m / p->n2 * (int64_t) p->y->nb[3] + c * p->y_nb1 + r * (int64_t) sizeof(float),
        .y_nb1 = p->y_nb1,
    };
}

// Rows of a slice of a private product
static int64_t slice_rows(const struct product_kernel * kernel, const struct ggml_tensor * w) {
    const int64_t strip = kernel->height * (int64_t) ggml_row_size(w->type, w->ne[0]);
    return (kernel->min_slice_size + strip - 1) / strip * kernel->height;
}

void product_weights_of(const struct product_kernel * kernel, const struct ggml_tensor * dst,
        int ith, int nth, const char ** begin, const char ** end) {
    const struct ggml_tensor * w = dst->src[0];
    const int64_t              rows = slice_rows(kernel, w);
    const int64_t              n_slices = (w->ne[1] + rows - 1) / rows;
    const int64_t              first = min(row_queue_begin(n_slices, ith, nth) * rows, w->ne[1]);
    const int64_t              last = min(row_queue_begin(n_slices, ith + 1, nth) * rows, w->ne[1]);
    *begin = (const char *) w->data + first * (int64_t) w->nb[1];
    *end = (const char *) w->data + last * (int64_t) w->nb[1];
}

static void multiply_private(const struct product_kernel * kernel, const struct product * p,
        const struct ggml_compute_params * params) {
    char *           columns = private_work(params);
    const int64_t    rows = slice_rows(kernel, p->w);
    struct row_queue queue = row_queue_of(
            plan_counters(params->thread), (p->R + rows - 1) / rows, params->ith, params->nth);
    prepare(kernel, p, columns, 0, 1);
    for (int64_t slice; row_queue_next(&queue, &slice);) {
        for (int64_t m = 0; m < p->n_matrices; ++m) {
            struct product_part part = part_of(p, columns, m, slice * rows, rows, 0, p->C);
            if (queue.next >= 0) {
                part.next = part.rows + (queue.next - slice) * rows * part.row_size;
            }
            kernel->multiply(&part);
        }
    }
}

// The work buffer of a product that is not private: prepared columns, then a part for each thread.
static size_t columns_size(const struct product * p) {
    const size_t size = p->prepared_size * (size_t) p->n_matrices;
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static void multiply_shared(const struct product_kernel * kernel, const struct product * p,
        const struct ggml_compute_params * params) {
    const int64_t nth = params->nth;
    char *        columns = align_line(params->wdata);
    char *        work = columns + columns_size(p) + (size_t) params->ith * kernel->work_size;
    prepare(kernel, p, columns, params->ith, nth);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, (int) nth);
    }
    ggml_barrier(params->threadpool);

    // fewer rows if there are too few slices for all threads
    int64_t rows = kernel->slice_rows;
    while (rows > kernel->height && (p->R + rows - 1) / rows * p->n_matrices < 4 * nth) {
        rows -= kernel->height;
    }
    const int64_t n_rows = (p->R + rows - 1) / rows; // slices
    const int64_t n_columns = (p->C + kernel->slice_columns - 1) / kernel->slice_columns;
    const int64_t n_slices = n_rows * n_columns * p->n_matrices;
    for (int64_t i = params->ith; i < n_slices;
            i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        struct product_part part = part_of(p, columns, i / n_rows / n_columns, i % n_rows * rows,
                rows, i / n_rows % n_columns * kernel->slice_columns, kernel->slice_columns);
        const int64_t       next = i + nth;
        part.next = next < n_slices ? matrix_of(p, next / n_rows / n_columns) +
                                              next % n_rows * rows * (int64_t) p->w->nb[1]
                                    : NULL;
        part.work = work;
        kernel->multiply(&part);
    }
}

//
// Glue
//

size_t ggml_lrnn_cpu_mul_mat_work_size(const struct ggml_tensor * dst, int n_threads) {
    const struct product_kernel * kernel =
            dst->op == GGML_OP_MUL_MAT ? product_kernel_of(dst) : NULL;
    if (kernel == NULL) {
        return 0;
    }
    const struct product p = product_of(kernel, dst);
    return product_is_private(kernel, dst)
                   ? private_work_size(p.prepared_size * (size_t) p.n_matrices, n_threads)
                   : columns_size(&p) + (size_t) n_threads * kernel->work_size + CACHE_LINE;
}

bool ggml_lrnn_cpu_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct product_kernel * kernel = params->thread != NULL ? params->thread->step->kernel
                                           : params->use_ref      ? NULL
                                                                  : product_kernel_of(dst);
    if (kernel == NULL) {
        return false;
    }
    const struct product p = product_of(kernel, dst);
    (product_is_private(kernel, dst) ? multiply_private : multiply_shared)(kernel, &p, params);
    return true;
}
