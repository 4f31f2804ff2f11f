#pragma once

// Matrix products on the CPU.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], of any type; x [K, C] and y [R, C], F32
//
// A kernel multiplies some rows of one matrix with some columns. Its description says which
// products it can compute and how it divides them; product.c chooses the first one of a table and
// runs it on all threads. No kernel looks at a node of a graph while it multiplies: what it gets is
// a part. In a product of experts (GGML_OP_MUL_MAT_ID) each column chooses its matrix,
//
//     y[r, i, t] = Σ_k w[r, k, ids[i, t]] x[k, i mod n, t]     w [K, R, X], x [K, n, T], ids [k, T]
//
// and the columns of an expert are prepared side by side. One kernel computes them, however many
// there are, so the result of a token does not depend on the others.
//
// Words: a strip is the rows that a kernel multiplies together, a slice the rows that a thread
// takes at once.

#include "lrnn-ops.h"
#include "product-limits.h"

#include "ggml-impl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PRODUCT_AVX2 1
#else
#    define PRODUCT_AVX2 0
#endif

// Instructions that add four products of bytes (VNNI): in vectors of 512 bits, or of 256
#if PRODUCT_AVX2 && defined(__AVX512VNNI__)
#    define PRODUCT_512 1
#else
#    define PRODUCT_512 0
#endif
#if PRODUCT_512 || (PRODUCT_AVX2 && defined(__AVXVNNI__))
#    define PRODUCT_VNNI 1
#else
#    define PRODUCT_VNNI 0
#endif

// The same of ARM (dotprod), which multiplies numbers with a sign
#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#    define PRODUCT_NEON 1
#else
#    define PRODUCT_NEON 0
#endif

// Whether there are int8 kernels, and whether their instructions accumulate in 32 bits
#define PRODUCT_BYTES  (PRODUCT_AVX2 || PRODUCT_NEON)
#define PRODUCT_SUM_32 (PRODUCT_VNNI || PRODUCT_NEON)

struct ggml_compute_params;

// A matrix of w and the columns it is multiplied with: a matrix of x, or the tokens of an expert.
struct product_matrix {
    const char * w;
    const char * x;       // column 0
    char *       y;       // of column 0
    int64_t      C;       // columns
    int32_t *    numbers; // of the columns: i + k t; NULL: 0 … C − 1
    size_t       offset;  // of the prepared columns, in bytes
};

// A node GGML_OP_MUL_MAT or GGML_OP_MUL_MAT_ID. In the former, matrices of one column that share a
// matrix of w count as columns of one matrix.
struct product {
    const struct ggml_tensor *w, *x, *y;
    int64_t                   K, R, C;        // C: columns of a matrix; of all experts
    int64_t                   n2, n_matrices; // matrices of x: in dimension 2, and of both
    int64_t                   r2, r3;         // matrices of x that share one of w
    int64_t                   x_nb1, y_nb1;   // bytes between columns
    size_t                    prepared_size;  // bytes of the prepared columns of a matrix

    // MUL_MAT_ID: the experts that have columns, n_matrices of them; NULL: MUL_MAT
    struct product_matrix * experts;
    struct product_place {
        int32_t matrix, column;
    } * places; // of column i + k t
};

struct product_matrix product_matrix_of(const struct product * p, int64_t m);

// Column c of a matrix
static inline const float * product_x(
        const struct product * p, const struct product_matrix * m, int64_t c) {
    const char * x = m->x + c * p->x_nb1;
    if (m->numbers != NULL) {
        const int64_t i = m->numbers[c] % p->y->ne[1], t = m->numbers[c] / p->y->ne[1];
        x = m->x + i % p->x->ne[1] * p->x_nb1 + t * (int64_t) p->x->nb[2];
    }
    return (const float *) (const void *) x;
}

// Rows of a matrix times some of its columns.
struct product_part {
    enum ggml_type  type; // of the rows
    int64_t         K;
    const char *    rows;
    int64_t         row_size; // bytes between rows
    int64_t         n_rows;
    const char *    next;      // rows that the thread probably takes next; may be NULL
    const char *    columns;   // column 0: prepared, or of x
    int64_t         C;         // columns that were prepared together
    int64_t         x_nb1;     // bytes between columns of x
    int64_t         first;     // column of the part
    int64_t         n_columns; // of the part
    char *          y;         // of the first row, and of column 0 of the part or number 0
    int64_t         y_nb1;     // bytes between columns of y
    const int32_t * numbers;   // of the columns of the part in y; NULL: 0 … n_columns − 1
    void *          work;      // work_size bytes
};

// Column c of a part in y, from row r on
static inline char * product_y(const struct product_part * part, int64_t r, int64_t c) {
    const int64_t number = part->numbers != NULL ? part->numbers[c] : c;
    return part->y + number * part->y_nb1 + r * (int64_t) sizeof(float);
}

struct product_kernel {
    const char * name;
    uint64_t     types;                               // of w: bits 1 << GGML_TYPE_…
    bool (*supports)(const struct ggml_tensor * dst); // a MUL_MAT
    bool experts; // also MUL_MAT_ID: a column does not depend on the others in its product

    // How the columns are prepared; all fields may be 0, for a kernel that reads x. Either a column
    // is rounded block by block, or `prepare` writes share i of n of all columns, of all matrices.
    int64_t block;      // length of a block of a column
    size_t  block_size; // bytes of a rounded block
    bool    by_block;   // block b of all columns, then block b + 1, …; otherwise column by column
    void (*round)(enum ggml_type type, const float * x, int64_t n, char * out,
            int64_t stride);                       // n blocks, which are then `stride` bytes apart
    size_t (*prepared_size)(int64_t K, int64_t C); // of a matrix
    void (*prepare)(const struct product * p, char * out, int64_t i, int64_t n);

    // If x has at most this many elements, every thread prepares all columns for itself. That is
    // cheaper than a barrier.
    int64_t private_max;

    int64_t height;         // rows of a strip
    int64_t slice_rows;     // maximum, if the threads share prepared columns
    int64_t slice_columns;  // maximum, in that case
    int64_t min_slice_size; // bytes of weights, otherwise
    size_t  work_size;      // bytes for each thread, in the first case

    void (*multiply)(const struct product_part * part); // NULL: ggml computes the product
};

// a kernel for many columns
extern const struct product_kernel product_f32; // of any type, converted to F32

// for any number of columns
extern const struct product_kernel product_q8_0; // blocks of 32 in 8 bits
extern const struct product_kernel product_k;    // Q4_K, Q5_K, Q6_K, IQ4_XS in 8 bits

// for few columns
extern const struct product_kernel product_rows_f32;
extern const struct product_kernel product_rows_f16;
extern const struct product_kernel product_odd_rows; // F32 and F16, short rows of any length
extern const struct product_kernel product_vec_dot;  // Q8_0 and Q4_0 on CPUs without int8 kernels

// The kernel of a node; NULL: ggml computes it.
const struct product_kernel * product_kernel_of(const struct ggml_tensor * dst);

// True if no thread waits for another: each uses only a private part of the work buffer.
bool product_is_private(const struct product_kernel * kernel, const struct ggml_tensor * dst);

// The weights that thread ith of nth reads in such a product if no other thread helps.
void product_weights_of(const struct product_kernel * kernel, const struct ggml_tensor * dst,
        int ith, int nth, const char ** begin, const char ** end);

// True if each column must be bit-identical to the same column computed alone, or there are too
// few columns for product_f32.
static inline bool product_is_few(const struct ggml_tensor * dst) {
    return dst->ne[1] < PRODUCT_MANY_COLUMNS ||
           ggml_get_op_params_i32(dst, LRNN_OP_PARAM_BATCH_INVARIANT) != 0;
}

#define PRODUCT_TYPE(name) (UINT64_C(1) << GGML_TYPE_##name)
