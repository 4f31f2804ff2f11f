#pragma once

// GGML_OP_HOUSEHOLDER_SCAN: from the node to its kernel.

#include "householder-plain.cuh"
#include "householder-step.cuh"
#include "launch.cuh"

template <int DK, typename Launch>
static void launch_householder_step(Launch & launch, const householder_cuda_args & args, int64_t n_seqs) {
    const bool rw   = args.r.data != nullptr;
    const int  gate = args.gate_width == 0 ? HOUSEHOLDER_GATE_NONE : args.gate_width == 1 ? HOUSEHOLDER_GATE_HEAD : HOUSEHOLDER_GATE_CHANNEL;
    switch (gate + 3*rw) {
        case 0:  launch_tiles<DK>(launch, householder_step<DK, HOUSEHOLDER_GATE_NONE,    false>, args, n_seqs); break;
        case 1:  launch_tiles<DK>(launch, householder_step<DK, HOUSEHOLDER_GATE_HEAD,    false>, args, n_seqs); break;
        case 2:  launch_tiles<DK>(launch, householder_step<DK, HOUSEHOLDER_GATE_CHANNEL, false>, args, n_seqs); break;
        case 3:  launch_tiles<DK>(launch, householder_step<DK, HOUSEHOLDER_GATE_NONE,    true>,  args, n_seqs); break;
        case 4:  launch_tiles<DK>(launch, householder_step<DK, HOUSEHOLDER_GATE_HEAD,    true>,  args, n_seqs); break;
        default: launch_tiles<DK>(launch, householder_step<DK, HOUSEHOLDER_GATE_CHANNEL, true>,  args, n_seqs); break;
    }
}

template <typename Launch>
static void launch_householder(const struct ggml_tensor * dst, Launch && launch) {
    const struct scan_dims     dims = scan_dims_get(dst);
    const struct ggml_tensor * gate = dst->src[HOUSEHOLDER_SRC_GATE];

    householder_cuda_args args;
    args.batch      = cuda_batch_of(dst);
    args.q          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_Q],    dims.n_head);
    args.k          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_K],    dims.n_head);
    args.v          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_V],    dims.n_head);
    args.beta       = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_BETA], dims.n_head);
    args.gate       = cuda_rows_of(gate,                           dims.n_head);
    args.r          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_R],    dims.n_head);
    args.w          = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_W],    dims.n_head);
    args.n_h        = (int) dims.n_h;
    args.gate_width = gate == nullptr ? 0 : (int) gate->ne[0];
    args.scale      = scan_params_get(dst).scale;
    args.out        = (float *) dst->data;

    const int64_t d_k = dims.d_k;
    if      (d_k <=  16) { launch_householder_step< 16>(launch, args, dims.n_seqs); }
    else if (d_k <=  32) { launch_householder_step< 32>(launch, args, dims.n_seqs); }
    else if (d_k <=  64) { launch_householder_step< 64>(launch, args, dims.n_seqs); }
    else if (d_k <=  96) { launch_householder_step< 96>(launch, args, dims.n_seqs); }
    else if (d_k <= 128) { launch_householder_step<128>(launch, args, dims.n_seqs); }
    else if (d_k <= 192) { launch_householder_step<192>(launch, args, dims.n_seqs); }
    else if (d_k <= 256) { launch_householder_step<256>(launch, args, dims.n_seqs); }
    else                 { launch_plain(launch, householder_plain, args, dims.n_seqs); }
}
