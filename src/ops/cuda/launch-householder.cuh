#pragma once

// GGML_OP_HOUSEHOLDER_SCAN: from the node to its kernel.

#include "householder-step.cuh"
#include "launch-chunk.cuh"
#include "plain-column.cuh"

// The scan of any size, one column per thread (plain-column.cuh). The equations are those of
// householder-step.cuh.
//
// grid: (sequences · heads, groups of columns), block: any
static __global__ void householder_plain(const householder_cuda_args a) {
    const cuda_batch & b = a.batch;
    cuda_wait();

    const int h = (int) (blockIdx.x % b.n_head);
    const int j = (int) (blockIdx.y * blockDim.x + threadIdx.x);
    if (j >= b.d_v) {
        return;
    }
    cuda_seq seq;
    if (!cuda_seq_get(b, (int) (blockIdx.x / b.n_head), &seq)) {
        cuda_fill_nan(b, seq, h, j, j + 1, a.out, 0, 1);
        return;
    }
    plain_column C;
    C.begin(b, seq, h, j);
    C.store(b, seq, h, j, 0);

    for (int64_t n = 0; n < seq.count; ++n) {
        const int64_t t = seq.first + n;

        // before the gate: u = Sᵀ r
        const float u = a.r.data != nullptr ? C.dot(cuda_row(a.r, h, 0, t)) : 0.0f;

        if (a.gate.data != nullptr) { // S ← g ∘ S
            const float * g = cuda_row(a.gate, h, 0, t);
            for (int i = 0; i < b.d_k; ++i) {
                C.S[i * C.d_v] *= g[a.gate_width == 1 ? 0 : i];
            }
        }
        if (a.r.data != nullptr) { // S ← S − w uᵀ + k vᵀ
            const float * k = cuda_row(a.k, h, 0, t);
            const float * w = cuda_row(a.w, h, 0, t);
            const float   v = cuda_row(a.v, h, 0, t)[j];
            for (int i = 0; i < b.d_k; ++i) {
                C.S[i * C.d_v] = fmaf(k[i], v, fmaf(w[i], -u, C.S[i * C.d_v]));
            }
        } else {
            for (int f = 0; f < a.n_h; ++f) { // S ← S + k δᵀ,  δ = β (v − Sᵀ k)
                const float * k = cuda_row(a.k, h, f, t);
                const float   delta =
                        cuda_row(a.beta, h, f, t)[0] * (cuda_row(a.v, h, f, t)[j] - C.dot(k));
                for (int i = 0; i < b.d_k; ++i) {
                    C.S[i * C.d_v] = fmaf(k[i], delta, C.S[i * C.d_v]);
                }
            }
        }
        // o = scale · Sᵀ q
        a.out[(t * b.n_head + h) * b.d_v + j] = a.scale * C.dot(cuda_row(a.q, h, 0, t));
        C.store(b, seq, h, j, n + 1);
    }
}

template <int DK, typename Launch>
static void launch_householder_step(
        Launch & launch, const householder_cuda_args & args, int64_t n_seqs) {
    const int gate = args.gate_width == 0   ? HOUSEHOLDER_GATE_NONE
                     : args.gate_width == 1 ? HOUSEHOLDER_GATE_HEAD
                                            : HOUSEHOLDER_GATE_CHANNEL;
    with_constant<HOUSEHOLDER_GATE_NONE, HOUSEHOLDER_GATE_HEAD, HOUSEHOLDER_GATE_CHANNEL>(
            gate, [&](auto g) {
                with_constant<false, true>(args.r.data != nullptr, [&](auto rw) {
                    launch_tiles<DK>(launch,
                            householder_step<DK, decltype(g)::value, decltype(rw)::value>, args,
                            n_seqs);
                });
            });
}

static inline int householder_form(const struct ggml_tensor * op) {
    return op->src[HOUSEHOLDER_SRC_R] != nullptr ? CHUNK_RANK_ONE : CHUNK_DELTA;
}

static inline bool householder_gate_has_channels(const struct ggml_tensor * op) {
    const struct ggml_tensor * gate = op->src[HOUSEHOLDER_SRC_GATE];
    return gate != nullptr && gate->ne[0] > 1;
}

// r and w without a gate per channel, which no family has, are only computed step by step.
static inline struct path_choice householder_choose(
        const struct ggml_tensor * op, const struct path_gpu & gpu) {
    const int            form = householder_form(op);
    const bool           channel = householder_gate_has_channels(op);
    const enum path_kind kind = form == CHUNK_RANK_ONE ? PATH_RANK_ONE
                                : channel              ? PATH_DELTA_CHANNEL
                                                       : PATH_DELTA;
    const bool can = chunk_fits(ggml_scan_dims_get(op)) && (channel || form != CHUNK_RANK_ONE);
    return chunk_choose(op, can, kind, form, gpu);
}

// Floats of work buffer that a node needs; the step kernel needs none
static inline int64_t householder_work_floats(
        const struct ggml_tensor * op, const struct path_gpu & gpu) {
    return householder_choose(op, gpu).chunk
                   ? chunk_work_floats(ggml_scan_dims_get(op), householder_form(op),
                             householder_gate_has_channels(op))
                   : 0;
}

// work: householder_work_floats floats
template <typename Launch>
static void launch_householder(const struct ggml_tensor * dst, const struct path_gpu & gpu,
        float * work, Launch && launch) {
    const struct path_choice   choice = householder_choose(dst, gpu);
    const struct scan_dims     dims = ggml_scan_dims_get(dst);
    const struct ggml_tensor * gate = dst->src[HOUSEHOLDER_SRC_GATE];

    householder_cuda_args args;
    args.batch = cuda_batch_of(dst);
    args.q = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_Q], dims.n_head);
    args.k = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_K], dims.n_head);
    args.v = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_V], dims.n_head);
    args.beta = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_BETA], dims.n_head);
    args.gate = cuda_rows_of(gate, dims.n_head);
    args.r = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_R], dims.n_head);
    args.w = cuda_rows_of(dst->src[HOUSEHOLDER_SRC_W], dims.n_head);
    args.n_h = (int) dims.n_h;
    args.gate_width = gate == nullptr ? 0 : (int) gate->ne[0];
    args.scale = ggml_scan_params_get(dst).scale;
    args.out = (float *) dst->data;

    householder_cuda_args chunk = args;
    chunk_divide(choice, &args.batch, &chunk.batch);
    if (choice.chunk) {
        const cuda_rows none = cuda_rows_of(nullptr, dims.n_head);
        if (chunk.r.data != nullptr) {
            chunk.n_h = 2; // w and k
            launch_chunk<CHUNK_RANK_ONE>(launch, chunk, none, none, dims.n_seqs, work);
        } else {
            launch_chunk<CHUNK_DELTA>(launch, chunk, none, none, dims.n_seqs, work);
        }
    }
    if (choice.step) {
        const bool step = with_instance(dims.d_k, [&](auto size) {
            launch_householder_step<decltype(size)::value>(launch, args, dims.n_seqs);
        });
        if (!step) {
            launch_plain(launch, householder_plain, args, dims.n_seqs);
        }
    }
}
