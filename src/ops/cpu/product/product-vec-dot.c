// Matrix products by ggml's dot products, on CPUs without AVX2.
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], Q8_0 or Q4_0; x [K, C] and y [R, C], F32
//
// ggml has faster kernels for several columns, but they add in another order than its dot product,
// which computes a single column. Sequences that are decoded together must not affect each other,
// so few columns of these types are computed like one.

#include "product-vec-dot.h"

#include "lrnn-ops.h"
#include "product-bytes.h"
#include "product-columns.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"

bool dots_supported(const struct ggml_tensor * dst) {
    const enum ggml_type type = dst->src[0]->type;
    return !MUL_MAT_BYTES && (type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0) &&
           (dst->ne[1] < COLUMNS_MANY || ggml_get_op_params_i32(dst, GGML_MUL_MAT_BY_COLUMN) != 0);
}

static const struct ggml_type_traits_cpu * traits_of(const struct ggml_tensor * dst) {
    return ggml_get_type_traits_cpu(dst->src[0]->type);
}

// Bytes of a rounded column
static int64_t column_size(const struct ggml_tensor * dst) {
    return (int64_t) ggml_row_size(traits_of(dst)->vec_dot_type, dst->src[0]->ne[0]);
}

size_t dots_work_size(const struct ggml_tensor * dst) {
    return (size_t) (ggml_nrows(dst->src[1]) * column_size(dst));
}

void dots_multiply(
        const struct ggml_compute_params * params, struct ggml_tensor * dst, char * work) {
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    const struct columns      s    = columns_of(dst);
    const int64_t             size = column_size(dst), K = w->ne[0], R = w->ne[1];
    const ggml_from_float_t   round =
            ggml_get_type_traits_cpu(traits_of(dst)->vec_dot_type)->from_float;
    for (int64_t j = params->ith; j < s.C * s.n2 * s.n3; j += params->nth) {
        round((const float *) (const void *) columns_x(&s, x, j), work + j * size, K);
    }
    ggml_barrier(params->threadpool);

    const int64_t begin = R * params->ith / params->nth, end = R * (params->ith + 1) / params->nth;
    for (int64_t batch = 0; batch < s.n2 * s.n3; ++batch) {
        const int64_t i2 = batch % s.n2, i3 = batch / s.n2;
        // a matrix of w serves several of x
        const char * rows = (const char *) w->data +
                            i2 / (x->ne[2] / w->ne[2]) * (int64_t) w->nb[2] +
                            i3 / (x->ne[3] / w->ne[3]) * (int64_t) w->nb[3];
        char * y = (char *) dst->data + i2 * (int64_t) dst->nb[2] + i3 * (int64_t) dst->nb[3];
        for (int64_t r = begin; r < end; ++r) {
            for (int64_t c = 0; c < s.C; ++c) {
                traits_of(dst)->vec_dot((int) K,
                        (float *) (void *) (y + c * s.y_nb1 + r * (int64_t) sizeof(float)), 0,
                        rows + r * (int64_t) w->nb[1], 0, work + (batch * s.C + c) * size, 0, 1);
            }
        }
    }
}
