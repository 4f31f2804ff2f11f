// Matrix products on the CPU: which kernel computes a product, and how threads divide it.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], of any type; x [K, C] and y [R, C], F32
//
// First, the columns are prepared for the kernel: rounded, transposed, or nothing. With few numbers
// in x each thread does that for itself and then takes slices of rows from a queue, without a
// barrier. With more, the threads divide the columns, wait for each other, and take slices of rows
// and columns from a common counter. The slices of all experts are one list. Every thread sorts the
// columns by expert for itself: that takes microseconds.
//
// A kernel computes an element in the same order in any case, so it depends neither on the number
// of threads nor on the other columns.

#include "product.h"

#include "barriers.h"
#include "glue.h"
#include "row-queue.h"

#include "ggml-cpu-impl.h"

// ---- Which kernel -------------------------------------------------------------------------------

static bool supports_any(const struct ggml_tensor * dst) {
    (void) dst;
    return true;
}

// Types whose kernel in ggml is faster than F32 on this CPU, though it rounds x to 8 bits (to BF16
// if the weights are). With VNNI, one instruction does four times as many multiply-adds in int8 as
// in F32.
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
    &product_q8_0,
    &product_k,
#elif PRODUCT_NEON
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
    const bool experts = dst->op == GGML_OP_MUL_MAT_ID;
    if (experts && (!ggml_is_contiguous(dst) || dst->ne[1] * dst->ne[2] > INT32_MAX)) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); ++i) {
        const struct product_kernel * kernel = kernels[i];
        if ((kernel->types >> w->type & 1) != 0 &&
                (experts ? kernel->experts : kernel->supports(dst))) {
            return kernel->multiply != NULL ? kernel : NULL;
        }
    }
    return NULL;
}

bool product_is_private(const struct product_kernel * kernel, const struct ggml_tensor * dst) {
    return ggml_nelements(dst->src[1]) <= kernel->private_max;
}

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Bytes of C prepared columns
static size_t prepared_size(const struct product_kernel * kernel, int64_t K, int64_t C) {
    return kernel->round != NULL     ? (size_t) (K / kernel->block * C) * kernel->block_size
           : kernel->prepare != NULL ? kernel->prepared_size(K, C)
                                     : 0;
}

static struct product product_of(
        const struct product_kernel * kernel, const struct ggml_tensor * dst) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    const bool     one = x->ne[1] == 1 && x->ne[3] == 1 && w->ne[2] == 1; // column per matrix
    struct product p = { .w = w, .x = x, .y = dst, .K = w->ne[0], .R = w->ne[1] };
    if (dst->op == GGML_OP_MUL_MAT_ID) {
        p.C = dst->ne[1] * dst->ne[2];
        p.n_matrices = min(w->ne[2], p.C); // at most
        p.x_nb1 = (int64_t) x->nb[1];
        p.y_nb1 = (int64_t) dst->nb[1];
        return p;
    }
    p.C = x->ne[one ? 2 : 1];
    p.n2 = one ? 1 : x->ne[2];
    p.n_matrices = p.n2 * x->ne[3];
    p.r2 = p.n2 / w->ne[2];
    p.r3 = x->ne[3] / w->ne[3];
    p.x_nb1 = (int64_t) x->nb[one ? 2 : 1];
    p.y_nb1 = (int64_t) dst->nb[one ? 2 : 1];
    p.prepared_size = prepared_size(kernel, p.K, p.C);
    return p;
}

// One matrix of w serves several of x.
struct product_matrix product_matrix_of(const struct product * p, int64_t m) {
    if (p->experts != NULL) {
        return p->experts[m];
    }
    const int64_t i2 = m % p->n2, i3 = m / p->n2;
    return (struct product_matrix) {
        .w = (const char *) p->w->data + i2 / p->r2 * (int64_t) p->w->nb[2] +
             i3 / p->r3 * (int64_t) p->w->nb[3],
        .x = (const char *) p->x->data + i2 * (int64_t) p->x->nb[2] + i3 * (int64_t) p->x->nb[3],
        .y = (char *) p->y->data + i2 * (int64_t) p->y->nb[2] + i3 * (int64_t) p->y->nb[3],
        .C = p->C,
        .offset = (size_t) m * p->prepared_size,
    };
}

// ---- Experts ------------------------------------------------------------------------------------

// Bytes for the experts that have columns, the places and numbers of the columns, and counters
static size_t experts_size(const struct product * p) {
    if (p->y->op != GGML_OP_MUL_MAT_ID) {
        return 0;
    }
    const size_t size = (size_t) p->n_matrices * sizeof(struct product_matrix) +
                        (size_t) p->C * (sizeof(struct product_place) + sizeof(int32_t)) +
                        (size_t) p->w->ne[2] * sizeof(int32_t);
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

// Sorts the columns by expert.
static void find_experts(const struct product_kernel * kernel, struct product * p, void * memory) {
    const struct ggml_tensor * ids = p->y->src[2];
    const int64_t              k = p->y->ne[1], X = p->w->ne[2];
    p->experts = memory;
    p->places = (void *) (p->experts + p->n_matrices);
    int32_t * numbers = (int32_t *) (void *) (p->places + p->C);
    int32_t * counts = numbers + p->C; // columns of an expert, then its matrix
    memset(counts, 0, (size_t) X * sizeof(int32_t));
    for (int64_t c = 0; c < p->C; ++c) {
        const int32_t id = *(const int32_t *) (const void *) ((const char *) ids->data +
                                                              c % k * (int64_t) ids->nb[0] +
                                                              c / k * (int64_t) ids->nb[1]);
        p->places[c] = (struct product_place) { id, counts[id]++ };
    }
    p->n_matrices = 0;
    size_t offset = 0;
    for (int64_t id = 0; id < X; ++id) {
        if (counts[id] > 0) {
            struct product_matrix * m = &p->experts[p->n_matrices];
            *m = (struct product_matrix) {
                .w = (const char *) p->w->data + id * (int64_t) p->w->nb[2],
                .x = p->x->data,
                .y = p->y->data,
                .C = counts[id],
                .numbers = numbers,
                .offset = offset,
            };
            numbers += m->C;
            offset += prepared_size(kernel, p->K, m->C);
            counts[id] = (int32_t) p->n_matrices++;
        }
    }
    for (int64_t c = 0; c < p->C; ++c) {
        struct product_place * place = &p->places[c];
        place->matrix = counts[place->matrix];
        p->experts[place->matrix].numbers[place->column] = (int32_t) c;
    }
}

// ---- Columns ------------------------------------------------------------------------------------

// The blocks of a column
struct blocks {
    char *  first;
    int64_t stride; // bytes
};

static struct blocks blocks_of(const struct product_kernel * kernel, const struct product * p,
        const struct product_matrix * m, int64_t c, char * columns) {
    const int64_t size = (int64_t) kernel->block_size;
    return (struct blocks) {
        .first = columns + m->offset + c * (kernel->by_block ? 1 : p->K / kernel->block) * size,
        .stride = (kernel->by_block ? m->C : 1) * size,
    };
}

// Blocks begin … end of every column. An expert has its own copy of a column of x.
static void round_columns(const struct product_kernel * kernel, const struct product * p,
        char * out, int64_t begin, int64_t end) {
    for (int64_t m = 0; m < p->n_matrices; ++m) {
        const struct product_matrix matrix = product_matrix_of(p, m);
        for (int64_t c = 0; c < matrix.C; ++c) {
            if (matrix.numbers == NULL || matrix.numbers[c] % p->y->ne[1] < p->x->ne[1]) {
                const struct blocks to = blocks_of(kernel, p, &matrix, c, out);
                kernel->round(p->w->type, product_x(p, &matrix, c) + begin * kernel->block,
                        end - begin, to.first + begin * to.stride, to.stride);
            }
        }
    }
    for (int64_t c = 0; p->experts != NULL && c < p->C; ++c) {
        const int64_t i = c % p->y->ne[1], n = p->x->ne[1];
        if (i >= n) {
            const struct product_place *a = &p->places[c - i + i % n], *b = &p->places[c];
            const struct blocks from = blocks_of(kernel, p, &p->experts[a->matrix], a->column, out);
            const struct blocks to = blocks_of(kernel, p, &p->experts[b->matrix], b->column, out);
            for (int64_t j = begin; j < end; ++j) {
                memcpy(to.first + j * to.stride, from.first + j * from.stride, kernel->block_size);
            }
        }
    }
}

// Share i of n of the columns
static void prepare(const struct product_kernel * kernel, const struct product * p, char * out,
        int64_t i, int64_t n) {
    if (kernel->prepare != NULL) {
        kernel->prepare(p, out, i, n);
    }
    if (kernel->round != NULL) {
        const int64_t n_blocks = p->K / kernel->block; // of a column
        round_columns(kernel, p, out, i * n_blocks / n, (i + 1) * n_blocks / n);
    }
}

// ---- Rows ---------------------------------------------------------------------------------------

// Rows r … r + n_rows and columns c … c + n_columns of a matrix
static struct product_part part_of(const struct product_kernel * kernel, const struct product * p,
        const char * columns, const struct product_matrix * m, int64_t r, int64_t n_rows, int64_t c,
        int64_t n_columns) {
    const bool is_prepared = kernel->round != NULL || kernel->prepare != NULL;
    return (struct product_part) {
        .type = p->w->type,
        .K = p->K,
        .rows = m->w + r * (int64_t) p->w->nb[1],
        .row_size = (int64_t) p->w->nb[1],
        .n_rows = min(n_rows, p->R - r),
        .columns = is_prepared ? columns + m->offset : m->x,
        .C = m->C,
        .x_nb1 = p->x_nb1,
        .first = c,
        .n_columns = min(n_columns, m->C - c),
        .y = m->y + (m->numbers == NULL ? c * p->y_nb1 : 0) + r * (int64_t) sizeof(float),
        .y_nb1 = p->y_nb1,
        .numbers = m->numbers != NULL ? m->numbers + c : NULL,
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

static void multiply_private(const struct product_kernel * kernel, struct product * p,
        const struct ggml_compute_params * params) {
    char * work = private_work(params);
    char * columns = work + experts_size(p);
    if (p->y->op == GGML_OP_MUL_MAT_ID) {
        find_experts(kernel, p, work);
    }
    const int64_t    rows = slice_rows(kernel, p->w);
    const int64_t    n = (p->R + rows - 1) / rows;                  // slices of a matrix
    const int64_t    step = p->experts != NULL ? 1 : p->n_matrices; // matrices of a slice
    struct row_queue queue = row_queue_of(
            plan_counters(params->thread), p->n_matrices / step * n, params->ith, params->nth);
    prepare(kernel, p, columns, 0, 1);
    for (int64_t slice; row_queue_next(&queue, &slice);) {
        const int64_t first = slice / n;
        const char *  next = NULL;
        if (queue.next >= 0) {
            next = product_matrix_of(p, queue.next / n).w +
                   queue.next % n * rows * (int64_t) p->w->nb[1];
        }
        for (int64_t m = first; m < first + step; ++m) {
            const struct product_matrix matrix = product_matrix_of(p, m);
            struct product_part         part =
                    part_of(kernel, p, columns, &matrix, slice % n * rows, rows, 0, matrix.C);
            part.next = next;
            kernel->multiply(&part);
        }
    }
}

// The work buffer of a product that is not private: prepared columns, then a part for each thread.
static size_t columns_size(const struct product_kernel * kernel, const struct product * p) {
    const bool   experts = p->y->op == GGML_OP_MUL_MAT_ID;
    const size_t size = experts ? prepared_size(kernel, p->K, p->C) +
                                          (size_t) p->n_matrices * prepared_size(kernel, p->K, 1)
                                : p->prepared_size * (size_t) p->n_matrices;
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

// Slice i of all matrices.
struct slice {
    int64_t               m; // its matrix
    struct product_matrix matrix;
    int64_t               first; // slice of the matrix
};

// Continues to slice i, which is not before the present one; false if there are not that many.
static bool find_slice(const struct product_kernel * kernel, const struct product * p,
        int64_t n_rows, int64_t i, struct slice * s) {
    while (s->m < p->n_matrices) {
        s->matrix = product_matrix_of(p, s->m);
        const int64_t n = (s->matrix.C + kernel->slice_columns - 1) / kernel->slice_columns;
        if (i < s->first + n * n_rows) {
            return true;
        }
        s->first += n * n_rows;
        ++s->m;
    }
    return false;
}

static void multiply_shared(const struct product_kernel * kernel, struct product * p,
        const struct ggml_compute_params * params) {
    const int64_t nth = params->nth;
    char *        columns = align_line(params->wdata);
    char *        work = columns + columns_size(kernel, p) +
                  (size_t) params->ith * (experts_size(p) + kernel->work_size);
    if (p->y->op == GGML_OP_MUL_MAT_ID) {
        find_experts(kernel, p, work + kernel->work_size);
    }
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
    struct slice  slice = { 0 };
    for (int64_t i = params->ith; find_slice(kernel, p, n_rows, i, &slice);
            i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t       j = i - slice.first;
        struct product_part part = part_of(kernel, p, columns, &slice.matrix, j % n_rows * rows,
                rows, j / n_rows * kernel->slice_columns, kernel->slice_columns);
        struct slice        next = slice;
        if (find_slice(kernel, p, n_rows, i + nth, &next)) {
            part.next =
                    next.matrix.w + (i + nth - next.first) % n_rows * rows * (int64_t) p->w->nb[1];
        }
        part.work = work;
        kernel->multiply(&part);
    }
}

// ---- Glue ---------------------------------------------------------------------------------------

size_t ggml_lrnn_cpu_mul_mat_work_size(const struct ggml_tensor * dst, int n_threads) {
    const struct product_kernel * kernel =
            dst->op == GGML_OP_MUL_MAT || dst->op == GGML_OP_MUL_MAT_ID ? product_kernel_of(dst)
                                                                        : NULL;
    if (kernel == NULL) {
        return 0;
    }
    const struct product p = product_of(kernel, dst);
    const size_t         columns = columns_size(kernel, &p), experts = experts_size(&p);
    return product_is_private(kernel, dst)
                   ? private_work_size(columns + experts, n_threads)
                   : columns + (size_t) n_threads * (kernel->work_size + experts) + CACHE_LINE;
}

bool ggml_lrnn_cpu_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct product_kernel * kernel = params->thread != NULL ? params->thread->step->kernel
                                           : params->use_ref      ? NULL
                                                                  : product_kernel_of(dst);
    if (kernel == NULL) {
        return false;
    }
    struct product p = product_of(kernel, dst);
    (product_is_private(kernel, dst) ? multiply_private : multiply_shared)(kernel, &p, params);
    return true;
}
