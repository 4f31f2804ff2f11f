// The equations of lrnn-ops.h, line by line, in plain F32. Nothing here is fast: the tests compare
// the other kernels with this file.

#include "scan-cpu.h"

// Σ_i S[i][j] x[i]
static float column_dot(const float * S, const float * x, int64_t d_k, int64_t d_v, int64_t j) {
    float sum = 0.0f;
    for (int64_t i = 0; i < d_k; ++i) {
        sum += S[i * d_v + j] * x[i];
    }
    return sum;
}

void householder_reference(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct scan_dims dims = ggml_scan_dims_get(dst);
    const float            scale = ggml_scan_params_get(dst).scale;
    const int64_t          d_k = dims.d_k;
    const int64_t          d_v = dims.d_v;

    const struct tokens Q = tokens_of(dst->src[HOUSEHOLDER_SRC_Q], dims.n_head);
    const struct tokens K = tokens_of(dst->src[HOUSEHOLDER_SRC_K], dims.n_head);
    const struct tokens V = tokens_of(dst->src[HOUSEHOLDER_SRC_V], dims.n_head);
    const struct tokens BETA = tokens_of(dst->src[HOUSEHOLDER_SRC_BETA], dims.n_head);
    const struct tokens GATE = tokens_of(dst->src[HOUSEHOLDER_SRC_GATE], dims.n_head);
    const struct tokens R = tokens_of(dst->src[HOUSEHOLDER_SRC_R], dims.n_head);
    const struct tokens W = tokens_of(dst->src[HOUSEHOLDER_SRC_W], dims.n_head);
    const bool gate_channel = GATE.data != NULL && dst->src[HOUSEHOLDER_SRC_GATE]->ne[0] == d_k;

    float * S = (float *) params->wdata + params->ith * (dims.head_size + d_v); // [d_k][d_v]
    float * u = S + dims.head_size;                                             // [d_v]

    for (int64_t sh = params->ith; sh < dims.n_seqs * dims.n_head; sh += params->nth) {
        const int64_t   h = sh % dims.n_head;
        struct scan_seq seq;
        if (!scan_seq_read(dst, &dims, sh / dims.n_head, h == 0, &seq)) {
            continue;
        }
        state_begin(dst, &dims, &seq, h, S);

        for (int64_t n = 0; n < seq.count; ++n) {
            const int64_t t = seq.first + n;
            state_store(dst, &dims, &seq, h, n, S);

            if (R.data != NULL) { // u = Sᵀ r
                for (int64_t j = 0; j < d_v; ++j) {
                    u[j] = column_dot(S, tokens_row(&R, h, 0, t), d_k, d_v, j);
                }
            }
            if (GATE.data != NULL) { // S ← g ∘ S
                const float * g = tokens_row(&GATE, h, 0, t);
                for (int64_t i = 0; i < d_k; ++i) {
                    for (int64_t j = 0; j < d_v; ++j) {
                        S[i * d_v + j] *= g[gate_channel ? i : 0];
                    }
                }
            }
            if (R.data != NULL) { // S ← S − w uᵀ + k vᵀ
                const float * w = tokens_row(&W, h, 0, t);
                const float * k = tokens_row(&K, h, 0, t);
                const float * v = tokens_row(&V, h, 0, t);
                for (int64_t i = 0; i < d_k; ++i) {
                    for (int64_t j = 0; j < d_v; ++j) {
                        S[i * d_v + j] += k[i] * v[j] - w[i] * u[j];
                    }
                }
            } else {
                for (int64_t f = 0; f < dims.n_h; ++f) { // S ← S + β k (v − Sᵀ k)ᵀ
                    const float * k = tokens_row(&K, h, f, t);
                    const float * v = tokens_row(&V, h, f, t);
                    const float   beta = tokens_row(&BETA, h, f, t)[0];
                    for (int64_t j = 0; j < d_v; ++j) {
                        const float delta = beta * (v[j] - column_dot(S, k, d_k, d_v, j));
                        for (int64_t i = 0; i < d_k; ++i) {
                            S[i * d_v + j] += k[i] * delta;
                        }
                    }
                }
            }
            float * o = (float *) dst->data + (t * dims.n_head + h) * d_v; // o = scale · Sᵀ q
            for (int64_t j = 0; j < d_v; ++j) {
                o[j] = scale * column_dot(S, tokens_row(&Q, h, 0, t), d_k, d_v, j);
            }
        }
        state_store(dst, &dims, &seq, h, seq.count, S);
    }
}

// A_t[i][j] of every kind except mLSTM
static float transition(const struct scan_params * p, const struct ggml_tensor * A, int64_t h,
        int64_t n_head, const float * gate, int64_t i, int64_t j) {
    switch (p->kind) {
        case SIGNED_SCAN_HEAD: return gate[0];
        case SIGNED_SCAN_CHANNEL: return gate[i];
        case SIGNED_SCAN_ELEMENT:
        case SIGNED_SCAN_SCALAR: {
            const bool   element = p->kind == SIGNED_SCAN_ELEMENT;
            const char * base = (const char *) A->data + (h / (n_head / A->ne[2])) * A->nb[2];
            const float  a = *(const float *) (element ? base + i * A->nb[1] + j * A->nb[0] : base);
            const float  e = expf(gate[element ? j : 0] * a);
            return p->form == GGML_SIGNED_SCAN_EXP ? e : 2.0f * e - 1.0f;
        }
        default: return 1.0f;
    }
}

void signed_reference(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct scan_dims   dims = ggml_scan_dims_get(dst);
    const struct scan_params p = ggml_scan_params_get(dst);
    const int64_t            d_k = dims.d_k;
    const int64_t            d_v = dims.d_v;

    const bool ssm = p.kind == SIGNED_SCAN_ELEMENT || p.kind == SIGNED_SCAN_SCALAR;
    const bool mlstm = p.kind == SIGNED_SCAN_MLSTM;

    const struct ggml_tensor * A = ssm ? dst->src[SIGNED_SRC_AUX] : NULL;

    const struct tokens C = tokens_of(dst->src[SIGNED_SRC_C], dims.n_head);
    const struct tokens B = tokens_of(dst->src[SIGNED_SRC_B], dims.n_head);
    const struct tokens X = tokens_of(dst->src[SIGNED_SRC_X], dims.n_head);
    const struct tokens GATE = tokens_of(dst->src[SIGNED_SRC_GATE], dims.n_head); // gate, dt, log_f
    const struct tokens BONUS = tokens_of(p.bonus ? dst->src[SIGNED_SRC_AUX] : NULL, dims.n_head);
    const struct tokens LOG_I = tokens_of(mlstm ? dst->src[SIGNED_SRC_AUX] : NULL, dims.n_head);

    // [d_k][d_v]; mLSTM: then n [d_k], then m
    float * S = (float *) params->wdata + params->ith * dims.head_size;

    for (int64_t sh = params->ith; sh < dims.n_seqs * dims.n_head; sh += params->nth) {
        const int64_t   h = sh % dims.n_head;
        struct scan_seq seq;
        if (!scan_seq_read(dst, &dims, sh / dims.n_head, h == 0, &seq)) {
            continue;
        }
        state_begin(dst, &dims, &seq, h, S);

        for (int64_t n = 0; n < seq.count; ++n) {
            const int64_t t = seq.first + n;
            const float * c = tokens_row(&C, h, 0, t);
            const float * b = tokens_row(&B, h, 0, t);
            const float * x = tokens_row(&X, h, 0, t);
            const float * gate = GATE.data != NULL ? tokens_row(&GATE, h, 0, t) : NULL;
            float *       y = (float *) dst->data + (t * dims.n_head + h) * d_v;
            state_store(dst, &dims, &seq, h, n, S);

            if (mlstm) {
                float *     norm = S + d_k * d_v;
                float *     m = norm + d_k;
                const float log_i = tokens_row(&LOG_I, h, 0, t)[0];
                const float m_new = fmaxf(gate[0] + *m, log_i);

                // in double: f' compensates the rounding of m'; in F32 a difference of 70 has an
                // error of 4e-6, which i' would inherit
                const float f = (float) exp((double) gate[0] + (double) *m - (double) m_new);
                const float in = (float) exp((double) log_i - (double) m_new);

                *m = m_new;
                float nc = 0.0f;
                for (int64_t i = 0; i < d_k; ++i) {
                    norm[i] = f * norm[i] + in * b[i]; // n ← f n + i b
                    nc += norm[i] * c[i];
                    for (int64_t j = 0; j < d_v; ++j) {
                        S[i * d_v + j] = f * S[i * d_v + j] + in * b[i] * x[j]; // S ← f S + i b xᵀ
                    }
                }
                const float den = fmaxf(fabsf(p.scale * nc), expf(-m_new)) + p.eps;
                for (int64_t j = 0; j < d_v; ++j) {
                    y[j] = p.scale * column_dot(S, c, d_k, d_v, j) / den;
                }
                continue;
            }

            if (p.bonus) { // before the update: y = scale · (S + (bonus ∘ b) xᵀ)ᵀ c
                const float * u = tokens_row(&BONUS, h, 0, 0);
                for (int64_t j = 0; j < d_v; ++j) {
                    float sum = 0.0f;
                    for (int64_t i = 0; i < d_k; ++i) {
                        sum += (S[i * d_v + j] + u[i] * b[i] * x[j]) * c[i];
                    }
                    y[j] = p.scale * sum;
                }
            }
            for (int64_t i = 0; i < d_k; ++i) { // S ← A ∘ S + b xᵀ; with dt and A: + b (dt ∘ x)ᵀ
                for (int64_t j = 0; j < d_v; ++j) {
                    const float dt = ssm ? gate[p.kind == SIGNED_SCAN_ELEMENT ? j : 0] : 1.0f;
                    S[i * d_v + j] =
                            transition(&p, A, h, dims.n_head, gate, i, j) * S[i * d_v + j] +
                            b[i] * (dt * x[j]);
                }
            }
            if (!p.bonus) { // y = scale · Sᵀ c
                for (int64_t j = 0; j < d_v; ++j) {
                    y[j] = p.scale * column_dot(S, c, d_k, d_v, j);
                }
            }
        }
        state_store(dst, &dims, &seq, h, seq.count, S);
    }
}
