// The chunk path of both scans: two factors at a time.
//
// A sweep that applies one factor to a tile loads and stores every element of the state for two or
// three multiplications, and the stores limit its speed. Two factors per sweep halve the stores.
// More factors do not fit the registers of most CPUs. As matrix products in memory, they cost more
// to prepare and to solve than they gain at the sizes of a head.
//
// Let S be the state before the chunk and a, b its two factors. A gate is applied before the first
// factor of a token. G_a and G_b are the products of all gates of the chunk up to a and up to b; M
// is the gate between a and b. Each is 1 where there is no gate.
//
//     δ_a = β_a (v_a − Sᵀ(G_a ∘ k_a))                without β (diagonal transition): δ = v
//     δ_b = β_b (v_b − Sᵀ(G_b ∘ k_b) − A δ_a)        A = k_b·(M ∘ k_a)
//     S  ← G_b ∘ S + (M ∘ k_a) δ_aᵀ + k_b δ_bᵀ        pending until the sweep of the next chunk
//
// Output of a token whose last factor is a:
//
//     o = scale (Sᵀ(G_a ∘ q) + B0 δ_a)               B0 = q·k_a
//
// Output of a token whose last factor is b:
//
//     o = scale (Sᵀ(G_b ∘ q) + B0 δ_a + B1 δ_b)      B0 = q·(M ∘ k_a),  B1 = q·k_b
//
// With a bonus, a token reads the state before its own gate and update: its own gate drops out of G
// and M in o, and q·(bonus ∘ k) replaces the product of q with its own key.
//
// Gates are only multiplied. No gate is divided by and no logarithm is taken, so any sign works,
// and so does zero.

#include "scan-chunk.h"

#include <stddef.h>

enum { CHUNK = 2 };

// Offsets into the floats prepared for a segment. A gate per head is not multiplied into the
// vectors but applied to the sums.
struct layout {
    int64_t k;      // [factors][d_k]   G ∘ k; unused without β
    int64_t q;      // [tokens][d_k]    G ∘ q
    int64_t keys;   // [factors][d_k]   M ∘ k_a, k_b
    int64_t decay;  // [chunks][d_k]    G_b
    int64_t beta;   // [factors]        β, or the multiplier of x
    int64_t scalar; // [chunks]         struct scalars
    int64_t B;      // [tokens][CHUNK]
    int64_t end;
};

struct scalars {
    float A;
    float G_a, G_b, M; // 1 unless the gate is per head
};

enum {
    SCALARS    = sizeof(struct scalars) / sizeof(float),
    SCALAR_G_B = offsetof(struct scalars, G_b) / sizeof(float)
};

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t tokens  = tile_scan_segment(dims);
    const int64_t factors = tokens * dims->n_h;
    const int64_t chunks  = (factors + CHUNK - 1) / CHUNK;
    struct layout l;
    l.k      = 0;
    l.q      = l.k + factors * dims->d_k;
    l.keys   = l.q + tokens * dims->d_k;
    l.decay  = l.keys + factors * dims->d_k;
    l.beta   = l.decay + chunks * dims->d_k;
    l.scalar = l.beta + factors;
    l.B      = l.scalar + chunks * SCALARS;
    l.end    = l.B + tokens * CHUNK;
    return l;
}

int64_t scan_chunk_size(const struct scan_dims * dims) {
    return layout_of(dims).end;
}

//
// Preparation
//

// One factor of the segment and its position among the factors of its token.
struct factor {
    int64_t       t;           // token, relative to the segment
    bool          first, last; // of the factors of its token
    const float * k;
    const float * q; // NULL unless last
    const float * g; // NULL unless first and gated
};

static struct factor factor_at(
        const struct scan_chunk * op, int64_t h, int64_t t0, int64_t t, int64_t f) {
    const bool first = f == 0;
    const bool last  = f == op->dims.n_h - 1;
    return (struct factor) {
        .t     = t,
        .first = first,
        .last  = last,
        .k     = row_ahead(&op->k, h, f, t0 + t, op->dims.d_k),
        .q     = last ? row_ahead(&op->q, h, 0, t0 + t, op->dims.d_k) : NULL,
        .g     = first && op->gate_kind != GATE_NONE
                         ? row_ahead(&op->gate, h, 0, t0 + t,
                               op->gate_kind == GATE_CHANNEL ? op->dims.d_k : 1)
                         : NULL,
    };
}

// q·k, or with a bonus q·(bonus ∘ k)
static float own_product(
        const struct scan_chunk * op, int64_t h, const float * q, const float * k) {
    if (op->bonus.data == NULL) {
        return vec_dot(q, k, op->dims.d_k);
    }
    const float * u   = tokens_row(&op->bonus, h, 0, 0);
    float         sum = 0.0f;
    for (int64_t i = 0; i < op->dims.d_k; ++i) {
        sum = fma1(q[i] * u[i], k[i], sum);
    }
    return sum;
}

// Gate per head, or none: the vectors are packed unchanged.
static void chunk_prepare_head(const struct scan_chunk * op, int64_t h, const struct factor * a,
        const struct factor * b, float * k, float * q, struct scalars * s, float * B) {
    const int64_t d_k   = op->dims.d_k;
    const bool    bonus = op->bonus.data != NULL;

    s->G_a = a->g != NULL ? a->g[0] : 1.0f;
    s->M   = b != NULL && b->g != NULL ? b->g[0] : 1.0f;
    s->G_b = s->M * s->G_a;
    row_copy(k, a->k, d_k);
    if (a->last) {
        row_copy(q + a->t * d_k, a->q, d_k);
        B[a->t * CHUNK] = own_product(op, h, a->q, a->k);
    }
    if (b != NULL) {
        row_copy(k + d_k, b->k, d_k);
        if (op->beta.data != NULL) {
            s->A = s->M * vec_dot(b->k, a->k, d_k);
        }
        if (b->last) {
            row_copy(q + b->t * d_k, b->q, d_k);
            B[b->t * CHUNK]     = (bonus ? 1.0f : s->M) * vec_dot(b->q, a->k, d_k);
            B[b->t * CHUNK + 1] = own_product(op, h, b->q, b->k);
        }
    }
}

// Gate per key channel: G and M are multiplied into the vectors.
static void chunk_prepare_channel(const struct scan_chunk * op, int64_t h, const struct factor * a,
        const struct factor * b, float * k, float * q, float * keys, float * G, struct scalars * s,
        float * B) {
    const int64_t d_k   = op->dims.d_k;
    const bool    delta = op->beta.data != NULL;
    const bool    bonus = op->bonus.data != NULL;

    if (a->last) {
        B[a->t * CHUNK] = own_product(op, h, a->q, a->k);
        if (bonus || a->g == NULL) {
            row_copy(q + a->t * d_k, a->q, d_k);
        } else {
            row_mul(q + a->t * d_k, a->g, a->q, d_k);
        }
    }
    if (a->g != NULL) { // G_a
        row_copy(G, a->g, d_k);
    } else {
        for (int64_t i = 0; i < d_k; ++i) {
            G[i] = 1.0f;
        }
    }
    if (delta) {
        row_mul(k, G, a->k, d_k);
    }
    row_copy(keys, a->k, d_k);
    if (b == NULL) {
        return;
    }
    if (bonus) { // b reads before its own gate
        B[b->t * CHUNK] = vec_dot(b->q, keys, d_k);
        row_mul(q + b->t * d_k, G, b->q, d_k);
    }
    if (b->g != NULL) { // M, G_b
        row_mul(keys, b->g, keys, d_k);
        row_mul(G, b->g, G, d_k);
    }
    row_copy(keys + d_k, b->k, d_k);
    if (delta) {
        s->A = vec_dot(b->k, keys, d_k);
        row_mul(k + d_k, G, b->k, d_k);
    }
    if (b->last) {
        B[b->t * CHUNK + 1] = own_product(op, h, b->q, b->k);
        if (!bonus) {
            B[b->t * CHUNK] = vec_dot(b->q, keys, d_k);
            row_mul(q + b->t * d_k, G, b->q, d_k);
        }
    }
}

void scan_chunk_prepare(
        const struct scan_chunk * op, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const int64_t       d_k     = op->dims.d_k;
    const int64_t       n_h     = op->dims.n_h;
    const int64_t       factors = (t1 - t0) * n_h;
    const struct layout l       = layout_of(&op->dims);

    if (op->beta.data != NULL) {
        rows_pack(prep + l.beta, &op->beta, h, n_h, t0, t1, 1);
    } else if (op->in.data != NULL) {
        rows_pack(prep + l.beta, &op->in, h, 1, t0, t1, 1);
    } else {
        for (int64_t r = 0; r < factors; ++r) {
            prep[l.beta + r] = 1.0f;
        }
    }
    int64_t t = 0;
    int64_t f = 0;
    for (int64_t r = 0; r < factors; r += CHUNK) {
        const int64_t       t_b = f + 1 < n_h ? t : t + 1;
        const int64_t       f_b = f + 1 < n_h ? f + 1 : 0;
        const struct factor a   = factor_at(op, h, t0, t, f);
        const struct factor b =
                r + 1 < factors ? factor_at(op, h, t0, t_b, f_b) : (struct factor) { 0 };

        const struct factor * second = r + 1 < factors ? &b : NULL;
        float *               k      = prep + l.k + r * d_k;
        struct scalars        s      = { 0.0f, 1.0f, 1.0f, 1.0f };
        if (op->gate_kind == GATE_CHANNEL) {
            chunk_prepare_channel(op, h, &a, second, k, prep + l.q, prep + l.keys + r * d_k,
                    prep + l.decay + r / CHUNK * d_k, &s, prep + l.B);
        } else {
            chunk_prepare_head(op, h, &a, second, k, prep + l.q, &s, prep + l.B);
        }
        memcpy(prep + l.scalar + r / CHUNK * SCALARS, &s, sizeof(s));

        t = f_b + 1 < n_h ? t_b : t_b + 1;
        f = f_b + 1 < n_h ? f_b + 1 : 0;
    }
}

//
// A tile through a segment
//

// The update of a chunk, computed but not yet applied:
//     S ← decay ∘ S + key_a δ_aᵀ + key_b δ_bᵀ
struct pending {
    const float * decay;
    const float * key_a;
    const float * key_b;
    vec2          d_a;
    vec2          d_b;
};

struct sums {
    vec2 u_a, u_b; // Sᵀ k
    vec2 p_0, p_1; // Sᵀ q of the tokens that end in the chunk
};

// One sweep over the tile: applies n_pend pending factors, then sums n_k products with keys and n_q
// products with queries. The counts and the gate kind are constants at every call.
SIMD_INLINE void sweep_rows(float * S, int64_t d_k, int n_pend, enum gate_kind kind,
        const struct pending * pend, int n_k, const float * k, int n_q, const float * q,
        struct sums * sums) {
    const struct pending held = *pend; // copies that stay in registers
    vec2                 u_a  = { 0 };
    vec2                 u_b  = { 0 };
    vec2                 p_0  = { 0 };
    vec2                 p_1  = { 0 };
    for (int64_t i = 0; i < d_k; ++i) {
        vec2 s = vec2_load(S + i * TILE);
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
            vec2_store(S + i * TILE, s);
        }
        if (n_k > 0) {
            u_a = vec2_fma(k[i], s, u_a);
        }
        if (n_k > 1) {
            u_b = vec2_fma(k[d_k + i], s, u_b);
        }
        if (n_q > 0) {
            p_0 = vec2_fma(q[i], s, p_0);
        }
        if (n_q > 1) {
            p_1 = vec2_fma(q[d_k + i], s, p_1);
        }
    }
    *sums = (struct sums) { u_a, u_b, p_0, p_1 };
}

// Each combination that occurs is a separate function, so that each loop has all registers.
typedef void (*sweep_fn)(float * S, int64_t d_k, const struct pending * pend, const float * k,
        const float * q, struct sums * sums);

// clang-format off
#define SWEEP(p_, gate_, k_, q_)                                                                 \
    static void sweep_##p_##_##gate_##_##k_##_##q_(float * S, int64_t d_k,                       \
            const struct pending * pend, const float * k, const float * q, struct sums * sums) { \
        sweep_rows(S, d_k, p_, gate_, pend, k_, k, q_, q, sums);                                 \
    }
#define SWEEP_READS(p_, gate_)                    \
    SWEEP(p_, gate_, 0, 1) SWEEP(p_, gate_, 0, 2) \
    SWEEP(p_, gate_, 1, 0) SWEEP(p_, gate_, 1, 1) \
    SWEEP(p_, gate_, 2, 0) SWEEP(p_, gate_, 2, 1) SWEEP(p_, gate_, 2, 2)
#define SWEEP_GATES(p_) \
    SWEEP(p_, GATE_NONE, 0, 0) SWEEP(p_, GATE_HEAD, 0, 0) SWEEP(p_, GATE_CHANNEL, 0, 0)

SWEEP_READS(0, GATE_NONE) // the first chunk of a segment: nothing is pending
SWEEP_READS(2, GATE_NONE)
SWEEP_READS(2, GATE_HEAD)
SWEEP_READS(2, GATE_CHANNEL)
SWEEP_GATES(1) // after the last chunk of a segment, which may have one factor
SWEEP_GATES(2)

#define READS(p_, gate_) {                                                                        \
    { NULL,                       sweep_##p_##_##gate_##_0_1, sweep_##p_##_##gate_##_0_2 },       \
    { sweep_##p_##_##gate_##_1_0, sweep_##p_##_##gate_##_1_1, NULL                       },       \
    { sweep_##p_##_##gate_##_2_0, sweep_##p_##_##gate_##_2_1, sweep_##p_##_##gate_##_2_2 } }

// [keys][queries], [gate][keys][queries], [gate][factors]
static const sweep_fn sweep_first[3][3]   = READS(0, GATE_NONE);
static const sweep_fn sweep_next[3][3][3] = {
    READS(2, GATE_NONE), READS(2, GATE_HEAD), READS(2, GATE_CHANNEL)
};
static const sweep_fn sweep_flush[3][3] = {
    { NULL, sweep_1_GATE_NONE_0_0,    sweep_2_GATE_NONE_0_0    },
    { NULL, sweep_1_GATE_HEAD_0_0,    sweep_2_GATE_HEAD_0_0    },
    { NULL, sweep_1_GATE_CHANNEL_0_0, sweep_2_GATE_CHANNEL_0_0 },
};
// clang-format on

void scan_chunk_run(const struct scan_chunk * op, const struct tile * tile, const float * prep) {
    const int64_t       d_k     = op->dims.d_k;
    const int64_t       n_h     = op->dims.n_h;
    const int64_t       factors = (tile->t1 - tile->t0) * n_h;
    const bool          delta   = op->beta.data != NULL;
    const bool          bonus   = op->bonus.data != NULL;
    const bool          head    = op->gate_kind == GATE_HEAD;
    const struct layout l       = layout_of(&op->dims);

    struct pending pend   = { 0 };
    int            n_pend = 0;
    struct scalars s      = { 0 };
    struct sums    sums   = { 0 };
    int64_t        t      = 0; // token of factor a, relative to the segment
    int64_t        f      = 0; // factor of that token

    for (int64_t a = 0; a < factors; a += CHUNK) {
        const int64_t b     = a + 1;
        const int     n     = b < factors ? 2 : 1;
        const bool    end_a = f == n_h - 1; // a is the last factor of its token
        const bool    end_b = n == 2 && (end_a ? n_h == 1 : f + 1 == n_h - 1);
        const int     n_q   = end_a + end_b;

        (n_pend > 0 ? sweep_next[op->gate_kind] : sweep_first)[delta ? n : 0][n_q](
                tile->S, d_k, &pend, prep + l.k + a * d_k, prep + l.q + t * d_k, &sums);

        memcpy(&s, prep + l.scalar + a / CHUNK * SCALARS, sizeof(s));
        vec2 p_a = sums.p_0;
        vec2 p_b = end_a ? sums.p_1 : sums.p_0;
        if (head) { // gates left out of the vectors; with a bonus a token reads before its own gate
            sums.u_a = vec2_scale(s.G_a, sums.u_a);
            sums.u_b = vec2_scale(s.G_b, sums.u_b);
            p_a      = bonus ? p_a : vec2_scale(s.G_a, p_a);
            p_b      = vec2_scale(bonus ? s.G_a : s.G_b, p_b);
        }

        // δ_a = β_a (v_a − u_a),  δ_b = β_b (v_b − u_b − A δ_a)
        // without β: δ = (multiplier of x) · v
        vec2 d_a = vec2_load(tile->x[0] + a * TILE);
        vec2 d_b = { 0 };
        if (delta) {
            d_a = vec2_sub(d_a, sums.u_a);
        }
        d_a = vec2_scale(prep[l.beta + a], d_a);
        if (n == 2) {
            d_b = vec2_load(tile->x[0] + b * TILE);
            if (delta) {
                d_b = vec2_sub(d_b, vec2_fma(s.A, d_a, sums.u_b));
            }
            d_b = vec2_scale(prep[l.beta + b], d_b);
        }

        // o = scale (p + B0 δ_a), plus scale B1 δ_b for a token that ends with b
        const float * B = prep + l.B + t * CHUNK;
        float *       y = tile->y + t * TILE;
        if (end_a) {
            vec2_store(y, vec2_scale(op->scale, vec2_fma(B[0], d_a, p_a)));
            B += CHUNK;
            y += TILE;
        }
        if (end_b) {
            vec2_store(y, vec2_scale(op->scale, vec2_fma(B[1], d_b, vec2_fma(B[0], d_a, p_b))));
        }

        const float * keys = prep + (op->gate_kind == GATE_CHANNEL ? l.keys : l.k) + a * d_k;
        pend.decay         = head ? prep + l.scalar + a / CHUNK * SCALARS + SCALAR_G_B
                                  : prep + l.decay + a / CHUNK * d_k;
        pend.key_a         = keys;
        pend.key_b         = keys + d_k;
        pend.d_a           = head ? vec2_scale(s.M, d_a) : d_a;
        pend.d_b           = d_b;
        n_pend             = n;

        f += CHUNK;
        while (f >= n_h) {
            f -= n_h;
            t += 1;
        }
    }
    if (n_pend > 0) {
        sweep_flush[op->gate_kind][n_pend](tile->S, d_k, &pend, NULL, NULL, &sums);
    }
}
