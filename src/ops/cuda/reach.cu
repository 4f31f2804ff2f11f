// Stands in for the files of ggml-cuda that are not compiled.

#include "glue.h"

#include "ggml-cuda/acc.cuh"
#include "ggml-cuda/add-id.cuh"
#include "ggml-cuda/allreduce.cuh"
#include "ggml-cuda/argmax.cuh"
#include "ggml-cuda/col2im-1d.cuh"
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/conv-transpose-1d.cuh"
#include "ggml-cuda/conv2d-dw.cuh"
#include "ggml-cuda/conv2d-transpose.cuh"
#include "ggml-cuda/conv2d.cuh"
#include "ggml-cuda/conv3d.cuh"
#include "ggml-cuda/count-equal.cuh"
#include "ggml-cuda/cross-entropy-loss.cuh"
#include "ggml-cuda/cumsum.cuh"
#include "ggml-cuda/diag.cuh"
#include "ggml-cuda/diagmask.cuh"
#include "ggml-cuda/dsv4-hc.cuh"
#include "ggml-cuda/fwht.cuh"
#include "ggml-cuda/im2col.cuh"
#include "ggml-cuda/lightning-indexer.cuh"
#include "ggml-cuda/mean.cuh"
#include "ggml-cuda/mmf.cuh"
#include "ggml-cuda/mmq.cuh"
#include "ggml-cuda/opt-step-adamw.cuh"
#include "ggml-cuda/opt-step-sgd.cuh"
#include "ggml-cuda/out-prod.cuh"
#include "ggml-cuda/pad.cuh"
#include "ggml-cuda/pad_reflect_1d.cuh"
#include "ggml-cuda/pool1d.cuh"
#include "ggml-cuda/pool2d.cuh"
#include "ggml-cuda/roll.cuh"
#include "ggml-cuda/set.cuh"
#include "ggml-cuda/snake.cuh"
#include "ggml-cuda/solve_tri.cuh"
#include "ggml-cuda/sum.cuh"
#include "ggml-cuda/top-k.cuh"
#include "ggml-cuda/tri.cuh"
#include "ggml-cuda/tsembd.cuh"
#include "ggml-cuda/upscale.cuh"

#pragma GCC diagnostic ignored "-Wsuggest-attribute=noreturn"

// An op, and the function that ggml-cuda calls for it
#define NOT_COMPILED(X)                                           \
    X(ACC, ggml_cuda_op_acc)                                      \
    X(ADD_ID, ggml_cuda_op_add_id)                                \
    X(ARGMAX, ggml_cuda_argmax)                                   \
    X(COL2IM_1D, ggml_cuda_op_col2im_1d)                          \
    X(CONV_2D, ggml_cuda_op_conv2d)                               \
    X(CONV_2D_DW, ggml_cuda_op_conv2d_dw)                         \
    X(CONV_3D, ggml_cuda_op_conv3d)                               \
    X(CONV_TRANSPOSE_1D, ggml_cuda_op_conv_transpose_1d)          \
    X(CONV_TRANSPOSE_2D, ggml_cuda_conv_2d_transpose_p0)          \
    X(COUNT_EQUAL, ggml_cuda_count_equal)                         \
    X(CROSS_ENTROPY_LOSS, ggml_cuda_cross_entropy_loss)           \
    X(CROSS_ENTROPY_LOSS_BACK, ggml_cuda_cross_entropy_loss_back) \
    X(CUMSUM, ggml_cuda_op_cumsum)                                \
    X(DIAG, ggml_cuda_op_diag)                                    \
    X(DIAG_MASK_INF, ggml_cuda_op_diag_mask_inf)                  \
    X(DSV4_HC_COMB, ggml_cuda_op_dsv4_hc_comb)                    \
    X(DSV4_HC_POST, ggml_cuda_op_dsv4_hc_post)                    \
    X(DSV4_HC_PRE, ggml_cuda_op_dsv4_hc_pre)                      \
    X(IM2COL, ggml_cuda_op_im2col)                                \
    X(IM2COL_3D, ggml_cuda_op_im2col_3d)                          \
    X(LIGHTNING_INDEXER, ggml_cuda_lightning_indexer)             \
    X(MEAN, ggml_cuda_op_mean)                                    \
    X(OPT_STEP_ADAMW, ggml_cuda_opt_step_adamw)                   \
    X(OPT_STEP_SGD, ggml_cuda_opt_step_sgd)                       \
    X(OUT_PROD, ggml_cuda_out_prod)                               \
    X(PAD, ggml_cuda_op_pad)                                      \
    X(PAD_REFLECT_1D, ggml_cuda_op_pad_reflect_1d)                \
    X(POOL_1D, ggml_cuda_op_pool1d)                               \
    X(POOL_2D, ggml_cuda_op_pool2d)                               \
    X(ROLL, ggml_cuda_op_roll)                                    \
    X(SET, ggml_cuda_op_set)                                      \
    X(SOLVE_TRI, ggml_cuda_op_solve_tri)                          \
    X(SUM, ggml_cuda_op_sum)                                      \
    X(TIMESTEP_EMBEDDING, ggml_cuda_op_timestep_embedding)        \
    X(TOP_K, ggml_cuda_op_top_k)                                  \
    X(TRI, ggml_cuda_op_tri)                                      \
    X(UPSCALE, ggml_cuda_op_upscale)

#define DEFINE(op, function)                                    \
    void function(ggml_backend_cuda_context &, ggml_tensor *) { \
        GGML_ABORT(#op " is not compiled; see reach.h");        \
    }
NOT_COMPILED(DEFINE)

bool ggml_lrnn_cuda_reaches_op(enum ggml_op op) {
    switch (op) {
#define REFUSE(name, function) case GGML_OP_##name:
        NOT_COMPILED(REFUSE) return false;
        default: return true;
    }
}

#define NEVER GGML_ABORT("not compiled; see reach.h")

// Fused ops and products that ggml-cuda prefers where they are available

bool ggml_cuda_lightning_indexer_supported(int, const ggml_tensor *) {
    return false;
}
bool ggml_cuda_op_mul_mat_use_fwht(const ggml_tensor *) {
    return false;
}
bool ggml_cuda_op_fwht(ggml_backend_cuda_context &, const ggml_tensor *, ggml_tensor *) {
    return false;
}
bool ggml_cuda_should_use_mmf(
        enum ggml_type, int, int, const int64_t *, const size_t *, const int, bool) {
    return false;
}
void ggml_cuda_mul_mat_f(ggml_backend_cuda_context &, const ggml_tensor *, const ggml_tensor *,
        const ggml_tensor *, ggml_tensor *) {
    NEVER;
}
void ggml_cuda_op_snake_fused(ggml_backend_cuda_context &, const ggml_tensor *, const ggml_tensor *,
        const ggml_tensor *, ggml_tensor *) {
    NEVER;
}

// Sums over several devices: lrnn places whole layers.

ggml_cuda_ar_pipeline * ggml_cuda_ar_pipeline_init(const int *, size_t) {
    return nullptr;
}
void ggml_cuda_ar_pipeline_free(ggml_cuda_ar_pipeline *) {}
bool ggml_cuda_ar_allreduce(ggml_cuda_ar_pipeline *, ggml_backend_t *, ggml_tensor **) {
    return false;
}

// Attention without tensor cores, which attention.cu computes, and of heads that reach.h does not
// list

void ggml_cuda_flash_attn_ext_tile(ggml_backend_cuda_context &, ggml_tensor *);
void ggml_cuda_flash_attn_ext_tile(ggml_backend_cuda_context &, ggml_tensor *) {
    NEVER;
}

template <int DK, int DV, int COLS1, int COLS2>
void ggml_cuda_flash_attn_ext_mma_f16_case(ggml_backend_cuda_context &, ggml_tensor *) {
    NEVER;
}
#define ATTENTION(...)                                                \
    template void ggml_cuda_flash_attn_ext_mma_f16_case<__VA_ARGS__>( \
            ggml_backend_cuda_context &, ggml_tensor *)
ATTENTION(320, 256, 1, 32);
ATTENTION(320, 256, 2, 32);
ATTENTION(576, 512, 1, 16);
ATTENTION(576, 512, 1, 32);
ATTENTION(576, 512, 2, 16);
ATTENTION(576, 512, 2, 32);
ATTENTION(576, 512, 4, 16);

// Products of quantized types that reach.h does not list

DECL_MMQ_CASE(GGML_TYPE_Q1_0);
DECL_MMQ_CASE(GGML_TYPE_Q2_0);
DECL_MMQ_CASE(GGML_TYPE_Q4_1);
DECL_MMQ_CASE(GGML_TYPE_Q2_K);
DECL_MMQ_CASE(GGML_TYPE_Q3_K);
DECL_MMQ_CASE(GGML_TYPE_IQ1_S);
DECL_MMQ_CASE(GGML_TYPE_IQ2_XXS);
DECL_MMQ_CASE(GGML_TYPE_IQ2_XS);
DECL_MMQ_CASE(GGML_TYPE_IQ2_S);
DECL_MMQ_CASE(GGML_TYPE_IQ3_XXS);
DECL_MMQ_CASE(GGML_TYPE_IQ3_S);
DECL_MMQ_CASE(GGML_TYPE_IQ4_NL);
DECL_MMQ_CASE(GGML_TYPE_IQ4_XS);
DECL_MMQ_CASE(GGML_TYPE_MXFP4);
DECL_MMQ_CASE(GGML_TYPE_NVFP4);
DECL_MMQ_CASE_W4A4(GGML_TYPE_MXFP4);
DECL_MMQ_CASE_W4A4(GGML_TYPE_NVFP4);
