#pragma once

// GGML_OP_SIGNED_SCAN: from the node to its kernels.

#include "launch.cuh"
#include "mlstm-normalize.cuh"
#include "signed-plain.cuh"
#include "signed-step.cuh"

template <int DK, typename Launch>
static void launch_signed_step(
        Launch & launch, const signed_cuda_args & args, bool bonus, int64_t n_seqs) {
    switch (args.kind) {
        case SIGNED_SCAN_ELEMENT:
            launch_tiles<DK>(launch, signed_step<DK, SIGNED_MODE_ELEMENT, false>, args, n_seqs);
            break;
        case SIGNED_SCAN_CHANNEL:
            if (bonus) {
                launch_tiles<DK>(launch, signed_step<DK, SIGNED_MODE_CHANNEL, true>, args, n_seqs);
            } else {
                launch_tiles<DK>(launch, signed_step<DK, SIGNED_MODE_CHANNEL, false>, args, n_seqs);
            }
            break;
        default:
            if (bonus) {
                launch_tiles<DK>(launch, signed_step<DK, SIGNED_MODE_HEAD, true>, args, n_seqs);
            } else {
                launch_tiles<DK>(launch, signed_step<DK, SIGNED_MODE_HEAD, false>, args, n_seqs);
            }
            break;
    }
}

// Floats of work buffer that a node needs
static inline int64_t signed_work_floats(const struct ggml_tensor * op) {
    const struct scan_dims dims = scan_dims_get(op);
    return scan_params_get(op).kind == SIGNED_SCAN_MLSTM ? 3 * dims.n_head * dims.n_tokens : 0;
}

// work: signed_work_floats floats
template <typename Launch>
static void launch_signed(const struct ggml_tensor * dst, float * work, Launch && launch) {
    const struct scan_dims     dims   = scan_dims_get(dst);
    const struct scan_params   params = scan_params_get(dst);
    const struct ggml_tensor * aux    = dst->src[SIGNED_SRC_AUX];
    const bool                 mlstm  = params.kind == SIGNED_SCAN_MLSTM;
    const bool ssm = params.kind == SIGNED_SCAN_ELEMENT || params.kind == SIGNED_SCAN_SCALAR;

    signed_cuda_args args;
    args.batch      = cuda_batch_of(dst);
    args.c          = cuda_rows_of(dst->src[SIGNED_SRC_C], dims.n_head);
    args.b          = cuda_rows_of(dst->src[SIGNED_SRC_B], dims.n_head);
    args.x          = cuda_rows_of(dst->src[SIGNED_SRC_X], dims.n_head);
    args.gate       = cuda_rows_of(dst->src[SIGNED_SRC_GATE], dims.n_head);
    args.aux        = cuda_rows_of(params.bonus || mlstm ? aux : nullptr, dims.n_head);
    args.A          = ssm ? (const float *) aux->data : nullptr;
    args.A_col      = ssm ? (int64_t) (aux->nb[0] / sizeof(float)) : 0;
    args.A_row      = ssm ? (int64_t) (aux->nb[1] / sizeof(float)) : 0;
    args.A_head     = ssm ? (int64_t) (aux->nb[2] / sizeof(float)) : 0;
    args.A_share    = ssm ? (int) (dims.n_head / aux->ne[2]) : 1;
    args.kind       = params.kind;
    args.two_exp_m1 = params.form == GGML_SIGNED_SCAN_TWO_EXP_M1;
    args.scale      = params.scale;
    args.eps        = params.eps;
    args.below      = cuda_rows_of(nullptr, dims.n_head);
    args.mlstm      = work;
    args.out        = (float *) dst->data;

    if (mlstm) { // leaves gates and divisors in `work`
        launch(mlstm_normalize, dim3((unsigned) (dims.n_seqs * dims.n_head)), dim3(NORM_THREADS),
                args);
        const int64_t plane = dims.n_head * dims.n_tokens;
        args.gate           = { work, dims.n_tokens, 0, 1, 1 };
        args.aux            = { work + plane, dims.n_tokens, 0, 1, 1 };
        args.below          = { work + 2 * plane, dims.n_tokens, 0, 1, 1 };
    }
    const bool step = with_instance(dims.d_k, [&](auto size) {
        launch_signed_step<decltype(size)::DK>(launch, args, params.bonus != 0, dims.n_seqs);
    });
    if (!step) {
        launch_plain(launch, signed_plain, args, dims.n_seqs);
    }
}
