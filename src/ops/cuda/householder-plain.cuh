#pragma once

// Householder scan of any size, one column per thread (plain-column.cuh). The equations are those
// of householder-step.cuh.

#include "householder-step.cuh"
#include "plain-column.cuh"

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
