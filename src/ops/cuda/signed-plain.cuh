#pragma once

// Signed-gate scan of any size, one column per thread (plain-column.cuh). The equations are those
// of signed-step.cuh.

#include "plain-column.cuh"
#include "signed-step.cuh"

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
