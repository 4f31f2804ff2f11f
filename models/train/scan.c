// The recurrent parts of the trained models, forward and backward, in F32. layers.py calls them
// through ctypes.
//
//   delta_*   generalized Householder factors with a gate: DeltaNet, (Gated) DeltaProduct
//   ssm_*     diagonal gates, unsigned or signed: Mamba
//   slstm_*   gates that see the last output: sLSTM
//   conv_*    causal depthwise convolution and SiLU: all of them
//
// The models are so small that a plain loop over time is faster than chunked matrix products: the
// state stays in the cache. Arrays are dense, with the last index fastest. Gradients of parameters
// that all sequences share (dw, db, dA, dR) are accumulated; others are overwritten.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// Steps between the states that delta_forward keeps for delta_backward.
#define STRIDE 16

#define L2_EPS 1e-6f

INLINE float dot(const float * restrict x, const float * restrict y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) {
        sum += x[i] * y[i];
    }
    return sum;
}

INLINE void add_scaled(float * restrict y, float a, const float * restrict x, int n) {
    for (int i = 0; i < n; ++i) {
        y[i] += a * x[i];
    }
}

// y = x r, r = 1 / sqrt(|x|^2 + eps)
INLINE float l2_norm(float * restrict y, const float * restrict x, int n) {
    const float r = 1.0f / sqrtf(dot(x, x, n) + L2_EPS);
    for (int i = 0; i < n; ++i) {
        y[i] = x[i] * r;
    }
    return r;
}

// dx = r (dy - y (y . dy))
INLINE void l2_norm_backward(
        float * restrict dx, const float * restrict y, const float * restrict dy, float r, int n) {
    const float c = dot(y, dy, n);
    for (int i = 0; i < n; ++i) {
        dx[i] = r * (dy[i] - y[i] * c);
    }
}

struct delta_shape {
    int n_seq, n_step, n_head, n_factor, K, P;
};

// S[K][P], u[P]: one factor
//   u = beta (v - S^T k),  S = S + k u^T
INLINE void delta_factor(float * restrict S, float * restrict u, const float * restrict k,
        const float * restrict v, float beta, int K, int P) {
    float r[P];
    memset(r, 0, sizeof(r));
    for (int i = 0; i < K; ++i) {
        add_scaled(r, k[i], S + i * P, P);
    }
    for (int p = 0; p < P; ++p) {
        u[p] = beta * (v[p] - r[p]);
    }
    for (int i = 0; i < K; ++i) {
        add_scaled(S + i * P, k[i], u, P);
    }
}

// One head of one sequence. Factor j of step t has index t n_factor + j; consecutive factors are
// n_head rows apart.
//   S = exp(g) S;  every factor as above, k = l2(k);  o = S^T l2(q) / sqrt(K)
INLINE void delta_forward_head(const struct delta_shape * s, const float * q, const float * k,
        const float * v, const float * beta, const float * g, float * o, float * u, float * kept,
        int K, int P) {
    const int H = s->n_head;
    float     S[K * P], kn[K], qn[K];
    memset(S, 0, sizeof(S));
    for (int t = 0; t < s->n_step; ++t) {
        if (t % STRIDE == 0) {
            memcpy(kept + (size_t) (t / STRIDE) * K * P, S, sizeof(S));
        }
        if (g) {
            const float a = expf(g[t * H]);
            for (int i = 0; i < K * P; ++i) {
                S[i] *= a;
            }
        }
        for (int j = 0; j < s->n_factor; ++j) {
            const int f = (t * s->n_factor + j) * H;
            l2_norm(kn, k + f * K, K);
            delta_factor(S, u + f * P, kn, v + f * P, beta[f], K, P);
        }
        l2_norm(qn, q + t * H * K, K);
        float r[P];
        memset(r, 0, sizeof(r));
        for (int i = 0; i < K; ++i) {
            add_scaled(r, qn[i], S + i * P, P);
        }
        const float scale = 1.0f / sqrtf((float) K);
        for (int p = 0; p < P; ++p) {
            o[t * H * P + p] = scale * r[p];
        }
    }
}

// Recomputes the states from the kept ones, STRIDE steps at a time. A step has n_factor + 1 states:
// after the gate, and after each factor. G is the gradient of the state after a factor, S the state
// before it:
//   du = G^T k;  dbeta = du . (v - S^T k);  dv = beta du;  dk = G u - S dv;  G = G - k dv^T
// and of a gate:  dg = <G, exp(g) S>,  G = exp(g) G
INLINE void delta_backward_head(const struct delta_shape * s, const float * q, const float * k,
        const float * v, const float * beta, const float * g, const float * u, const float * kept,
        const float * d_o, float * dq, float * dk, float * dv, float * dbeta, float * dg,
        float * all, int K, int P) {
    const int   H = s->n_head;
    const int   n = s->n_factor;
    const float scale = 1.0f / sqrtf((float) K);
    const int   size = K * P;
    float       G[size], kn[K], dkn[K], du[P];
    memset(G, 0, sizeof(G));

    for (int first = (s->n_step - 1) / STRIDE * STRIDE; first >= 0; first -= STRIDE) {
        const int     last = first + STRIDE < s->n_step ? first + STRIDE : s->n_step; // exclusive
        const float * S = kept + (size_t) (first / STRIDE) * size;
        float *       next = all;
        for (int t = first; t < last; ++t) {
            const float a = g ? expf(g[t * H]) : 1.0f;
            for (int i = 0; i < size; ++i) {
                next[i] = a * S[i];
            }
            for (int j = 0; j < n; ++j) {
                const int f = (t * n + j) * H;
                l2_norm(kn, k + f * K, K);
                const float * before = next;
                next += size;
                for (int i = 0; i < K; ++i) {
                    for (int p = 0; p < P; ++p) {
                        next[i * P + p] = before[i * P + p] + kn[i] * u[f * P + p];
                    }
                }
            }
            S = next;
            next += size;
        }

        for (int t = last - 1; t >= first; --t) {
            // the n + 1 states of this step
            const float * at = all + (size_t) (t - first) * (n + 1) * size;
            const float * go = d_o + t * H * P;
            const float * end = at + n * size;
            const float   r = l2_norm(kn, q + t * H * K, K);
            for (int i = 0; i < K; ++i) {
                dkn[i] = scale * dot(end + i * P, go, P);
                add_scaled(G + i * P, scale * kn[i], go, P);
            }
            l2_norm_backward(dq + t * H * K, kn, dkn, r, K);

            for (int j = n - 1; j >= 0; --j) {
                const int     f = (t * n + j) * H;
                const float * Sj = at + j * size;
                const float * uf = u + f * P;
                const float   rk = l2_norm(kn, k + f * K, K);
                float *       dvf = dv + f * P;
                float         Sk[P];
                memset(du, 0, sizeof(du));
                memset(Sk, 0, sizeof(Sk));
                for (int i = 0; i < K; ++i) {
                    dkn[i] = dot(G + i * P, uf, P);
                    add_scaled(du, kn[i], G + i * P, P);
                    add_scaled(Sk, kn[i], Sj + i * P, P);
                }
                float db = 0.0f;
                for (int p = 0; p < P; ++p) {
                    db += du[p] * (v[f * P + p] - Sk[p]);
                    dvf[p] = beta[f] * du[p];
                }
                dbeta[f] = db;
                for (int i = 0; i < K; ++i) {
                    dkn[i] -= dot(Sj + i * P, dvf, P);
                    add_scaled(G + i * P, -kn[i], dvf, P);
                }
                l2_norm_backward(dk + f * K, kn, dkn, rk, K);
            }
            if (g) {
                dg[t * H] = dot(G, at, size);
                const float a = expf(g[t * H]);
                for (int i = 0; i < size; ++i) {
                    G[i] *= a;
                }
            }
        }
    }
}

// Common widths are constants, so that the compiler keeps rows of the state in registers.
#define BY_WIDTH(call)                    \
    switch (s->K == s->P ? s->P : 0) {    \
        case 8: {                         \
            enum { K = 8, P = 8 };        \
            call;                         \
            break;                        \
        }                                 \
        case 16: {                        \
            enum { K = 16, P = 16 };      \
            call;                         \
            break;                        \
        }                                 \
        case 32: {                        \
            enum { K = 32, P = 32 };      \
            call;                         \
            break;                        \
        }                                 \
        case 64: {                        \
            enum { K = 64, P = 64 };      \
            call;                         \
            break;                        \
        }                                 \
        default: {                        \
            const int K = s->K, P = s->P; \
            call;                         \
            break;                        \
        }                                 \
    }

int delta_kept_states(int n_step) {
    return (n_step + STRIDE - 1) / STRIDE;
}

// q[seq][step][head][K]  k[seq][step][factor][head][K]  v[..][P]  beta[seq][step][factor][head]
// g[seq][step][head] or NULL  o[seq][step][head][P]  u as v
// kept[seq][head][delta_kept_states][K][P]
void delta_forward(const struct delta_shape * s, const float * q, const float * k, const float * v,
        const float * beta, const float * g, float * o, float * u, float * kept) {
    const size_t steps = (size_t) s->n_step * s->n_head;
    for (int b = 0; b < s->n_seq; ++b) {
        for (int h = 0; h < s->n_head; ++h) {
            const size_t at = b * steps + h, fat = b * steps * s->n_factor + h;
            float * kept_bh = kept + ((size_t) b * s->n_head + h) * delta_kept_states(s->n_step) *
                                             s->K * s->P;
            BY_WIDTH(delta_forward_head(s, q + at * K, k + fat * K, v + fat * P, beta + fat,
                    g ? g + at : NULL, o + at * P, u + fat * P, kept_bh, K, P))
        }
    }
}

// Returns 0, or -1 if out of memory.
int delta_backward(const struct delta_shape * s, const float * q, const float * k, const float * v,
        const float * beta, const float * g, const float * u, const float * kept, const float * d_o,
        float * dq, float * dk, float * dv, float * dbeta, float * dg) {
    float * all = malloc(sizeof(float) * STRIDE * (s->n_factor + 1) * s->K * s->P);
    if (!all) {
        return -1;
    }
    const size_t steps = (size_t) s->n_step * s->n_head;
    for (int b = 0; b < s->n_seq; ++b) {
        for (int h = 0; h < s->n_head; ++h) {
            const size_t  at = b * steps + h, fat = b * steps * s->n_factor + h;
            const float * kept_bh = kept + ((size_t) b * s->n_head + h) *
                                                   delta_kept_states(s->n_step) * s->K * s->P;
            BY_WIDTH(delta_backward_head(s, q + at * K, k + fat * K, v + fat * P, beta + fat,
                    g ? g + at : NULL, u + fat * P, kept_bh, d_o + at * P, dq + at * K,
                    dk + fat * K, dv + fat * P, dbeta + fat, g ? dg + at : NULL, all, K, P))
        }
    }
    free(all);
    return 0;
}

struct ssm_shape {
    int n_seq, n_step, E, N;
    int is_signed;
};

// h = a h + dt B x,  a = exp(dt A), signed: 2 exp(dt A) - 1;  y = C . h
// x, dt, y[seq][step][E]  A[E][N] (negative)  B, C[seq][step][N]
void ssm_forward(const struct ssm_shape * s, const float * x, const float * dt, const float * A,
        const float * B, const float * C, float * y) {
    const int   E = s->E, N = s->N;
    const float stretch = s->is_signed ? 2.0f : 1.0f;
    float       h[N];
    for (int b = 0; b < s->n_seq; ++b) {
        for (int e = 0; e < E; ++e) {
            memset(h, 0, sizeof(h));
            for (int t = 0; t < s->n_step; ++t) {
                const size_t at = ((size_t) b * s->n_step + t);
                const float  d = dt[at * E + e], dx = d * x[at * E + e];
                float        sum = 0.0f;
                for (int n = 0; n < N; ++n) {
                    h[n] = (stretch * expf(d * A[e * N + n]) - (stretch - 1.0f)) * h[n] +
                           dx * B[at * N + n];
                    sum += C[at * N + n] * h[n];
                }
                y[at * E + e] = sum;
            }
        }
    }
}

// Returns 0, or -1 if out of memory. dA is accumulated; dB and dC must be zero on entry.
int ssm_backward(const struct ssm_shape * s, const float * x, const float * dt, const float * A,
        const float * B, const float * C, const float * dy, float * dx, float * ddt, float * dA,
        float * dB, float * dC) {
    const int   E = s->E, N = s->N, T = s->n_step;
    const float stretch = s->is_signed ? 2.0f : 1.0f;
    float *     h = malloc(sizeof(float) * (size_t) (T + 1) * N); // h[t] before step t
    float *     ex = malloc(sizeof(float) * (size_t) T * N);      // exp(dt A)
    if (!h || !ex) {
        free(h);
        free(ex);
        return -1;
    }
    float G[N];
    for (int b = 0; b < s->n_seq; ++b) {
        for (int e = 0; e < E; ++e) {
            memset(h, 0, sizeof(float) * N);
            for (int t = 0; t < T; ++t) {
                const size_t at = (size_t) b * T + t;
                const float  d = dt[at * E + e], in = d * x[at * E + e];
                for (int n = 0; n < N; ++n) {
                    const float w = expf(d * A[e * N + n]);
                    ex[t * N + n] = w;
                    h[(t + 1) * N + n] =
                            (stretch * w - (stretch - 1.0f)) * h[t * N + n] + in * B[at * N + n];
                }
            }
            memset(G, 0, sizeof(G));
            for (int t = T - 1; t >= 0; --t) {
                const size_t at = (size_t) b * T + t;
                const float  d = dt[at * E + e], xe = x[at * E + e], gy = dy[at * E + e];
                float        din = 0.0f, dd = 0.0f;
                for (int n = 0; n < N; ++n) {
                    const float w = ex[t * N + n];
                    G[n] += gy * C[at * N + n];
                    dC[at * N + n] += gy * h[(t + 1) * N + n];
                    dB[at * N + n] += G[n] * d * xe;
                    din += G[n] * B[at * N + n];
                    const float dw = G[n] * h[t * N + n] * stretch * w; // by dt A
                    dd += dw * A[e * N + n];
                    dA[e * N + n] += dw * d;
                    G[n] *= stretch * w - (stretch - 1.0f);
                }
                dx[at * E + e] = din * d;
                ddt[at * E + e] = dd + din * xe;
            }
        }
    }
    free(h);
    free(ex);
    return 0;
}

struct slstm_shape {
    int n_seq, n_step, n_head, d;
};

// One head of one sequence. The four gates i, f, z, o of a step are n_head d apart in x.
//   (i, f, z, o) = x + R y;  m' = max(i, log s(f) + m), s the sigmoid; m' = i in the first step
//   i' = exp(i - m'),  f' = exp(log s(f) + m - m');  c = f' c + i' tanh z,  n = f' n + i'
//   y  = s(o) c / n
// kept, for the backward pass: i', f', tanh z, s(o) and s(-f), n_head d apart.
INLINE void slstm_forward_head(const struct slstm_shape * s, const float * x, const float * R,
        float * y, float * c, float * n, float * kept, int d) {
    const int D = s->n_head * d;
    float     m[d], raw[4 * d];
    memset(m, 0, sizeof(m));
    for (int t = 0; t < s->n_step; ++t) {
        for (int g = 0; g < 4; ++g) {
            memcpy(raw + g * d, x + g * D, sizeof(float) * d);
        }
        for (int i = 0; t > 0 && i < d; ++i) {
            add_scaled(raw, y[i - D], R + i * 4 * d, 4 * d);
        }
        for (int i = 0; i < d; ++i) {
            const float fr = raw[d + i];
            const float log_f = (fr < 0.0f ? fr : 0.0f) - log1pf(expf(-fabsf(fr)));
            const float before = log_f + m[i];
            const float after = t == 0 || raw[i] > before ? raw[i] : before;
            const float ig = expf(raw[i] - after);
            const float fg = t == 0 ? 0.0f : expf(before - after);
            const float z = tanhf(raw[2 * d + i]);
            const float o = 1.0f / (1.0f + expf(-raw[3 * d + i]));
            c[i] = ig * z + (t == 0 ? 0.0f : fg * c[i - D]);
            n[i] = ig + (t == 0 ? 0.0f : fg * n[i - D]);
            y[i] = o * c[i] / n[i];
            m[i] = after;
            kept[i] = ig;
            kept[D + i] = fg;
            kept[2 * D + i] = z;
            kept[3 * D + i] = o;
            kept[4 * D + i] = 1.0f / (1.0f + expf(fr));
        }
        x += 4 * D;
        y += D;
        c += D;
        n += D;
        kept += 5 * D;
    }
}

// y does not depend on m, which scales c and n alike, so m is a constant here.
INLINE void slstm_backward_head(const struct slstm_shape * s, const float * R, const float * y,
        const float * c, const float * n, const float * kept, const float * dy, float * dx,
        float * dR, int d) {
    const int D = s->n_head * d;
    float     dc[d], dn[d], back[d], raw[4 * d]; // back: of y, from the step after
    memset(dc, 0, sizeof(dc));
    memset(dn, 0, sizeof(dn));
    memset(back, 0, sizeof(back));
    for (int t = s->n_step - 1; t >= 0; --t) {
        const size_t  at = (size_t) t * D;
        const float * k = kept + 5 * at;
        for (int i = 0; i < d; ++i) {
            const float ig = k[i], fg = k[D + i], z = k[2 * D + i], o = k[3 * D + i];
            const float ct = c[at + i], nt = n[at + i], h = ct / nt;
            const float c0 = t == 0 ? 0.0f : c[at + i - D], n0 = t == 0 ? 0.0f : n[at + i - D];
            const float gy = dy[at + i] + back[i];
            dc[i] += gy * o / nt;
            dn[i] -= gy * o * h / nt;
            raw[i] = (dc[i] * z + dn[i]) * ig;
            raw[d + i] = (dc[i] * c0 + dn[i] * n0) * fg * k[4 * D + i];
            raw[2 * d + i] = dc[i] * ig * (1.0f - z * z);
            raw[3 * d + i] = gy * h * o * (1.0f - o);
            dc[i] *= fg;
            dn[i] *= fg;
        }
        for (int g = 0; g < 4; ++g) {
            memcpy(dx + 4 * at + g * D, raw + g * d, sizeof(float) * d);
        }
        for (int i = 0; t > 0 && i < d; ++i) {
            back[i] = dot(R + i * 4 * d, raw, 4 * d);
            add_scaled(dR + i * 4 * d, y[at + i - D], raw, 4 * d);
        }
    }
}

// x[seq][step][4][head][d] with the bias  R[head][d][4][d], the input first
// y, c, n[seq][step][head][d]  kept[seq][step][5][head][d]
void slstm_forward(const struct slstm_shape * s, const float * x, const float * R, float * y,
        float * c, float * n, float * kept) {
    for (int b = 0; b < s->n_seq; ++b) {
        for (int h = 0; h < s->n_head; ++h) {
            const int    d = s->d;
            const size_t at = (size_t) b * s->n_step * s->n_head * d, to = at + h * d;
            slstm_forward_head(s, x + 4 * at + h * d, R + h * 4 * d * d, y + to, c + to, n + to,
                    kept + 5 * at + h * d, d);
        }
    }
}

void slstm_backward(const struct slstm_shape * s, const float * R, const float * y, const float * c,
        const float * n, const float * kept, const float * dy, float * dx, float * dR) {
    for (int b = 0; b < s->n_seq; ++b) {
        for (int h = 0; h < s->n_head; ++h) {
            const int    d = s->d;
            const size_t at = (size_t) b * s->n_step * s->n_head * d, to = at + h * d;
            slstm_backward_head(s, R + h * 4 * d * d, y + to, c + to, n + to, kept + 5 * at + h * d,
                    dy + to, dx + 4 * at + h * d, dR + h * 4 * d * d, d);
        }
    }
}

struct conv_shape {
    int n_seq, n_step, C, W;
};

INLINE void conv_row(float * restrict z, const struct conv_shape * s, const float * restrict x,
        const float * restrict w, const float * restrict bias, int t) {
    const int C = s->C;
    for (int c = 0; c < C; ++c) {
        z[c] = bias ? bias[c] : 0.0f;
    }
    for (int j = 0; j < s->W; ++j) {
        const int from = t - s->W + 1 + j;
        if (from >= 0) {
            for (int c = 0; c < C; ++c) {
                z[c] += w[j * C + c] * x[(size_t) from * C + c];
            }
        }
    }
}

// y[t] = silu(z),  z = bias + sum_j w[j] x[t - W + 1 + j]
// x, y[seq][step][C]  w[W][C]  bias[C] or NULL
void conv_forward(const struct conv_shape * s, const float * x, const float * w, const float * bias,
        float * y) {
    const int C = s->C;
    for (int b = 0; b < s->n_seq; ++b) {
        const size_t at = (size_t) b * s->n_step * C;
        for (int t = 0; t < s->n_step; ++t) {
            float * restrict yt = y + at + (size_t) t * C;
            conv_row(yt, s, x + at, w, bias, t);
            for (int c = 0; c < C; ++c) {
                yt[c] = yt[c] / (1.0f + expf(-yt[c]));
            }
        }
    }
}

// dx must be zero on entry; dw and dbias are accumulated.
void conv_backward(const struct conv_shape * s, const float * x, const float * w,
        const float * bias, const float * dy, float * dx, float * dw, float * dbias) {
    const int C = s->C;
    float     z[C];
    for (int b = 0; b < s->n_seq; ++b) {
        const size_t at = (size_t) b * s->n_step * C;
        for (int t = 0; t < s->n_step; ++t) {
            const float * restrict gy = dy + at + (size_t) t * C;
            conv_row(z, s, x + at, w, bias, t);
            for (int c = 0; c < C; ++c) {
                const float sig = 1.0f / (1.0f + expf(-z[c]));
                z[c] = gy[c] * sig * (1.0f + z[c] * (1.0f - sig));
            }
            for (int j = 0; j < s->W; ++j) {
                const int from = t - s->W + 1 + j;
                if (from >= 0) {
                    const float * restrict xf = x + at + (size_t) from * C;
                    float * restrict dxf = dx + at + (size_t) from * C;
                    float * restrict dwj = dw + j * C;
                    const float * restrict wj = w + j * C;
                    for (int c = 0; c < C; ++c) {
                        dwj[c] += z[c] * xf[c];
                        dxf[c] += z[c] * wj[c];
                    }
                }
            }
            if (bias) {
                for (int c = 0; c < C; ++c) {
                    dbias[c] += z[c];
                }
            }
        }
    }
}
