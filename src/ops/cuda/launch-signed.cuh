#pragma once

// GGML_OP_SIGNED_SCAN: from the node to its kernels.

#include "launch-chunk.cuh"
#include "plain-column.cuh"
#include "signed-step.cuh"

// The gates of Mamba-2 for the chunk path: exp(dt A), or 2 exp(dt A) − 1, and f_t = dt. The chunk
// kernels find them as a gate per head and a multiplier of x_t.
enum { CHUNK_GATE_THREADS = 64 };

struct signed_chunk_gates_args {
    signed_cuda_args scan;
    float *          gate; // [heads][tokens]
    float *          in;   // [heads][tokens]   f
};

// grid: (tokens / CHUNK_GATE_THREADS, heads), block: CHUNK_GATE_THREADS
static __global__ void __launch_bounds__(CHUNK_GATE_THREADS)
        signed_chunk_gates(const signed_chunk_gates_args a) {
    const signed_cuda_args & s = a.scan;
    cuda_wait();

    const int     h = (int) blockIdx.y;
    const int64_t t = (int64_t) blockIdx.x * CHUNK_GATE_THREADS + threadIdx.x;
    if (t < s.batch.n_tokens) {
        const float dt = cuda_row(s.gate, h, 0, t)[0];
        const float A = s.A[(h / s.A_share) * s.A_head];

        a.gate[h * s.batch.n_tokens + t] = signed_decay(dt, A, s.two_exp_m1);
        a.in[h * s.batch.n_tokens + t] = dt;
    }
}

// The scan of any size, one column per thread (plain-column.cuh). The equations are those of
// signed-step.cuh.
//
// grid: (sequences · heads, groups of columns), block: any
static __global__ void signed_plain(const signed_cuda_args a) {
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
    const bool mlstm = a.kind == SIGNED_SCAN_MLSTM;
    const bool bonus = a.aux.data != nullptr && !mlstm;

    plain_column C;
    C.begin(b, seq, h, j);
    C.store(b, seq, h, j, 0);

    for (int64_t n = 0; n < seq.count; ++n) {
        const int64_t t = seq.first + n;
        const float * c = cuda_row(a.c, h, 0, t);
        const float * k = cuda_row(a.b, h, 0, t);
        const float * gate = a.gate.data != nullptr ? cuda_row(a.gate, h, 0, t) : nullptr;
        const float   x = cuda_row(a.x, h, 0, t)[j];
        float         in = 1.0f;
        float         A = 1.0f;
        float         y = 0.0f;

        if (bonus) { // before the update: y = Σ_i (S + (bonus ∘ b) xᵀ) c
            const float * u = cuda_row(a.aux, h, 0, 0);
            for (int i = 0; i < b.d_k; ++i) {
                y = fmaf(fmaf(u[i] * k[i], x, C.S[i * C.d_v]), c[i], y);
            }
        }
        switch (a.kind) {
            case SIGNED_SCAN_HEAD: A = gate[0]; break;
            case SIGNED_SCAN_ELEMENT: in = gate[j]; break;
            case SIGNED_SCAN_SCALAR:
                in = gate[0];
                A = signed_decay(in, a.A[(h / a.A_share) * a.A_head], a.two_exp_m1);
                break;
            case SIGNED_SCAN_MLSTM:
                A = gate[0];
                in = cuda_row(a.aux, h, 0, t)[0];
                break;
            default: break;
        }
        for (int i = 0; i < b.d_k; ++i) { // S ← A ∘ S + b (f ∘ x)ᵀ
            if (a.kind == SIGNED_SCAN_CHANNEL) {
                A = gate[i];
            } else if (a.kind == SIGNED_SCAN_ELEMENT) {
                A = signed_decay(in, a.A[(h / a.A_share) * a.A_head + i * a.A_row + j * a.A_col],
                        a.two_exp_m1);
            }
            C.S[i * C.d_v] = fmaf(k[i], in * x, A * C.S[i * C.d_v]);
        }
        if (!bonus) { // y = Sᵀ c
            y = C.dot(c);
        }
        y = a.scale * y;
        a.out[(t * b.n_head + h) * b.d_v + j] =
                mlstm ? __fdiv_rn(y, cuda_row(a.below, h, 0, t)[0]) : y;
        C.store(b, seq, h, j, n + 1);
    }
}

template <int DK, typename Launch>
static void launch_signed_step(
        Launch & launch, const signed_cuda_args & args, bool bonus, int64_t n_seqs) {
    if (args.kind == SIGNED_SCAN_ELEMENT) {
        launch_tiles<DK>(launch, signed_step<DK, SIGNED_MODE_ELEMENT, false>, args, n_seqs);
        return;
    }
    const int mode = args.kind == SIGNED_SCAN_CHANNEL ? SIGNED_MODE_CHANNEL : SIGNED_MODE_HEAD;
    with_constant<SIGNED_MODE_HEAD, SIGNED_MODE_CHANNEL>(mode, [&](auto m) {
        with_constant<false, true>(bonus, [&](auto b) {
            launch_tiles<DK>(
                    launch, signed_step<DK, decltype(m)::value, decltype(b)::value>, args, n_seqs);
        });
    });
}

// A transition per element (Mamba), and a bonus without a gate per channel, which no family has,
// are only computed step by step.
static inline struct path_choice signed_choose(
        const struct ggml_tensor * op, const struct path_gpu & gpu) {
    const struct scan_params p = ggml_scan_params_get(op);
    const bool               channel = p.kind == SIGNED_SCAN_CHANNEL;
    const bool can = chunk_fits(ggml_scan_dims_get(op)) && p.kind != SIGNED_SCAN_ELEMENT &&
                     (channel || !p.bonus);
    return chunk_choose(
            op, can, channel ? PATH_DIAGONAL_CHANNEL : PATH_DIAGONAL, CHUNK_DIAGONAL, gpu);
}

// Floats of work buffer that a node needs
static inline int64_t signed_work_floats(
        const struct ggml_tensor * op, const struct path_gpu & gpu) {
    const struct scan_dims dims = ggml_scan_dims_get(op);
    const int              kind = ggml_scan_params_get(op).kind;
    const bool             chunk = signed_choose(op, gpu).chunk;
    const int64_t          gates = kind == SIGNED_SCAN_MLSTM             ? 3
                                   : chunk && kind == SIGNED_SCAN_SCALAR ? 2
                                                                         : 0;
    return work_round(gates * dims.n_head * dims.n_tokens) +
           (chunk ? chunk_work_floats(dims, CHUNK_DIAGONAL, kind == SIGNED_SCAN_CHANNEL) : 0);
}

template <typename Launch>
static void launch_signed_chunk(
        Launch & launch, const signed_cuda_args & args, int64_t n_seqs, float * work) {
    const cuda_batch & b = args.batch;

    householder_cuda_args scan = {};
    scan.batch = b;
    scan.q = args.c;
    scan.k = args.b;
    scan.v = args.x;
    scan.gate = args.gate;
    scan.n_h = 1;
    scan.gate_width = args.kind == SIGNED_SCAN_NONE      ? 0
                      : args.kind == SIGNED_SCAN_CHANNEL ? b.d_k
                                                         : 1;
    scan.scale = args.scale;
    scan.out = args.out;

    if (args.kind == SIGNED_SCAN_MLSTM) {
        scan.beta = args.aux;
    } else if (args.kind == SIGNED_SCAN_SCALAR) {
        signed_chunk_gates_args gates;
        gates.scan = args;
        gates.gate = work;
        gates.in = gates.gate + b.n_head * b.n_tokens;
        work += work_round(2 * b.n_head * b.n_tokens);
        const int64_t blocks = (b.n_tokens + CHUNK_GATE_THREADS - 1) / CHUNK_GATE_THREADS;
        launch(signed_chunk_gates, dim3((unsigned) blocks, (unsigned) b.n_head),
                dim3(CHUNK_GATE_THREADS), gates);
        scan.gate = { gates.gate, b.n_tokens, 0, 1, 1, false };
        scan.beta = { gates.in, b.n_tokens, 0, 1, 1, false };
    }
    const cuda_rows none = cuda_rows_of(nullptr, b.n_head);
    launch_chunk<CHUNK_DIAGONAL>(launch, scan, args.kind == SIGNED_SCAN_CHANNEL ? args.aux : none,
            args.below, n_seqs, work);
}

// work: signed_work_floats floats
template <typename Launch>
static void launch_signed(const struct ggml_tensor * dst, const struct path_gpu & gpu, float * work,
        Launch && launch) {
    const struct path_choice   choice = signed_choose(dst, gpu);
    const struct scan_dims     dims = ggml_scan_dims_get(dst);
    const struct scan_params   params = ggml_scan_params_get(dst);
    const struct ggml_tensor * aux = dst->src[SIGNED_SRC_AUX];
    const bool                 mlstm = params.kind == SIGNED_SCAN_MLSTM;
    const bool ssm = params.kind == SIGNED_SCAN_ELEMENT || params.kind == SIGNED_SCAN_SCALAR;

    signed_cuda_args args;
    args.batch = cuda_batch_of(dst);
    args.c = cuda_rows_of(dst->src[SIGNED_SRC_C], dims.n_head);
    args.b = cuda_rows_of(dst->src[SIGNED_SRC_B], dims.n_head);
    args.x = cuda_rows_of(dst->src[SIGNED_SRC_X], dims.n_head);
    args.gate = cuda_rows_of(dst->src[SIGNED_SRC_GATE], dims.n_head);
    args.aux = cuda_rows_of(params.bonus || mlstm ? aux : nullptr, dims.n_head);
    args.A = ssm ? (const float *) aux->data : nullptr;
    args.A_col = ssm ? (int64_t) (aux->nb[0] / sizeof(float)) : 0;
    args.A_row = ssm ? (int64_t) (aux->nb[1] / sizeof(float)) : 0;
    args.A_head = ssm ? (int64_t) (aux->nb[2] / sizeof(float)) : 0;
    args.A_share = ssm ? (int) (dims.n_head / aux->ne[2]) : 1;
    args.kind = params.kind;
    args.two_exp_m1 = params.form == GGML_SIGNED_SCAN_TWO_EXP_M1;
    args.scale = params.scale;
    args.eps = params.eps;
    args.below = cuda_rows_of(nullptr, dims.n_head);
    args.mlstm = work;
    args.out = (float *) dst->data;

    if (mlstm) { // leaves gates and divisors in `work`
        launch(mlstm_normalize, dim3((unsigned) (dims.n_seqs * dims.n_head)), dim3(NORM_THREADS),
                args);
        const int64_t plane = dims.n_head * dims.n_tokens;
        args.gate = { work, dims.n_tokens, 0, 1, 1, false };
        args.aux = { work + plane, dims.n_tokens, 0, 1, 1, false };
        args.below = { work + 2 * plane, dims.n_tokens, 0, 1, 1, false };
        work += work_round(3 * plane);
    }
    signed_cuda_args chunk = args;
    chunk_divide(choice, &args.batch, &chunk.batch);
    if (choice.chunk) {
        launch_signed_chunk(launch, chunk, dims.n_seqs, work);
    }
    if (choice.step) {
        const bool step = with_instance(dims.d_k, [&](auto size) {
            launch_signed_step<decltype(size)::value>(launch, args, params.bonus != 0, dims.n_seqs);
        });
        if (!step) {
            launch_plain(launch, signed_plain, args, dims.n_seqs);
        }
    }
}
