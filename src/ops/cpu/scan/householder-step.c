// The step path of the Householder scan on a tile of columns.
//
//     S ← g ∘ S;   for each factor:  u = Sᵀ k,  δ = β (v − u),  S ← S + k δᵀ;   o = scale · Sᵀ q
//
// One sweep over the rows of the tile per factor: it first applies the pending update of the
// previous factor, then the gate, and sums u and p = Sᵀ q on the way. The output after the last
// update needs no further sweep:
//
//     Sᵀ q after the update = p + (q·k) δ
//
// With r and w, u = Sᵀ r is summed before the gate, the pending update is S ← S − w uᵀ + k vᵀ, and
// the output is p + (q·k) v − (q·w) u.
//
// Every element goes through the same operations in the same order, for any number of threads and
// any cut into calls.

#include "householder.h"

// Offsets into the floats prepared for a segment: the packed vectors of its tokens, and their
// products, which do not depend on the tile.
struct layout {
    int64_t k;    // [tokens][n_h][d_k]
    int64_t q;    // [tokens][d_k]
    int64_t beta; // [tokens][n_h]
    int64_t gate; // [tokens][d_k or 1]
    int64_t r;    // [tokens][d_k]
    int64_t w;    // [tokens][d_k]
    int64_t qk;   // [tokens]   q·k with the last key
    int64_t qw;   // [tokens]   q·w
    int64_t end;
};

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t tokens = tile_scan_segment(dims);
    struct layout l;
    l.k = 0;
    l.q = l.k + tokens * dims->n_h * dims->d_k;
    l.beta = l.q + tokens * dims->d_k;
    l.gate = l.beta + tokens * dims->n_h;
    l.r = l.gate + tokens * dims->d_k;
    l.w = l.r + tokens * dims->d_k;
    l.qk = l.w + tokens * dims->d_k;
    l.qw = l.qk + tokens;
    l.end = l.qw + tokens;
    return l;
}

int64_t householder_step_size(const struct scan_dims * dims) {
    return layout_of(dims).end;
}

void householder_step_prepare(const void * ctx, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const struct householder * op = ctx;
    const int64_t              d_k = op->dims.d_k;
    const int64_t              n_h = op->dims.n_h;
    const struct layout        l = layout_of(&op->dims);

    scan_pack_rows(prep + l.k, &op->k, h, n_h, t0, t1, d_k);
    scan_pack_rows(prep + l.q, &op->q, h, 1, t0, t1, d_k);
    if (op->gate_kind != GATE_NONE) {
        scan_pack_rows(
                prep + l.gate, &op->gate, h, 1, t0, t1, op->gate_kind == GATE_CHANNEL ? d_k : 1);
    }
    if (op->r.data == NULL) {
        scan_pack_rows(prep + l.beta, &op->beta, h, n_h, t0, t1, 1);
    } else {
        scan_pack_rows(prep + l.r, &op->r, h, 1, t0, t1, d_k);
        scan_pack_rows(prep + l.w, &op->w, h, 1, t0, t1, d_k);
    }
    for (int64_t t = 0; t < t1 - t0; ++t) {
        const float * q = prep + l.q + t * d_k;
        prep[l.qk + t] = vec_dot(q, prep + l.k + (t * n_h + n_h - 1) * d_k, d_k);
        if (op->r.data != NULL) {
            prep[l.qw + t] = vec_dot(q, prep + l.w + t * d_k, d_k);
        }
    }
}

// An update, computed but not yet applied: S ← S + k1 d1ᵀ; with r and w also + k2 d2ᵀ.
struct pending {
    const float * k1;
    const float * k2;
    vec2          d1;
    vec2          d2;
};

struct sums {
    vec2 u;
    vec2 p;
};

// One row of a sweep. The flags are constants at every call.
SIMD_INLINE void sweep_row(float * S, int64_t i, bool pend1, bool pend2,
        const struct pending * pend, enum gate_kind gate_kind, const float * g, bool read_first,
        const float * k, const float * q, vec2 * u, vec2 * p) {
    vec2 s = vec2_load(S + i * TILE);
    if (pend1) {
        s = vec2_fma(pend->k1[i], pend->d1, s);
    }
    if (pend2) {
        s = vec2_fma(pend->k2[i], pend->d2, s);
    }
    if (read_first) {
        *u = vec2_fma(k[i], s, *u);
    }
    if (gate_kind != GATE_NONE) {
        s = vec2_scale(g[gate_kind == GATE_CHANNEL ? i : 0], s);
    }
    if (pend1 || gate_kind != GATE_NONE) {
        vec2_store(S + i * TILE, s);
    }
    if (!read_first && k != NULL) {
        *u = vec2_fma(k[i], s, *u);
    }
    if (q != NULL) {
        *p = vec2_fma(q[i], s, *p);
    }
}

SIMD_INLINE struct sums sweep_rows(float * S, int64_t d_k, bool pend1, bool pend2,
        const struct pending * pend, enum gate_kind gate_kind, const float * g, bool read_first,
        const float * k, const float * q) {
    const struct pending held = *pend; // copies that stay in registers
    vec2                 u = { 0 };
    vec2                 p = { 0 };
    for (int64_t i = 0; i < d_k; ++i) {
        sweep_row(S, i, pend1, pend2, &held, gate_kind, g, read_first, k, q, &u, &p);
    }
    return (struct sums) { u, p };
}

// Makes the gate kind a constant, so that each kind gets a separate loop.
SIMD_INLINE struct sums sweep_gated(float * S, int64_t d_k, bool pend1, bool pend2,
        const struct pending * pend, enum gate_kind gate_kind, const float * g, bool read_first,
        const float * k, const float * q) {
    switch (gate_kind) {
        case GATE_HEAD:
            return sweep_rows(S, d_k, pend1, pend2, pend, GATE_HEAD, g, read_first, k, q);
        case GATE_CHANNEL:
            return sweep_rows(S, d_k, pend1, pend2, pend, GATE_CHANNEL, g, read_first, k, q);
        default: return sweep_rows(S, d_k, pend1, pend2, pend, GATE_NONE, g, read_first, k, q);
    }
}

// Applies the pending update if `has`, then the gate; sums u = Sᵀ k, and p = Sᵀ q if q is not NULL.
static struct sums sweep_delta(float * S, int64_t d_k, bool has, const struct pending * pend,
        enum gate_kind gate_kind, const float * g, const float * k, const float * q) {
    if (has) {
        return q != NULL ? sweep_gated(S, d_k, true, false, pend, gate_kind, g, false, k, q)
                         : sweep_gated(S, d_k, true, false, pend, gate_kind, g, false, k, NULL);
    }
    return q != NULL ? sweep_gated(S, d_k, false, false, pend, gate_kind, g, false, k, q)
                     : sweep_gated(S, d_k, false, false, pend, gate_kind, g, false, k, NULL);
}

static struct sums sweep_rank_one(float * S, int64_t d_k, bool has, const struct pending * pend,
        enum gate_kind gate_kind, const float * g, const float * r, const float * q) {
    return has ? sweep_gated(S, d_k, true, true, pend, gate_kind, g, true, r, q)
               : sweep_gated(S, d_k, false, false, pend, gate_kind, g, true, r, q);
}

static void step_delta(
        const struct householder * op, const struct tile * tile, const float * prep) {
    const int64_t d_k = op->dims.d_k;
    const int64_t n_h = op->dims.n_h;
    const int64_t width = op->gate_kind == GATE_CHANNEL ? d_k : 1;

    const struct layout l = layout_of(&op->dims);

    struct pending pend = { 0 };

    for (int64_t t = 0; t < tile->t1 - tile->t0; ++t) {
        for (int64_t f = 0; f < n_h; ++f) {
            const bool    first = f == 0;
            const bool    last = f == n_h - 1;
            const float * k = prep + l.k + (t * n_h + f) * d_k;
            const float * v = tile->x[0] + (t * n_h + f) * tile->x_row[0];
            const float   beta = prep[l.beta + t * n_h + f];

            const struct sums sums = sweep_delta(tile->S, d_k, pend.k1 != NULL, &pend,
                    first ? op->gate_kind : GATE_NONE, prep + l.gate + t * width, k,
                    last ? prep + l.q + t * d_k : NULL);

            pend.k1 = k;
            pend.d1 = vec2_scale(beta, vec2_sub(vec2_load(v), sums.u)); // δ
            if (last) {
                vec2_store(tile->y + t * tile->y_row,
                        vec2_scale(op->scale, vec2_fma(prep[l.qk + t], pend.d1, sums.p)));
            }
        }
        prefetch_list(tile->prefetch, n_h);
        prefetch_rest(tile->prefetch, 0);
    }
    if (pend.k1 != NULL) {
        sweep_rows(tile->S, d_k, true, false, &pend, GATE_NONE, NULL, false, NULL, NULL);
    }
}

static void step_rank_one(
        const struct householder * op, const struct tile * tile, const float * prep) {
    const int64_t d_k = op->dims.d_k;
    const int64_t width = op->gate_kind == GATE_CHANNEL ? d_k : 1;

    const struct layout l = layout_of(&op->dims);

    struct pending pend = { 0 };

    for (int64_t t = 0; t < tile->t1 - tile->t0; ++t) {
        const struct sums sums = sweep_rank_one(tile->S, d_k, pend.k1 != NULL, &pend, op->gate_kind,
                prep + l.gate + t * width, prep + l.r + t * d_k, prep + l.q + t * d_k);

        pend.k1 = prep + l.w + t * d_k;
        pend.k2 = prep + l.k + t * d_k;
        pend.d1 = vec2_scale(-1.0f, sums.u);
        pend.d2 = vec2_load(tile->x[0] + t * tile->x_row[0]); // v
        const vec2 o = vec2_fma(prep[l.qk + t], pend.d2, vec2_fma(prep[l.qw + t], pend.d1, sums.p));
        vec2_store(tile->y + t * tile->y_row, vec2_scale(op->scale, o));
        prefetch_list(tile->prefetch, 1);
        prefetch_rest(tile->prefetch, 0);
    }
    if (pend.k1 != NULL) {
        sweep_rows(tile->S, d_k, true, true, &pend, GATE_NONE, NULL, false, NULL, NULL);
    }
}

void householder_step_run(const void * ctx, const struct tile * tile, const float * prep) {
    const struct householder * op = ctx;
    (op->r.data != NULL ? step_rank_one : step_delta)(op, tile, prep);
}
