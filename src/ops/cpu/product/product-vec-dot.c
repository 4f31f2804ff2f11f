// Uses ggml's dot products for few columns, on CPUs without int8 kernels (PRODUCT_BYTES).
//
//     y[r, c] = Σ_k w[r, k] x[k, c]        w [K, R], Q8_0 or Q4_0; x [K, C] and y [R, C], F32
//
// ggml has faster kernels for several columns, but they add in another order than its dot product,
// which computes a single column. Sequences that are decoded together must not affect each other,
// so few columns of these types are computed like one.

#include "product.h"

#include "ggml-cpu.h"
#define GGML_COMMON_DECL_C
#include "ggml-common.h"

static void round_blocks(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    (void) type;
    (void) stride;
    ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(x, out, n * QK8_0);
}

static void multiply(const struct product_part * p) {
    const ggml_vec_dot_t vec_dot = ggml_get_type_traits_cpu(p->type)->vec_dot;
    const int64_t        stride = p->K / QK8_0 * (int64_t) sizeof(block_q8_0);
    for (int64_t r = 0; r < p->n_rows; ++r) {
        for (int64_t c = 0; c < p->n_columns; ++c) {
            vec_dot((int) p->K, (float *) (void *) product_y(p, r, c), 0, p->rows + r * p->row_size,
                    0, p->columns + (p->first + c) * stride, 0, 1);
        }
    }
}

const struct product_kernel product_vec_dot = {
    .name = "vec_dot",
    .types = PRODUCT_TYPE(Q8_0) | PRODUCT_TYPE(Q4_0),
    .supports = product_is_few,
    .experts = true,
    .block = QK8_0,
    .block_size = sizeof(block_q8_0),
    .round = round_blocks,
    .height = 1,
    .slice_rows = 64,
    .slice_columns = 256,
    .multiply = multiply,
};
