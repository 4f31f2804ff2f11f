// The Householder scan two factors at a time.
//
// A sweep over a tile that applies one factor loads and stores every element of the state for three multiplications, and the stores are what
// it waits for. Two factors in one sweep halve them. More would not fit the registers of most machines, or would have to go through
// memory as matrix products, whose preparation and triangular solve eat up what they gain at the sizes of a head.
//
// Let S be the state before the pair, a and b its two factors, G_a and G_b the gates from before the pair up to and including the one in
// front of a and of b (a gate stands in front of the first factor of a token), and M the gate in front of b alone; 1 where there is none.
//
//     δ_a = β_a (v_a − Sᵀ(G_a ∘ k_a))
//     δ_b = β_b (v_b − Sᵀ(G_b ∘ k_b) − A δ_a)              A   = k_b·(M ∘ k_a)
//     o   = scale (Sᵀ(G_a ∘ q) + B0 δ_a)                   B0  = q·k_a                          for a token that ends with a
//     o   = scale (Sᵀ(G_b ∘ q) + B0 δ_a + B1 δ_b)          B0  = q·(M ∘ k_a),  B1 = q·k_b       for a token that ends with b
//     S  ← G_b ∘ S + (M ∘ k_a) δ_aᵀ + k_b δ_bᵀ              left pending, applied by the sweep of the next pair
//
// Gates are only ever multiplied, never divided by and never taken to logarithms: any sign will do, and zero.

#include "householder.h"

enum { PAIR = 2 };

// What is prepared for a block of tokens; places in the prepared floats.
struct layout {
    int64_t k;     // [rows][d_k]     G ∘ k
    int64_t q;     // [tokens][d_k]   G ∘ q
    int64_t keys;  // [rows][d_k]     M ∘ k_a, k_b
    int64_t decay; // [pairs][d_k]    G_b
    int64_t A;     // [pairs]
    int64_t B;     // [tokens][PAIR]
    int64_t end;
};

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t tokens = tile_scan_block(dims);
    const int64_t rows   = tokens*dims->n_h;
    const int64_t pairs  = (rows + PAIR - 1)/PAIR;
    struct layout l;
    l.k     = 0;
    l.q     = l.k     + rows*dims->d_k;
    l.keys  = l.q     + tokens*dims->d_k;
    l.decay = l.keys  + rows*dims->d_k;
    l.A     = l.decay + pairs*dims->d_k;
    l.B     = l.A     + pairs;
    l.end   = l.B     + tokens*PAIR;
    return l;
}

int64_t householder_chunk_size(const struct scan_dims * dims) {
    return layout_of(dims).end;
}

bool householder_chunk_can(const struct householder * op) {
    return op->r.data == NULL;
}

//
// Preparation
//

// out = g ∘ x, with g one number or one a channel
static void row_gate(float * out, const float * g, enum gate_kind kind, const float * x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = g[kind == GATE_CHANNEL ? i : 0]*x[i];
    }
}

// The pair of rows a and b = a + 1 of the block that starts at token t0.
static void pair_prepare(const struct householder * op, const struct layout * l, int64_t h, int64_t t0, int64_t a, int64_t rows, float * prep) {
    const int64_t        d_k  = op->dims.d_k;
    const int64_t        n_h  = op->dims.n_h;
    const enum gate_kind kind = op->gate_kind;
    const int64_t        b    = a + 1;

    float * k    = prep + l->k;
    float * q    = prep + l->q;
    float * key  = prep + l->keys + a*d_k; // k_a, then M ∘ k_a

    if (b % n_h == 0) { // a token ends with a
        prep[l->B + a/n_h*PAIR] = vec_dot(q + a/n_h*d_k, key, d_k);
    }
    if (b < rows) {
        if (kind != GATE_NONE && b % n_h == 0) {
            row_gate(key, tokens_row(&op->gate, h, 0, t0 + b/n_h), kind, key, d_k);
        }
        prep[l->A + a/PAIR] = vec_dot(k + b*d_k, key, d_k);
        if ((b + 1) % n_h == 0) { // a token ends with b
            prep[l->B + b/n_h*PAIR]     = vec_dot(q + b/n_h*d_k, key,       d_k);
            prep[l->B + b/n_h*PAIR + 1] = vec_dot(q + b/n_h*d_k, k + b*d_k, d_k);
        }
    }
    if (kind != GATE_NONE) {
        float *       G     = prep + l->decay + a/PAIR*d_k;
        const int64_t width = kind == GATE_CHANNEL ? d_k : 1;
        for (int64_t i = 0; i < width; ++i) {
            G[i] = 1.0f;
        }
        for (int64_t r = a; r < a + PAIR && r < rows; ++r) {
            if (r % n_h == 0) {
                row_gate(G, tokens_row(&op->gate, h, 0, t0 + r/n_h), kind, G, width);
            }
            row_gate(k + r*d_k, G, kind, k + r*d_k, d_k);
            if ((r + 1) % n_h == 0) {
                row_gate(q + r/n_h*d_k, G, kind, q + r/n_h*d_k, d_k);
            }
        }
    }
}

void householder_chunk_prepare(const void * ctx, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const struct householder * op   = ctx;
    const int64_t              d_k  = op->dims.d_k;
    const int64_t              rows = (t1 - t0)*op->dims.n_h;
    const struct layout        l    = layout_of(&op->dims);

    rows_pack(prep + l.k, &op->k, h, op->dims.n_h, t0, t1, d_k);
    rows_pack(prep + l.q, &op->q, h, 1,            t0, t1, d_k);
    memcpy(prep + l.keys, prep + l.k, (size_t) (rows*d_k)*sizeof(float));

    for (int64_t a = 0; a < rows; a += PAIR) {
        pair_prepare(op, &l, h, t0, a, rows, prep);
    }
}

//
// A tile through a block
//

// The update of a pair that has been computed but not yet applied: S ← decay ∘ S + key_a δ_aᵀ + key_b δ_bᵀ
struct pending {
    const float * decay;
    const float * key_a;
    const float * key_b;
    vec2          d_a;
    vec2          d_b;
};

struct sums {
    vec2 u_a, u_b; // Sᵀ k
    vec2 p_0, p_1; // Sᵀ q, of the tokens that end in the pair
};

// One sweep: applies n_pend pending rows, then sums n_k products with keys and n_q with queries. All flags are constants at every call.
SIMD_INLINE struct sums sweep_rows(float * S, int64_t d_k, int n_pend, enum gate_kind kind, const struct pending * pend,
        int n_k, const float * k, int n_q, const float * q) {
    const struct pending held = *pend; // a copy that stays in registers
    struct sums          sums = { 0 };
    for (int64_t i = 0; i < d_k; ++i) {
        vec2 s = vec2_load(S + i*TILE);
        if (n_pend > 0 && kind != GATE_NONE) {
            s = vec2_scale(held.decay[kind == GATE_CHANNEL ? i : 0], s);
        }
        if (n_pend > 0) {
            s = vec2_fma(held.key_a[i], held.d_a, s);
        }
        if (n_pend > 1) {
            s = vec2_fma(held.key_b[i], held.d_b, s);
        }
        if (n_pend > 0) {
            vec2_store(S + i*TILE, s);
        }
        if (n_k > 0) {
            sums.u_a = vec2_fma(k[i], s, sums.u_a);
        }
        if (n_k > 1) {
            sums.u_b = vec2_fma(k[d_k + i], s, sums.u_b);
        }
        if (n_q > 0) {
            sums.p_0 = vec2_fma(q[i], s, sums.p_0);
        }
        if (n_q > 1) {
            sums.p_1 = vec2_fma(q[d_k + i], s, sums.p_1);
        }
    }
    return sums;
}

// The sweep with its counts as constants, so that each combination becomes a loop of its own.
SIMD_INLINE struct sums sweep_counts(float * S, int64_t d_k, int n_pend, enum gate_kind kind, const struct pending * pend,
        int n_k, const float * k, int n_q, const float * q) {
    switch (n_k*4 + n_q) {
        case 2*4 + 2: return sweep_rows(S, d_k, n_pend, kind, pend, 2, k, 2, q);
        case 2*4 + 1: return sweep_rows(S, d_k, n_pend, kind, pend, 2, k, 1, q);
        case 2*4 + 0: return sweep_rows(S, d_k, n_pend, kind, pend, 2, k, 0, q);
        case 1*4 + 1: return sweep_rows(S, d_k, n_pend, kind, pend, 1, k, 1, q);
        default:      return sweep_rows(S, d_k, n_pend, kind, pend, 1, k, 0, q);
    }
}

static struct sums sweep(float * S, int64_t d_k, bool has, enum gate_kind kind, const struct pending * pend,
        int n_k, const float * k, int n_q, const float * q) {
    if (!has) {
        return sweep_counts(S, d_k, 0, GATE_NONE, pend, n_k, k, n_q, q);
    }
    switch (kind) {
        case GATE_HEAD:    return sweep_counts(S, d_k, PAIR, GATE_HEAD,    pend, n_k, k, n_q, q);
        case GATE_CHANNEL: return sweep_counts(S, d_k, PAIR, GATE_CHANNEL, pend, n_k, k, n_q, q);
        default:           return sweep_counts(S, d_k, PAIR, GATE_NONE,    pend, n_k, k, n_q, q);
    }
}

SIMD_INLINE void flush_rows(float * S, int64_t d_k, int n_pend, enum gate_kind kind, const struct pending * pend) {
    switch (kind) {
        case GATE_HEAD:    sweep_rows(S, d_k, n_pend, GATE_HEAD,    pend, 0, NULL, 0, NULL); break;
        case GATE_CHANNEL: sweep_rows(S, d_k, n_pend, GATE_CHANNEL, pend, 0, NULL, 0, NULL); break;
        default:           sweep_rows(S, d_k, n_pend, GATE_NONE,    pend, 0, NULL, 0, NULL); break;
    }
}

// The last pair of a block may have one row.
static void flush(float * S, int64_t d_k, int n_pend, enum gate_kind kind, const struct pending * pend) {
    if (n_pend == PAIR) {
        flush_rows(S, d_k, PAIR, kind, pend);
    } else if (n_pend == 1) {
        flush_rows(S, d_k, 1, kind, pend);
    }
}

// β of row r of the block
static float row_beta(const struct householder * op, const struct tile * tile, int64_t r) {
    return tokens_row(&op->beta, tile->h, r % op->dims.n_h, tile->t0 + r/op->dims.n_h)[0];
}

void householder_chunk_run(const void * ctx, const struct tile * tile, const float * prep) {
    const struct householder * op   = ctx;
    const int64_t              d_k  = op->dims.d_k;
    const int64_t              n_h  = op->dims.n_h;
    const int64_t              rows = (tile->t1 - tile->t0)*n_h;
    const struct layout        l    = layout_of(&op->dims);

    struct pending pend   = { 0 };
    int            n_pend = 0;

    for (int64_t a = 0; a < rows; a += PAIR) {
        const int64_t b   = a + 1;
        const int     n_k = b < rows ? 2 : 1;
        const int64_t t   = a/n_h;                         // the first token that can end in this pair
        const int     n_q = (int) ((a + n_k)/n_h - t);     // tokens that end in it

        const struct sums sums = sweep(tile->S, d_k, n_pend > 0, op->gate_kind, &pend,
                n_k, prep + l.k + a*d_k, n_q, prep + l.q + t*d_k);

        // δ_a = β_a (v_a − u_a),   δ_b = β_b (v_b − u_b − A δ_a)
        pend.decay = prep + l.decay + a/PAIR*d_k;
        pend.key_a = prep + l.keys + a*d_k;
        pend.key_b = prep + l.keys + b*d_k;
        pend.d_a   = vec2_scale(row_beta(op, tile, a), vec2_sub(vec2_load(tile->x[0] + a*TILE), sums.u_a));
        if (n_k > 1) {
            const vec2 u_b = vec2_fma(prep[l.A + a/PAIR], pend.d_a, sums.u_b);
            pend.d_b = vec2_scale(row_beta(op, tile, b), vec2_sub(vec2_load(tile->x[0] + b*TILE), u_b));
        }
        n_pend = n_k;

        // o = scale (p + B0 δ_a), and + B1 δ_b for a token that ends with b
        for (int64_t j = t; j < t + n_q; ++j) {
            const float * B = prep + l.B + j*PAIR;
            vec2          o = vec2_fma(B[0], pend.d_a, j == t ? sums.p_0 : sums.p_1);
            if ((j + 1)*n_h - 1 == b) {
                o = vec2_fma(B[1], pend.d_b, o);
            }
            vec2_store(tile->y + j*TILE, vec2_scale(op->scale, o));
        }
    }
    flush(tile->S, d_k, n_pend, op->gate_kind, &pend);
}
