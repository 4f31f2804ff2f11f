// The chunk path of both scans: several factors at a time.
//
// A sweep that applies one factor to a tile loads and stores every element of the state for two or
// three multiplications, and the stores limit its speed. With CHUNK factors per sweep, they no
// longer do. The registers, which hold the sums and updates of a chunk, limit its size.
//
// Let S be the state before the chunk and 0, 1, … its factors. A gate is applied before the first
// factor of a token. G_f is the product of all gates of the chunk up to factor f, and P_fj that of
// the gates after factor j and up to f. Each is 1 where there is no gate.
//
//     δ_f = β_f (v_f − Sᵀ(G_f ∘ k_f) − Σ_{j<f} A_fj δ_j)    A_fj = k_f·(P_fj ∘ k_j)
//                                              without β (diagonal transition): δ = v
//     S  ← G_l ∘ S + Σ_j (P_lj ∘ k_j) δ_jᵀ     l: the last factor
//                                              pending until the sweep of the next chunk
//
// Output of a token whose last factor is f:
//
//     o = scale (Sᵀ(G_f ∘ q) + Σ_{j≤f} B_fj δ_j)            B_fj = q·(P_fj ∘ k_j)
//
// With a bonus, a token reads the state before its own gate and update: its own gate drops out of G
// and P in o, and q·(bonus ∘ k) replaces the product of q with its own key.
//
// Gates are only multiplied. No gate is divided by and no logarithm is taken, so any sign works,
// and so does zero.

#include "scan-chunk.h"

// Offsets into the floats prepared for a segment. A row has d_k floats, and zeros up to the next
// multiple of VEC. A gate per head is not multiplied into the vectors but applied to the sums.
struct layout {
    int64_t row;    // floats per row
    int64_t k;      // [factors][row]   G ∘ k; k itself unless the gate is per key channel
    int64_t q;      // [tokens][row]    G ∘ q
    int64_t keys;   // [factors][row]   P ∘ k; only if the gate is per key channel
    int64_t decay;  // [chunks][row]    G_l
    int64_t beta;   // [factors]        β, or the multiplier of x
    int64_t scalar; // [chunks]         struct scalars
    int64_t end;
};

enum {
    PRODUCTS = CHUNK * CHUNK,                // A_fj with j < f and B_fj with j ≤ f
    PRODUCTS_B = CHUNK * (CHUNK + 1) / 2,    // B only
    SUMS = (PRODUCTS + VEC - 1) / VEC * VEC, // for vec_sums
};

// Positions of B_fj and A_fj among the products.
static inline int at_B(int f, int j) {
    return f * (f + 1) / 2 + j;
}

static inline int at_A(int f, int j) {
    return PRODUCTS_B + f * (f - 1) / 2 + j;
}

struct scalars {
    float product[SUMS]; // B_fj is valid only if f is the last factor of a token
    // a gate per head: products of gates for u_f and q_f, multipliers of δ, multiplier of S
    float G_u[CHUNK], G_q[CHUNK], P[CHUNK], decay;
};

enum { SCALARS = sizeof(struct scalars) / sizeof(float) };

// The factors of a segment, in whole chunks.
static int64_t chunks_of(int64_t factors) {
    return (factors + CHUNK - 1) / CHUNK;
}

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t tokens = tile_scan_segment(dims);
    const int64_t chunks = chunks_of(tokens * dims->n_h);
    const int64_t factors = chunks * CHUNK;
    struct layout l;
    l.row = (dims->d_k + VEC - 1) / VEC * VEC;
    l.k = 0;
    l.q = l.k + factors * l.row;
    l.keys = l.q + tokens * l.row;
    l.decay = l.keys + factors * l.row;
    l.beta = l.decay + chunks * l.row;
    l.scalar = l.beta + factors;
    l.end = l.scalar + chunks * SCALARS;
    return l;
}

int64_t scan_chunk_size(const struct scan_dims * dims) {
    return layout_of(dims).end;
}

// ---- Preparation --------------------------------------------------------------------------------

// The rows of the factors of one chunk. A chunk at the end of a segment may have less than CHUNK
// factors; the others have zero rows.
struct factors {
    int           n;
    const float * k[CHUNK];
    const float * q[CHUNK];     // NULL unless the factor is the last of its token
    const float * g[CHUNK];     // NULL unless it is the first, and gated
    const float * bonus;        // or NULL
    float *       q_out[CHUNK]; // where G ∘ q goes
};

SIMD_INLINE vec load(const float * p, bool full, int64_t n) {
    return full ? vec_load(p) : vec_load_n(p, n);
}

// What is constant at every call of the functions below.
struct kind {
    bool channel; // a gate per key channel
    bool delta;
    bool bonus;
    bool whole; // the factors are CHUNK whole tokens, and rows are whole vectors
};

// A vector of key channels from i on, for all factors; cols < VEC only at the end of a row.
SIMD_INLINE void prepare_cols(const struct factors * x, struct kind kind, bool full, int64_t row,
        int64_t i, int64_t cols, float * k_out, float * keys, float * decay, vec product[SUMS]) {
    vec G = vec_set1(1.0f);
    vec K[CHUNK]; // P_fj ∘ k_j
    UNROLL(4) for (int f = 0; f < CHUNK; ++f) {
        const bool last = kind.whole || x->q[f] != NULL;
        const bool gated = kind.channel && (kind.whole || x->g[f] != NULL);
        const vec  zero = { 0.0f };
        const vec  k = kind.whole || f < x->n ? load(x->k[f] + i, full, cols) : zero;
        const vec  q = last ? load(x->q[f] + i, full, cols) : zero;

        if (kind.bonus && last) { // reads before its own gate
            vec_store(x->q_out[f] + i, kind.channel ? G * q : q);
            UNROLL(4) for (int j = 0; j < f; ++j) {
                product[at_B(f, j)] = vec_fma(q, K[j], product[at_B(f, j)]);
            }
            const vec b = load(x->bonus + i, full, cols);
            product[at_B(f, f)] = vec_fma(q * b, k, product[at_B(f, f)]);
        }
        if (gated) {
            const vec g = load(x->g[f] + i, full, cols);
            G = f == 0 ? g : G * g;
            UNROLL(4) for (int j = 0; j < f; ++j) {
                K[j] = g * K[j];
            }
        }
        if (kind.delta) {
            UNROLL(4) for (int j = 0; j < f; ++j) {
                product[at_A(f, j)] = vec_fma(k, K[j], product[at_A(f, j)]);
            }
        }
        K[f] = k;
        if (kind.delta || !kind.channel) {
            vec_store(k_out + f * row + i, kind.channel ? G * k : k);
        }
        if (!kind.bonus && last) {
            vec_store(x->q_out[f] + i, kind.channel ? G * q : q);
            UNROLL(4) for (int j = 0; j <= f; ++j) {
                product[at_B(f, j)] = vec_fma(q, K[j], product[at_B(f, j)]);
            }
        }
    }
    if (kind.channel) {
        vec_store(decay + i, G);
        UNROLL(4) for (int f = 0; f < CHUNK; ++f) {
            vec_store(keys + f * row + i, K[f]);
        }
    }
}

SIMD_INLINE void prepare_rows(const struct factors * x, struct kind kind, int64_t d_k, int64_t row,
        float * k_out, float * keys, float * decay, float * products) {
    vec     product[SUMS] = { 0 }; // in the lanes
    int64_t i = 0;
    for (; i + VEC <= d_k; i += VEC) {
        prepare_cols(x, kind, true, row, i, VEC, k_out, keys, decay, product);
    }
    if (!kind.whole && i < d_k) {
        prepare_cols(x, kind, false, row, i, d_k - i, k_out, keys, decay, product);
    }
    UNROLL(4) for (int j = 0; j < SUMS; j += VEC) {
        vec_sums(products + j, product + j);
    }
}

#define PREPARE(name_, channel_, delta_, bonus_, whole_)                                 \
    static void name_(const struct factors * x, int64_t d_k, int64_t row, float * k_out, \
            float * keys, float * decay, float * products) {                             \
        const struct kind kind = { channel_, delta_, bonus_, whole_ };                   \
        prepare_rows(x, kind, d_k, row, k_out, keys, decay, products);                   \
    }
PREPARE(prepare_channel_delta, true, true, false, false)
PREPARE(prepare_channel_delta_whole, true, true, false, true)
PREPARE(prepare_channel, true, false, false, false)
PREPARE(prepare_channel_whole, true, false, false, true)
PREPARE(prepare_channel_bonus, true, false, true, false)
PREPARE(prepare_channel_bonus_whole, true, false, true, true)
PREPARE(prepare_delta, false, true, false, false)
PREPARE(prepare_delta_whole, false, true, false, true)
PREPARE(prepare_plain, false, false, false, false)
PREPARE(prepare_plain_whole, false, false, false, true)
PREPARE(prepare_bonus, false, false, true, false)
PREPARE(prepare_bonus_whole, false, false, true, true)

typedef void (*prepare_fn)(const struct factors * x, int64_t d_k, int64_t row, float * k_out,
        float * keys, float * decay, float * products);

// [gate per key channel][none, delta, bonus][whole]
static const prepare_fn prepare_fns[2][3][2] = {
    { { prepare_plain, prepare_plain_whole }, { prepare_delta, prepare_delta_whole },
            { prepare_bonus, prepare_bonus_whole } },
    { { prepare_channel, prepare_channel_whole },
            { prepare_channel_delta, prepare_channel_delta_whole },
            { prepare_channel_bonus, prepare_channel_bonus_whole } },
};

// Gates per head: their products, multiplied into A and B.
static void prepare_head_gates(const struct factors * x, struct scalars * s) {
    const bool bonus = x->bonus != NULL;
    float      G = 1.0f;
    for (int f = 0; f < CHUNK; ++f) {
        s->P[f] = 1.0f;
    }
    for (int f = 0; f < x->n; ++f) {
        const float g = x->g[f] != NULL ? x->g[f][0] : 1.0f;
        s->G_q[f] = bonus ? G : G * g;
        for (int j = 0; j < f; ++j) {
            s->product[at_B(f, j)] *= bonus ? s->P[j] : s->P[j] * g;
            s->P[j] *= g;
            s->product[at_A(f, j)] *= s->P[j];
        }
        G *= g;
        s->G_u[f] = G;
    }
    s->decay = G;
}

void scan_chunk_prepare(
        const struct scan_chunk * op, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const int64_t       d_k = op->dims.d_k;
    const int64_t       n_h = op->dims.n_h;
    const int64_t       factors = (t1 - t0) * n_h;
    const bool          delta = op->beta.data != NULL;
    const struct layout l = layout_of(&op->dims);

    if (delta) {
        scan_pack_rows(prep + l.beta, &op->beta, h, n_h, t0, t1, 1);
    } else if (op->in.data != NULL) {
        scan_pack_rows(prep + l.beta, &op->in, h, 1, t0, t1, 1);
    } else {
        for (int64_t r = 0; r < factors; ++r) {
            prep[l.beta + r] = 1.0f;
        }
    }
    struct factors x = { .bonus = op->bonus.data != NULL ? tokens_row(&op->bonus, h, 0, 0) : NULL };
    int64_t        t = t0;
    int64_t        f = 0; // of token t
    for (int64_t r = 0; r < factors; r += CHUNK) {
        x.n = 0;
        for (int i = 0; i < CHUNK; ++i) {
            x.k[i] = x.q[i] = x.g[i] = NULL;
            if (r + i >= factors) {
                continue;
            }
            ++x.n;
            x.k[i] = tokens_row(&op->k, h, f, t);
            if (f == 0 && op->gate_kind != GATE_NONE) {
                x.g[i] = tokens_row(&op->gate, h, 0, t);
            }
            if (++f == n_h) {
                x.q[i] = tokens_row(&op->q, h, 0, t);
                x.q_out[i] = prep + l.q + (t - t0) * l.row;
                f = 0;
                ++t;
            }
        }
        float *          k = prep + l.k + r * l.row;
        float *          keys = prep + l.keys + r * l.row;
        float *          decay = prep + l.decay + r / CHUNK * l.row;
        struct scalars * s = (struct scalars *) (prep + l.scalar + r / CHUNK * SCALARS);
        const bool       whole = n_h == 1 && x.n == CHUNK && d_k == l.row;
        prepare_fns[op->gate_kind == GATE_CHANNEL][delta             ? 1
                                                   : x.bonus != NULL ? 2
                                                                     : 0][whole](
                &x, d_k, l.row, k, keys, decay, s->product);
        if (op->gate_kind == GATE_HEAD) {
            prepare_head_gates(&x, s);
        }
    }
}

// ---- A tile through a segment -------------------------------------------------------------------

// The update of a chunk, computed but not yet applied: S ← decay ∘ S + Σ_j keys_j δ_jᵀ
struct pending {
    const float * decay;
    const float * keys; // [CHUNK][row]
    vec2          d[CHUNK];
};

struct sums {
    vec2 u[CHUNK]; // Sᵀ k
    vec2 p[CHUNK]; // Sᵀ q of the tokens that end in the chunk
};

// One row of the sweep.
SIMD_INLINE void sweep_row(float * S, int64_t i, int64_t row, bool pend, enum gate_kind kind,
        const float * decay, const float * keys, const vec2 d[CHUNK], int n_k, const float * k,
        int n_q, const float * q, vec2 u[CHUNK], vec2 p[CHUNK]) {
    vec2 s = vec2_load(S + i * TILE);
    if (pend) {
        if (kind != GATE_NONE) {
            s = vec2_scale(decay[kind == GATE_CHANNEL ? i : 0], s);
        }
        UNROLL(4) for (int j = 0; j < CHUNK; ++j) {
            s = vec2_fma(keys[j * row + i], d[j], s);
        }
        vec2_store(S + i * TILE, s);
    }
    UNROLL(4) for (int j = 0; j < n_k; ++j) {
        u[j] = vec2_fma(k[j * row + i], s, u[j]);
    }
    UNROLL(4) for (int j = 0; j < n_q; ++j) {
        p[j] = vec2_fma(q[j * row + i], s, p[j]);
    }
}

// One sweep over the tile: applies the pending update, then sums n_k products with keys and n_q
// products with queries. pend, the counts and the gate kind are constants at every call.
SIMD_INLINE void sweep_rows(float * S, int64_t d_k, int64_t row, bool pend, enum gate_kind kind,
        const struct pending * pending, int n_k, const float * k, int n_q, const float * q,
        struct sums * sums, const struct tile_prefetch * prefetch) {
    const float * decay = pending->decay;
    const float * keys = pending->keys;
    vec2          d[CHUNK], u[CHUNK], p[CHUNK]; // in registers
    UNROLL(4) for (int j = 0; j < CHUNK; ++j) {
        d[j] = pending->d[j];
        u[j] = p[j] = (vec2) { 0 };
    }
    int64_t i = 0;
    for (int b = 0; b < prefetch->n && i + BURST_LINES <= d_k; ++b, i += BURST_LINES) {
        const float * burst = prefetch->burst[b];
        UNROLL(4) for (int j = 0; j < BURST_LINES; ++j) {
            prefetch_line(burst, j);
            sweep_row(S, i + j, row, pend, kind, decay, keys, d, n_k, k, n_q, q, u, p);
        }
    }
    for (; i < d_k; ++i) {
        sweep_row(S, i, row, pend, kind, decay, keys, d, n_k, k, n_q, q, u, p);
    }
    UNROLL(4) for (int j = 0; j < CHUNK; ++j) {
        sums->u[j] = u[j];
        sums->p[j] = p[j];
    }
}

// Each combination that occurs is a separate function, so that each loop has all registers.
typedef void (*sweep_fn)(float * S, int64_t d_k, int64_t row, const struct pending * pending,
        const float * k, const float * q, struct sums * sums,
        const struct tile_prefetch * prefetch);

// clang-format off
#define SWEEP(p_, gate_, k_, q_)                                                                   \
    static void sweep_##p_##_##gate_##_##k_##_##q_(float * S, int64_t d_k, int64_t row,            \
            const struct pending * pend, const float * k, const float * q, struct sums * sums,     \
            const struct tile_prefetch * prefetch) {                                               \
        sweep_rows(S, d_k, row, p_, gate_, pend, (k_) * CHUNK, k, q_, q, sums, prefetch);          \
    }
#define SWEEP_NAME(p_, gate_, k_, q_) sweep_##p_##_##gate_##_##k_##_##q_,

// number of queries
#if CHUNK == 4
#    define EACH_Q(f, p_, gate_, k_) \
         f(p_, gate_, k_, 0) f(p_, gate_, k_, 1) f(p_, gate_, k_, 2) f(p_, gate_, k_, 3) \
         f(p_, gate_, k_, 4)
#else
#    define EACH_Q(f, p_, gate_, k_) \
         f(p_, gate_, k_, 0) f(p_, gate_, k_, 1) f(p_, gate_, k_, 2)
#endif

EACH_Q(SWEEP, 0, GATE_NONE,    0) EACH_Q(SWEEP, 0, GATE_NONE,    1) // nothing is pending
EACH_Q(SWEEP, 1, GATE_NONE,    0) EACH_Q(SWEEP, 1, GATE_NONE,    1)
EACH_Q(SWEEP, 1, GATE_HEAD,    0) EACH_Q(SWEEP, 1, GATE_HEAD,    1)
EACH_Q(SWEEP, 1, GATE_CHANNEL, 0) EACH_Q(SWEEP, 1, GATE_CHANNEL, 1)

#define SWEEPS(p_, gate_) \
    { { EACH_Q(SWEEP_NAME, p_, gate_, 0) }, { EACH_Q(SWEEP_NAME, p_, gate_, 1) } }

// [delta][queries], [gate][delta][queries]
static const sweep_fn sweep_first[2][CHUNK + 1]   = SWEEPS(0, GATE_NONE);
static const sweep_fn sweep_next[3][2][CHUNK + 1] = {
    SWEEPS(1, GATE_NONE), SWEEPS(1, GATE_HEAD), SWEEPS(1, GATE_CHANNEL)
};
// clang-format on

// What remains of a chunk after its sweep: δ, the outputs of the tokens that end in it, and the
// pending update. n is the number of its factors; the others have δ = 0. The last factor of the
// first of these tokens is `end`. delta, head and whole are constants at every call.
//
//     δ_f = β_f (v_f − u_f − Σ_{j<f} A_fj δ_j) ;   without β: δ = (multiplier of x) · v
//     o   = scale (p + Σ_{j≤f} B_fj δ_j)
SIMD_INLINE void finish(bool delta, bool head, bool whole, int n, int64_t end, int64_t n_h,
        const struct scalars * s, const float * beta, float scale, const struct sums * sums,
        const float * v, int64_t v_row, float * y, int64_t y_row, vec2 pending[CHUNK]) {
    vec2 d[CHUNK];
    int  token = 0;
    UNROLL(4) for (int f = 0; f < CHUNK; ++f) {
        d[f] = (vec2) { 0 };
        if (whole || f < n) {
            d[f] = vec2_load(v + f * v_row);
            if (delta) {
                d[f] = vec2_sub(d[f], head ? vec2_scale(s->G_u[f], sums->u[f]) : sums->u[f]);
                UNROLL(4) for (int j = 0; j < f; ++j) {
                    d[f] = vec2_fma(-s->product[at_A(f, j)], d[j], d[f]);
                }
            }
            d[f] = vec2_scale(beta[f], d[f]);
        }
        if (whole || (f == end && f < n)) {
            const vec2 p = sums->p[whole ? f : token];
            vec2       o = head ? vec2_scale(s->G_q[f], p) : p;
            UNROLL(4) for (int j = 0; j <= f; ++j) {
                o = vec2_fma(s->product[at_B(f, j)], d[j], o);
            }
            vec2_store(y + (whole ? f : token) * y_row, vec2_scale(scale, o));
            ++token;
            end += n_h;
        }
        pending[f] = head ? vec2_scale(s->P[f], d[f]) : d[f];
    }
}

// The segment; delta and head are constants at every call.
SIMD_INLINE void run(const struct scan_chunk * op, const struct tile * tile, const float * prep,
        bool delta, bool head) {
    const int64_t       d_k = op->dims.d_k;
    const int64_t       n_h = op->dims.n_h;
    const int64_t       factors = (tile->t1 - tile->t0) * n_h;
    const struct layout l = layout_of(&op->dims);
    const int64_t       keys = op->gate_kind == GATE_CHANNEL ? l.keys : l.k;

    struct pending pend = { 0 };
    struct sums    sums;
    int64_t        t = 0;         // tokens that ended before the chunk, relative to the segment
    int64_t        end = n_h - 1; // the next last factor of a token, relative to the chunk

    for (int64_t r = 0; r < factors; r += CHUNK) {
        const int              n = (int) (factors - r < CHUNK ? factors - r : CHUNK);
        const int              n_q = end < n ? (int) ((n - 1 - end) / n_h + 1) : 0;
        const struct scalars * s = (const struct scalars *) (prep + l.scalar + r / CHUNK * SCALARS);
        const float *          beta = prep + l.beta + r;
        const float *          v = tile->x[0] + r * tile->x_row[0];
        float *                y = tile->y + t * tile->y_row;

        prefetch_list(tile->prefetch, n);
        (r > 0 ? sweep_next[op->gate_kind] : sweep_first)[delta][n_q](tile->S, d_k, l.row, &pend,
                prep + l.k + r * l.row, prep + l.q + t * l.row, &sums, tile->prefetch);
        prefetch_rest(tile->prefetch, (int) (d_k / BURST_LINES));
        if (n_q == CHUNK) {
            finish(delta, head, true, CHUNK, 0, 1, s, beta, op->scale, &sums, v, tile->x_row[0], y,
                    tile->y_row, pend.d);
        } else {
            finish(delta, head, false, n, end, n_h, s, beta, op->scale, &sums, v, tile->x_row[0], y,
                    tile->y_row, pend.d);
        }
        pend.decay = head ? &s->decay : prep + l.decay + r / CHUNK * l.row;
        pend.keys = prep + keys + r * l.row;
        t += n_q;
        end += n_q * n_h - n;
    }
    if (factors > 0) {
        tile->prefetch->n = 0;
        sweep_next[op->gate_kind][0][0](
                tile->S, d_k, l.row, &pend, NULL, NULL, &sums, tile->prefetch);
    }
}

// Each combination is a separate function, so that each loop has all registers.
#define RUN(name_, delta_, head_)                                                         \
    static void name_(                                                                    \
            const struct scan_chunk * op, const struct tile * tile, const float * prep) { \
        run(op, tile, prep, delta_, head_);                                               \
    }
RUN(run_delta, true, false)
RUN(run_delta_head, true, true)
RUN(run_diagonal, false, false)
RUN(run_diagonal_head, false, true)

void scan_chunk_run(const struct scan_chunk * op, const struct tile * tile, const float * prep) {
    const bool head = op->gate_kind == GATE_HEAD;
    if (op->beta.data != NULL) {
        (head ? run_delta_head : run_delta)(op, tile, prep);
    } else {
        (head ? run_diagonal_head : run_diagonal)(op, tile, prep);
    }
}
