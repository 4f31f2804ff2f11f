// The recurrences two factors at a time; scan-chunk.h says which.
//
// A sweep over a tile that applies one factor loads and stores every element of the state for two
// or three multiplications, and the stores are what it waits for. Two factors in one sweep halve
// them. More would not fit the registers of most machines, or would have to go through memory as
// matrix products, whose preparation and triangular solve eat up what they gain at the sizes of a
// head.
//
// Let S be the state before the pair, a and b its two factors, G_a and G_b the gates from before
// the pair up to and including the one in front of a and of b (a gate stands in front of the first
// factor of a token), and M the gate in front of b alone; 1 where there is none.
//
//     δ_a = β_a (v_a − Sᵀ(G_a ∘ k_a))                      or, for a diagonal transition, δ = v
//     δ_b = β_b (v_b − Sᵀ(G_b ∘ k_b) − A δ_a)              A  = k_b·(M ∘ k_a)
//     o   = scale (Sᵀ(G_a ∘ q) + B0 δ_a)                   B0 = q·k_a                          for a token that ends with a
//     o   = scale (Sᵀ(G_b ∘ q) + B0 δ_a + B1 δ_b)          B0 = q·(M ∘ k_a),  B1 = q·k_b       for a token that ends with b
//     S  ← G_b ∘ S + (M ∘ k_a) δ_aᵀ + k_b δ_bᵀ              left pending, applied by the sweep of the next pair
//
// With a bonus a token reads before its own gate and write: the last gate drops out of G and of M
// in its o, and q·(bonus ∘ k) stands for the product with its own key.
//
// Gates are only ever multiplied, never divided by and never taken to logarithms: any sign will do,
// and zero.

#include "scan-chunk.h"

#include <stddef.h>

enum { PAIR = 2 };

// What is prepared for a block of tokens; places in the prepared floats. A gate that is one number
// a head stays out of the vectors: it is multiplied to the sums instead.
struct layout {
    int64_t k;      // [rows][d_k]     G ∘ k; without β not needed
    int64_t q;      // [tokens][d_k]   G ∘ q
    int64_t keys;   // [rows][d_k]     M ∘ k_a, k_b
    int64_t decay;  // [pairs][d_k]    G_b
    int64_t factor; // [rows]          β, or the factor on x
    int64_t scalar; // [pairs]         struct scalars
    int64_t B;      // [tokens][PAIR]
    int64_t end;
};

struct scalars {
    float A;
    float G_a, G_b, M; // 1 unless the gate is one number a head
};

enum {
    SCALARS    = sizeof(struct scalars) / sizeof(float),
    SCALAR_G_B = offsetof(struct scalars, G_b) / sizeof(float)
};

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t tokens = tile_scan_block(dims);
    const int64_t rows   = tokens * dims->n_h;
    const int64_t pairs  = (rows + PAIR - 1) / PAIR;
    struct layout l;
    l.k      = 0;
    l.q      = l.k + rows * dims->d_k;
    l.keys   = l.q + tokens * dims->d_k;
    l.decay  = l.keys + rows * dims->d_k;
    l.factor = l.decay + pairs * dims->d_k;
    l.scalar = l.factor + rows;
    l.B      = l.scalar + pairs * SCALARS;
    l.end    = l.B + tokens * PAIR;
    return l;
}

int64_t pair_size(const struct scan_dims * dims) {
    return layout_of(dims).end;
}

//
// Preparation
//

// A row of the block and where it stands among the factors of its token.
struct row {
    int64_t       t;           // token, counted from the first of the block
    bool          first, last; // of the factors of its token
    const float * k;
    const float * q; // NULL unless last
    const float * g; // NULL unless first and gated
};

static struct row row_at(const struct pair * op, int64_t h, int64_t t0, int64_t t, int64_t f) {
    const bool first = f == 0;
    const bool last  = f == op->dims.n_h - 1;
    return (struct row) {
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
static float own_product(const struct pair * op, int64_t h, const float * q, const float * k) {
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

// Gates that are one number a head, or none: the vectors are packed as they are.
static void pair_prepare_head(const struct pair * op, int64_t h, const struct row * a,
        const struct row * b, float * k, float * q, struct scalars * s, float * B) {
    const int64_t d_k   = op->dims.d_k;
    const bool    bonus = op->bonus.data != NULL;

    s->G_a = a->g != NULL ? a->g[0] : 1.0f;
    s->M   = b != NULL && b->g != NULL ? b->g[0] : 1.0f;
    s->G_b = s->M * s->G_a;
    row_copy(k, a->k, d_k);
    if (a->last) {
        row_copy(q + a->t * d_k, a->q, d_k);
        B[a->t * PAIR] = own_product(op, h, a->q, a->k);
    }
    if (b != NULL) {
        row_copy(k + d_k, b->k, d_k);
        if (op->beta.data != NULL) {
            s->A = s->M * vec_dot(b->k, a->k, d_k);
        }
        if (b->last) {
            row_copy(q + b->t * d_k, b->q, d_k);
            B[b->t * PAIR]     = (bonus ? 1.0f : s->M) * vec_dot(b->q, a->k, d_k);
            B[b->t * PAIR + 1] = own_product(op, h, b->q, b->k);
        }
    }
}

// A gate per key channel: G and M go into the vectors.
static void pair_prepare_channel(const struct pair * op, int64_t h, const struct row * a,
        const struct row * b, float * k, float * q, float * keys, float * G, struct scalars * s,
        float * B) {
    const int64_t d_k   = op->dims.d_k;
    const bool    delta = op->beta.data != NULL;
    const bool    bonus = op->bonus.data != NULL;

    if (a->last) {
        B[a->t * PAIR] = own_product(op, h, a->q, a->k);
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
        B[b->t * PAIR] = vec_dot(b->q, keys, d_k);
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
        B[b->t * PAIR + 1] = own_product(op, h, b->q, b->k);
        if (!bonus) {
            B[b->t * PAIR] = vec_dot(b->q, keys, d_k);
            row_mul(q + b->t * d_k, G, b->q, d_k);
        }
    }
}

void pair_prepare(const struct pair * op, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const int64_t       d_k  = op->dims.d_k;
    const int64_t       n_h  = op->dims.n_h;
    const int64_t       rows = (t1 - t0) * n_h;
    const struct layout l    = layout_of(&op->dims);

    if (op->beta.data != NULL) {
        rows_pack(prep + l.factor, &op->beta, h, n_h, t0, t1, 1);
    } else if (op->in.data != NULL) {
        rows_pack(prep + l.factor, &op->in, h, 1, t0, t1, 1);
    } else {
        for (int64_t r = 0; r < rows; ++r) {
            prep[l.factor + r] = 1.0f;
        }
    }
    int64_t t = 0;
    int64_t f = 0;
    for (int64_t r = 0; r < rows; r += PAIR) {
        const int64_t    t_b = f + 1 < n_h ? t : t + 1;
        const int64_t    f_b = f + 1 < n_h ? f + 1 : 0;
        const struct row a   = row_at(op, h, t0, t, f);
        const struct row b   = r + 1 < rows ? row_at(op, h, t0, t_b, f_b) : (struct row) { 0 };

        const struct row * second = r + 1 < rows ? &b : NULL;
        float *            k      = prep + l.k + r * d_k;
        struct scalars     s      = { 0.0f, 1.0f, 1.0f, 1.0f };
        if (op->gate_kind == GATE_CHANNEL) {
            pair_prepare_channel(op, h, &a, second, k, prep + l.q, prep + l.keys + r * d_k,
                    prep + l.decay + r / PAIR * d_k, &s, prep + l.B);
        } else {
            pair_prepare_head(op, h, &a, second, k, prep + l.q, &s, prep + l.B);
        }
        memcpy(prep + l.scalar + r / PAIR * SCALARS, &s, sizeof(s));

        t = f_b + 1 < n_h ? t_b : t_b + 1;
        f = f_b + 1 < n_h ? f_b + 1 : 0;
    }
}

//
// A tile through a block
//

// The update of a pair that has been computed but not yet applied: S ← decay ∘ S + key_a δ_aᵀ +
// key_b δ_bᵀ
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

// One sweep: applies n_pend pending rows, then sums n_k products with keys and n_q with queries.
// All flags are constants at every call.
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

// Every combination that occurs, each a function of its own, so that each loop gets the registers
// to itself.
typedef void (*sweep_fn)(float * S, int64_t d_k, const struct pending * pend, const float * k,
        const float * q, struct sums * sums);

#define SWEEP(p_, gate_, k_, q_)                                                                 \
    static void sweep_##p_##_##gate_##_##k_##_##q_(float * S, int64_t d_k,                       \
            const struct pending * pend, const float * k, const float * q, struct sums * sums) { \
        sweep_rows(S, d_k, p_, gate_, pend, k_, k, q_, q, sums);                                 \
    }
#define SWEEP_READS(p_, gate_)                                                                  \
    SWEEP(p_, gate_, 0, 1)                                                                      \
    SWEEP(p_, gate_, 0, 2)                                                                      \
    SWEEP(p_, gate_, 1, 0) SWEEP(p_, gate_, 1, 1) SWEEP(p_, gate_, 2, 0) SWEEP(p_, gate_, 2, 1) \
            SWEEP(p_, gate_, 2, 2)
#define SWEEP_GATES(p_, k_, q_) \
    SWEEP(p_, GATE_NONE, k_, q_) SWEEP(p_, GATE_HEAD, k_, q_) SWEEP(p_, GATE_CHANNEL, k_, q_)

SWEEP_READS(0, GATE_NONE) // the first pair of a block has nothing pending
SWEEP_READS(2, GATE_NONE)
SWEEP_READS(2, GATE_HEAD)
SWEEP_READS(2, GATE_CHANNEL)
SWEEP_GATES(1, 0, 0) // the last pair of a block is flushed, and may have one row
SWEEP_GATES(2, 0, 0)

#define READS(p_, gate_)                                                                       \
    {                                                                                          \
        { NULL, sweep_##p_##_##gate_##_0_1, sweep_##p_##_##gate_##_0_2 },                      \
                { sweep_##p_##_##gate_##_1_0, sweep_##p_##_##gate_##_1_1, NULL }, {            \
            sweep_##p_##_##gate_##_2_0, sweep_##p_##_##gate_##_2_1, sweep_##p_##_##gate_##_2_2 \
        }                                                                                      \
    }

static const sweep_fn sweep_first[3][3]   = READS(0, GATE_NONE); // [keys][queries]
static const sweep_fn sweep_next[3][3][3] = { READS(2, GATE_NONE), READS(2, GATE_HEAD),
    READS(2, GATE_CHANNEL) }; // [gate][keys][queries]
static const sweep_fn sweep_flush[3][3]   = {
    // [gate][rows]
    { NULL, sweep_1_GATE_NONE_0_0, sweep_2_GATE_NONE_0_0 },
    { NULL, sweep_1_GATE_HEAD_0_0, sweep_2_GATE_HEAD_0_0 },
    { NULL, sweep_1_GATE_CHANNEL_0_0, sweep_2_GATE_CHANNEL_0_0 },
};

void pair_run(const struct pair * op, const struct tile * tile, const float * prep) {
    const int64_t       d_k   = op->dims.d_k;
    const int64_t       n_h   = op->dims.n_h;
    const int64_t       rows  = (tile->t1 - tile->t0) * n_h;
    const bool          delta = op->beta.data != NULL;
    const bool          bonus = op->bonus.data != NULL;
    const bool          head  = op->gate_kind == GATE_HEAD;
    const struct layout l     = layout_of(&op->dims);

    struct pending pend   = { 0 };
    int            n_pend = 0;
    struct scalars s      = { 0 };
    struct sums    sums   = { 0 };
    int64_t        t      = 0; // token of row a, counted from the first of the block
    int64_t        f      = 0; // and its place among the factors of that token

    for (int64_t a = 0; a < rows; a += PAIR) {
        const int64_t b     = a + 1;
        const int     n     = b < rows ? 2 : 1;
        const bool    end_a = f == n_h - 1; // a token ends with a
        const bool    end_b = n == 2 && (end_a ? n_h == 1 : f + 1 == n_h - 1); // and with b
        const int     n_q   = end_a + end_b;

        (n_pend > 0 ? sweep_next[op->gate_kind] : sweep_first)[delta ? n : 0][n_q](
                tile->S, d_k, &pend, prep + l.k + a * d_k, prep + l.q + t * d_k, &sums);

        memcpy(&s, prep + l.scalar + a / PAIR * SCALARS, sizeof(s));
        vec2 p_a = sums.p_0;
        vec2 p_b = end_a ? sums.p_1 : sums.p_0;
        if (head) { // the gates that were left out of the vectors; with a bonus a token reads before its own
            sums.u_a = vec2_scale(s.G_a, sums.u_a);
            sums.u_b = vec2_scale(s.G_b, sums.u_b);
            p_a      = bonus ? p_a : vec2_scale(s.G_a, p_a);
            p_b      = vec2_scale(bonus ? s.G_a : s.G_b, p_b);
        }

        // δ_a = β_a (v_a − u_a),  δ_b = β_b (v_b − u_b − A δ_a);  without β, δ is the value times
        // its factor
        vec2 d_a = vec2_load(tile->x[0] + a * TILE);
        vec2 d_b = { 0 };
        if (delta) {
            d_a = vec2_sub(d_a, sums.u_a);
        }
        d_a = vec2_scale(prep[l.factor + a], d_a);
        if (n == 2) {
            d_b = vec2_load(tile->x[0] + b * TILE);
            if (delta) {
                d_b = vec2_sub(d_b, vec2_fma(s.A, d_a, sums.u_b));
            }
            d_b = vec2_scale(prep[l.factor + b], d_b);
        }

        // o = scale (p + B0 δ_a), and + B1 δ_b for a token that ends with b
        const float * B = prep + l.B + t * PAIR;
        float *       y = tile->y + t * TILE;
        if (end_a) {
            vec2_store(y, vec2_scale(op->scale, vec2_fma(B[0], d_a, p_a)));
            B += PAIR;
            y += TILE;
        }
        if (end_b) {
            vec2_store(y, vec2_scale(op->scale, vec2_fma(B[1], d_b, vec2_fma(B[0], d_a, p_b))));
        }

        const float * keys = prep + (op->gate_kind == GATE_CHANNEL ? l.keys : l.k) + a * d_k;
        pend.decay         = head ? prep + l.scalar + a / PAIR * SCALARS + SCALAR_G_B
                                  : prep + l.decay + a / PAIR * d_k;
        pend.key_a         = keys;
        pend.key_b         = keys + d_k;
        pend.d_a           = head ? vec2_scale(s.M, d_a) : d_a;
        pend.d_b           = d_b;
        n_pend             = n;

        f += PAIR;
        while (f >= n_h) {
            f -= n_h;
            t += 1;
        }
    }
    if (n_pend > 0) {
        sweep_flush[op->gate_kind][n_pend](tile->S, d_k, &pend, NULL, NULL, &sums);
    }
}
