// The step path of the signed-gate scan on a tile of columns.
//
//     S ← A ∘ S + b xᵀ ,   y = scale · Sᵀ c
//     per element:  s ← a s + b_i x_j ,   y_j += c_i s
//
// Elements are independent. So a row of the tile is loaded once and goes through STEP_TOKENS tokens
// in registers before the next row. The sums y of these tokens stay in registers from row to row.
// Every element goes through the same operations in the same order, for any cut into groups of
// tokens, segments or calls.

#include "signed.h"

enum { STEP_TOKENS = 4 }; // their sums need eight of sixteen vector registers

// One token, for one tile.
struct step_token {
    const float * c;
    const float * b;
    const float * gate; // per key channel
    float         a;    // gate per head
    vec2          x;    // times dt, or times the input gate of mLSTM
    vec2          dt;   // Mamba
};

// Takes one row of the tile through one token. kind, form, near and bonus are constants at every
// call.
SIMD_INLINE void step_row(vec2 * s, vec2 * y, int64_t i, int kind, int form, bool near, bool bonus,
        const struct step_token * tok, const float * A) {
    if (bonus) { // read before the update
        *y = vec2_fma(tok->c[i], *s, *y);
    }
    switch (kind) {
        case SIGNED_SCAN_NONE: break;
        case SIGNED_SCAN_CHANNEL: *s = vec2_scale(tok->gate[i], *s); break;
        case SIGNED_SCAN_ELEMENT: {
            const vec2 A_i = vec2_load(A + i * TILE);
            *s = vec2_mul((vec2) { transition(form, near, tok->dt.a, A_i.a),
                                  transition(form, near, tok->dt.b, A_i.b) },
                    *s);
        } break;
        default: *s = vec2_scale(tok->a, *s); break;
    }
    *s = vec2_fma(tok->b[i], tok->x, *s);
    if (!bonus) {
        *y = vec2_fma(tok->c[i], *s, *y);
    }
}

SIMD_INLINE void step_rows(float * S, int64_t d_k, int n, int kind, int form, bool near, bool bonus,
        const struct step_token * tok, const float * A, struct fetch fetch, vec2 * y) {
    vec2 y0 = { 0 }, y1 = { 0 }, y2 = { 0 }, y3 = { 0 };
    for (int64_t i = 0; i < d_k; ++i) {
        if (i < fetch.n) {
            prefetch_burst(fetch.burst[i]);
        }
        vec2 s = vec2_load(S + i * TILE);
        step_row(&s, &y0, i, kind, form, near, bonus, tok, A);
        if (n == STEP_TOKENS) {
            step_row(&s, &y1, i, kind, form, near, bonus, tok + 1, A);
            step_row(&s, &y2, i, kind, form, near, bonus, tok + 2, A);
            step_row(&s, &y3, i, kind, form, near, bonus, tok + 3, A);
        }
        vec2_store(S + i * TILE, s);
    }
    y[0] = y0;
    if (n == STEP_TOKENS) {
        y[1] = y1;
        y[2] = y2;
        y[3] = y3;
    }
}

// Chooses the loop: in each branch everything but the data is a constant.
static void step_tokens(const struct signed_scan * op, float * S, int n, bool near,
        const struct step_token * tok, const float * A, struct fetch fetch, vec2 y[STEP_TOKENS]) {
    const int64_t d_k = op->dims.d_k;
#define STEP_N(kind_, form_, near_, bonus_)                                              \
    if (n == STEP_TOKENS) {                                                              \
        step_rows(S, d_k, STEP_TOKENS, kind_, form_, near_, bonus_, tok, A, fetch, y);   \
    } else                                                                               \
        for (int l = 0; l < n; ++l) {                                                    \
            step_rows(S, d_k, 1, kind_, form_, near_, bonus_, tok + l, A, fetch, y + l); \
        }
#define STEP_BONUS(kind_)              \
    if (op->p.bonus) {                 \
        STEP_N(kind_, 0, false, true)  \
    } else {                           \
        STEP_N(kind_, 0, false, false) \
    }
#define STEP_NEAR(form_)                                 \
    if (near) {                                          \
        STEP_N(SIGNED_SCAN_ELEMENT, form_, true, false)  \
    } else {                                             \
        STEP_N(SIGNED_SCAN_ELEMENT, form_, false, false) \
    }
    switch (op->p.kind) {
        case SIGNED_SCAN_NONE: STEP_BONUS(SIGNED_SCAN_NONE) break;
        case SIGNED_SCAN_CHANNEL: STEP_BONUS(SIGNED_SCAN_CHANNEL) break;
        case SIGNED_SCAN_ELEMENT:
            if (op->p.form == GGML_SIGNED_SCAN_EXP) {
                STEP_NEAR(GGML_SIGNED_SCAN_EXP)
            } else {
                STEP_NEAR(GGML_SIGNED_SCAN_TWO_EXP_M1)
            }
            break;
        default: STEP_BONUS(SIGNED_SCAN_HEAD) break;
    }
#undef STEP_NEAR
#undef STEP_BONUS
#undef STEP_N
}

// Offsets into the floats prepared for a segment: the packed vectors of its tokens.
struct layout {
    int64_t c;     // [tokens][d_k]
    int64_t b;     // [tokens][d_k]
    int64_t gate;  // [tokens][d_k]
    int64_t bonus; // [tokens]            Σ_i c_i bonus_i b_i
    int64_t end;
};

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t tokens = tile_scan_segment(dims);
    struct layout l;
    l.c = 0;
    l.b = l.c + tokens * dims->d_k;
    l.gate = l.b + tokens * dims->d_k;
    l.bonus = l.gate + tokens * dims->d_k;
    l.end = l.bonus + tokens;
    return l;
}

int64_t signed_step_size(const struct scan_dims * dims) {
    return layout_of(dims).end;
}

void signed_step_prepare(const void * ctx, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const struct signed_scan * op = ctx;
    const int64_t              d_k = op->dims.d_k;
    const struct layout        l = layout_of(&op->dims);

    scan_pack_rows(prep + l.c, &op->c, h, 1, t0, t1, d_k);
    scan_pack_rows(prep + l.b, &op->b, h, 1, t0, t1, d_k);
    if (op->p.kind == SIGNED_SCAN_CHANNEL) {
        scan_pack_rows(prep + l.gate, &op->gate, h, 1, t0, t1, d_k);
    }
    for (int64_t t = 0; op->p.bonus && t < t1 - t0; ++t) {
        const float * u = tokens_row(&op->bonus, h, 0, 0);
        float         sum = 0.0f;
        for (int64_t i = 0; i < d_k; ++i) {
            sum = fma1(prep[l.c + t * d_k + i] * u[i], prep[l.b + t * d_k + i], sum);
        }
        prep[l.bonus + t] = sum;
    }
}

// A times EXP_SCALE in the order of tiles: [tile][d_k][TILE], then the largest of each column,
// without sign, [tile][TILE].
static int64_t tiles_cols(const struct scan_dims * dims) {
    return (dims->d_v + TILE - 1) / TILE * TILE;
}

int64_t signed_step_A_size(const struct scan_dims * dims) {
    return tiles_cols(dims) * (dims->d_k + 1);
}

void signed_step_A(const struct signed_scan * op, int ith, int nth) {
    const int64_t d_k = op->dims.d_k;
    const int64_t cols = tiles_cols(&op->dims);
    for (int64_t r = ith; r < op->dims.n_head * cols; r += nth) {
        const int64_t h = r / cols;
        const int64_t j = r % cols;
        const char *  A = head_A(op, h) + j * (int64_t) op->A->nb[0];
        float *       head = op->tiles_A + h * signed_step_A_size(&op->dims);
        float         most = 0.0f;
        for (int64_t i = 0; i < d_k; ++i) {
            const float a =
                    j < op->dims.d_v ? EXP_SCALE * *(const float *) (A + i * op->A->nb[1]) : 0.0f;
            head[(j / TILE * d_k + i) * TILE + j % TILE] = a;
            most = fabsf(a) <= most ? most : fabsf(a); // a NaN stays
        }
        head[cols * d_k + j] = most;
    }
}

void signed_step_run(const void * ctx, const struct tile * tile, const float * prep) {
    const struct signed_scan * op = ctx;
    const struct layout        at = layout_of(&op->dims);
    const int64_t              d_k = op->dims.d_k;
    const int32_t              kind = op->p.kind;
    const int64_t              tokens = tile->t1 - tile->t0;
    const float *              A = NULL; // [d_k][TILE]
    vec2                       most = { 0 };
    if (kind == SIGNED_SCAN_ELEMENT) {
        const float * head = op->tiles_A + tile->h * signed_step_A_size(&op->dims);
        A = head + tile->col * d_k;
        most = vec2_load(head + tiles_cols(&op->dims) * d_k + tile->col);
    }

    for (int64_t t = 0; t < tokens; t += STEP_TOKENS) {
        const int         n = (int) (tokens - t < STEP_TOKENS ? tokens - t : STEP_TOKENS);
        struct step_token tok[STEP_TOKENS];
        bool              near = true; // |dt A| ≤ EXP_NEAR
        for (int l = 0; l < n; ++l) {
            tok[l].c = prep + at.c + (t + l) * d_k;
            tok[l].b = prep + at.b + (t + l) * d_k;
            tok[l].gate = prep + at.gate + (t + l) * d_k;
            tok[l].a = has_head_gates(kind) ? head_gate_at(op, tile->h, tile->t0 + t + l)->a : 1.0f;
            tok[l].x = vec2_load(tile->x[0] + (t + l) * tile->x_row[0]);
            if (kind == SIGNED_SCAN_ELEMENT) {
                tok[l].dt = vec2_load(tile->x[1] + (t + l) * tile->x_row[1]);
                tok[l].x = vec2_mul(tok[l].dt, tok[l].x);
                near = near && vec_is_near(most.a * tok[l].dt.a, EXP_NEAR) &&
                       vec_is_near(most.b * tok[l].dt.b, EXP_NEAR);
            } else if (has_head_gates(kind)) {
                tok[l].x = vec2_scale(head_gate_at(op, tile->h, tile->t0 + t + l)->in, tok[l].x);
            }
        }
        vec2               y[STEP_TOKENS];
        const struct fetch fetch = prefetch_some(tile->prefetch, n);
        step_tokens(op, tile->S, n, near, tok, A, fetch, y);
        for (int64_t i = d_k; i < fetch.n; ++i) {
            prefetch_burst(fetch.burst[i]);
        }

        for (int l = 0; l < n; ++l) {
            if (op->p.bonus) { // y = scale · (Sᵀ c + (Σ_i c_i bonus_i b_i) x)
                y[l] = vec2_fma(prep[at.bonus + t + l], tok[l].x, y[l]);
            }
            y[l] = vec2_scale(op->p.scale, y[l]);
            if (kind == SIGNED_SCAN_MLSTM) {
                y[l] = vec2_div(y[l], vec2_set1(head_gate_at(op, tile->h, tile->t0 + t + l)->den));
            }
            vec2_store(tile->y + (t + l) * tile->y_row, y[l]);
        }
    }
}
