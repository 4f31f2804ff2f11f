// The token path of the Householder scan: one token, whole rows of the state at a time.
//
//     S ← g ∘ S;   for each factor:  u = Sᵀ k,  δ = β (v − u),  S ← S + k δᵀ;   o = scale · Sᵀ q
//
// The operations and their order are those of householder-step.c, so results are bit-identical. The
// state is read once, then read and written once per factor. The gated state is not stored in
// between; the gate is applied a second time instead.

#include "householder.h"

// u, p and δ; with r and w also −u; each [d_v]
int64_t householder_token_size(const struct scan_dims * dims) {
    return 4 * dims->d_v;
}

struct rows {
    const float * in; // [d_k][d_v]
    float *       out;
    const float * g;       // [d_k] or [1]
    const float * k1, *d1; // the pending update S ← S + k1 d1ᵀ, [d_k] and [d_v]
    const float * k2, *d2; // and + k2 d2ᵀ
    const float * k;       // u = Sᵀ k
    const float * q;       // p = Sᵀ q
    float *       u, *p;
};

// The parts of a sweep. All fields are constants at every call.
struct parts {
    enum gate_kind gate;
    int            n_pend;     // pending updates; if not 0, the result is written
    bool           read_first; // sum u before the gate
    bool           read_k, read_q;
};

// n rows from row i, the vector of columns at c
SIMD_INLINE void sweep_cols(const struct rows * x, struct parts w, int64_t d_v, int64_t i, int n,
        int64_t c, int64_t cols) {
    const bool full = cols == VEC;
    vec        u = { 0.0f };
    vec        p = { 0.0f };
    if (w.read_k) {
        u = full ? vec_load(x->u + c) : vec_load_n(x->u + c, cols);
    }
    if (w.read_q) {
        p = full ? vec_load(x->p + c) : vec_load_n(x->p + c, cols);
    }
    for (int64_t r = i; r < i + n; ++r) {
        if (!w.n_pend && c % LINE == 0) { // the first sweep reads the state from memory
            __builtin_prefetch(x->in + (r + 4 * TOKEN_ROWS) * d_v + c);
        }
        vec s = full ? vec_load(x->in + r * d_v + c) : vec_load_n(x->in + r * d_v + c, cols);
        if (w.read_k && w.read_first) {
            u = vec_fma(vec_set1(x->k[r]), s, u);
        }
        if (w.gate != GATE_NONE) {
            s *= vec_set1(x->g[w.gate == GATE_CHANNEL ? r : 0]);
        }
        if (w.n_pend > 0) {
            s = vec_fma(vec_set1(x->k1[r]),
                    full ? vec_load(x->d1 + c) : vec_load_n(x->d1 + c, cols), s);
        }
        if (w.n_pend > 1) {
            s = vec_fma(vec_set1(x->k2[r]),
                    full ? vec_load(x->d2 + c) : vec_load_n(x->d2 + c, cols), s);
        }
        if (w.n_pend > 0) {
            if (full) {
                vec_store(x->out + r * d_v + c, s);
            } else {
                vec_store_n(x->out + r * d_v + c, s, cols);
            }
        }
        if (w.read_k && !w.read_first) {
            u = vec_fma(vec_set1(x->k[r]), s, u);
        }
        if (w.read_q) {
            p = vec_fma(vec_set1(x->q[r]), s, p);
        }
    }
    if (w.read_k) {
        vec_store_n(x->u + c, u, cols);
    }
    if (w.read_q) {
        vec_store_n(x->p + c, p, cols);
    }
}

SIMD_INLINE void sweep_rows(const struct rows * rows, struct parts w, const struct scan_dims * dims,
        const struct token * token) {
    const struct rows x = *rows;
    const int64_t     d_v = dims->d_v;
    int64_t           i = 0;

    // without sums, one row at a time is fastest
    const int step = w.read_k || w.read_q ? TOKEN_ROWS : 1;
    for (; i + step <= dims->d_k; i += step) {
        int64_t c = token->col0;
        for (; c + VEC <= token->col1; c += VEC) {
            sweep_cols(&x, w, d_v, i, step, c, VEC);
        }
        if (c < token->col1) {
            sweep_cols(&x, w, d_v, i, step, c, token->col1 - c);
        }
    }
    for (; i < dims->d_k; ++i) {
        for (int64_t c = token->col0; c < token->col1; c += VEC) {
            sweep_cols(&x, w, d_v, i, 1, c, token->col1 - c < VEC ? token->col1 - c : VEC);
        }
    }
}

// Makes the gate kind a constant.
SIMD_INLINE void sweep_gated(const struct rows * x, enum gate_kind gate, struct parts w,
        const struct scan_dims * dims, const struct token * token) {
    switch (gate) {
        case GATE_HEAD:
            w.gate = GATE_HEAD;
            sweep_rows(x, w, dims, token);
            break;
        case GATE_CHANNEL:
            w.gate = GATE_CHANNEL;
            sweep_rows(x, w, dims, token);
            break;
        default:
            w.gate = GATE_NONE;
            sweep_rows(x, w, dims, token);
            break;
    }
}

static void sweep(const struct rows * x, enum gate_kind gate, bool pend, bool last,
        const struct scan_dims * dims, const struct token * token) {
    if (pend) {
        if (last) {
            sweep_gated(x, gate, (struct parts) { .n_pend = 1, .read_k = true, .read_q = true },
                    dims, token);
        } else {
            sweep_gated(x, gate, (struct parts) { .n_pend = 1, .read_k = true, .read_q = false },
                    dims, token);
        }
    } else {
        if (last) {
            sweep_gated(x, gate, (struct parts) { .n_pend = 0, .read_k = true, .read_q = true },
                    dims, token);
        } else {
            sweep_gated(x, gate, (struct parts) { .n_pend = 0, .read_k = true, .read_q = false },
                    dims, token);
        }
    }
}

static void token_delta(
        const struct householder * op, const struct token * token, struct rows * x, float * delta) {
    const struct scan_dims * dims = &op->dims;
    const int64_t            h = token->h;
    enum gate_kind           gate = op->gate_kind;

    for (int64_t f = 0; f < dims->n_h; ++f) {
        const bool    last = f == dims->n_h - 1;
        const float * v = tokens_row(&op->v, h, f, token->t);
        const float   beta = tokens_row(&op->beta, h, f, token->t)[0];
        x->k = tokens_row(&op->k, h, f, token->t);
        memset(x->u + token->col0, 0, (size_t) (token->col1 - token->col0) * sizeof(float));
        sweep(x, gate, f > 0, last, dims, token);

        if (f > 0) { // the state now contains the gate and the previous update
            x->in = token->out;
            gate = GATE_NONE;
        }
        for (int64_t c = token->col0; c < token->col1; ++c) {
            delta[c] = beta * (v[c] - x->u[c]);
        }
        x->k1 = x->k;
        x->d1 = delta;
    }
    const float qk = vec_dot(x->q, x->k, dims->d_k);
    for (int64_t c = token->col0; c < token->col1; ++c) {
        token->y[c] = op->scale * fma1(qk, delta[c], x->p[c]);
    }
    sweep_gated(x, gate, (struct parts) { .n_pend = 1 }, dims, token);
}

static void token_rank_one(const struct householder * op, const struct token * token,
        struct rows * x, float * minus_u) {
    const struct scan_dims * dims = &op->dims;

    memset(x->u + token->col0, 0, (size_t) (token->col1 - token->col0) * sizeof(float));
    x->k = tokens_row(&op->r, token->h, 0, token->t);
    sweep_gated(x, op->gate_kind,
            (struct parts) { .read_first = true, .read_k = true, .read_q = true }, dims, token);

    x->k1 = tokens_row(&op->w, token->h, 0, token->t);
    x->k2 = tokens_row(&op->k, token->h, 0, token->t);
    x->d1 = minus_u;
    x->d2 = tokens_row(&op->v, token->h, 0, token->t);
    const float qw = vec_dot(x->q, x->k1, dims->d_k);
    const float qk = vec_dot(x->q, x->k2, dims->d_k);
    for (int64_t c = token->col0; c < token->col1; ++c) {
        minus_u[c] = -x->u[c];
        token->y[c] = op->scale * fma1(qk, x->d2[c], fma1(qw, minus_u[c], x->p[c]));
    }
    sweep_gated(x, op->gate_kind, (struct parts) { .n_pend = 2 }, dims, token);
}

void householder_token_run(const void * ctx, const struct token * token, float * work) {
    const struct householder * op = ctx;
    const int64_t              d_v = op->dims.d_v;

    struct rows x = {
        .in = token->in,
        .out = token->out,
        .g = op->gate_kind != GATE_NONE ? tokens_row(&op->gate, token->h, 0, token->t) : NULL,
        .q = tokens_row(&op->q, token->h, 0, token->t),
        .u = work,
        .p = work + d_v,
    };
    memset(x.p + token->col0, 0, (size_t) (token->col1 - token->col0) * sizeof(float));
    (op->r.data != NULL ? token_rank_one : token_delta)(op, token, &x, work + 2 * d_v);
}
