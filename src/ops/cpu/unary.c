// Activations for which ggml calls the C library once per number:
//
//     exp x,   sigmoid x = 1 / (1 + e^-x),   softplus x = log(1 + e^x)
//
// Each number gets the same operations wherever it is in a tensor, so results depend neither on the
// number of threads nor on the batch.

#include "glue.h"
#include "simd.h"

#include "ggml-cpu-impl.h"

SIMD_INLINE vec apply(enum ggml_unary_op op, vec x) {
    switch (op) {
        case GGML_UNARY_OP_EXP: return vec_exp(x);
        case GGML_UNARY_OP_SIGMOID: return vec_sigmoid(x);
        default: return vec_softplus(x);
    }
}

SIMD_INLINE void apply_range(
        enum ggml_unary_op op, const float * x, float * y, int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + VEC <= end; i += VEC) {
        vec_store(y + i, apply(op, vec_load(x + i)));
    }
    if (i < end) {
        vec_store_n(y + i, apply(op, vec_load_n(x + i, end - i)), end - i);
    }
}

bool ggml_lrnn_cpu_unary(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct ggml_tensor * src = dst->src[0];
    if (params->use_ref || src->type != GGML_TYPE_F32 || dst->type != GGML_TYPE_F32 ||
            !ggml_is_contiguous(src) || !ggml_is_contiguous(dst)) {
        return false;
    }
    const float * x = src->data;
    float *       y = dst->data;
    const int64_t n = ggml_nelements(dst);
    const int64_t share = ((n + params->nth - 1) / params->nth + VEC - 1) / VEC * VEC;
    const int64_t begin = share * params->ith < n ? share * params->ith : n;
    const int64_t end = begin + share < n ? begin + share : n;
    switch (ggml_get_unary_op(dst)) { // one loop for each
        case GGML_UNARY_OP_EXP: apply_range(GGML_UNARY_OP_EXP, x, y, begin, end); break;
        case GGML_UNARY_OP_SIGMOID: apply_range(GGML_UNARY_OP_SIGMOID, x, y, begin, end); break;
        case GGML_UNARY_OP_SOFTPLUS: apply_range(GGML_UNARY_OP_SOFTPLUS, x, y, begin, end); break;
        default: return false;
    }
    return true;
}
