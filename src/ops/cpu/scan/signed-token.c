// The token path of the signed-gate scan: one token, whole rows of the state at a time.
//
//     S ← A ∘ S + b xᵀ ,   y = scale · Sᵀ c
//
// The operations and their order are those of signed-step.c, so results are bit-identical.

#include "signed.h"

// Columns of a tile with a transition per element. Every 16 columns need d_k cache lines of A and
// of the state.
enum { ELEMENT_COLS = 64 };

// y, and x times dt or the input gate; each [d_v]
int64_t signed_token_size(const struct scan_dims * dims) {
    return 2 * dims->d_v;
}

struct rows {
    const float * in; // [d_k][d_v]
    float *       out;
    const float * c;    // [d_k]
    const float * b;    // [d_k]
    const float * gate; // [d_k] or [1]
    const float * dt;   // [d_v], Mamba
    const float * A;    // a row of A, from the first column of the sweep
    const float * x;    // [d_v]
    float *       y;    // [d_v]
};

// n rows from row i, the vector of columns at col; kind, form and bonus are constants at every call
SIMD_INLINE void sweep_cols(const struct rows * w, int32_t kind, int32_t form, bool bonus,
        int64_t d_v, int64_t i, int n, int64_t col0, int64_t col, int64_t cols) {
    const bool full = cols == VEC;
    const vec  x = full ? vec_load(w->x + col) : vec_load_n(w->x + col, cols);
    vec        y = full ? vec_load(w->y + col) : vec_load_n(w->y + col, cols);
    for (int64_t r = i; r < i + n; ++r) {
        if (col % LINE == 0) { // the state is read from memory
            __builtin_prefetch(w->in + (r + 4 * TOKEN_ROWS) * d_v + col);
        }
        vec s = full ? vec_load(w->in + r * d_v + col) : vec_load_n(w->in + r * d_v + col, cols);
        if (bonus) { // read before the update
            y = vec_fma(vec_set1(w->c[r]), s, y);
        }
        switch (kind) {
            case SIGNED_SCAN_NONE: break;
            case SIGNED_SCAN_CHANNEL: s *= vec_set1(w->gate[r]); break;
            case SIGNED_SCAN_ELEMENT:
                s *= transition(form, false, vec_load_n(w->dt + col, cols),
                        vec_load_n(w->A + (col - col0), cols));
                break;
            default: s *= vec_set1(w->gate[0]); break;
        }
        s = vec_fma(vec_set1(w->b[r]), x, s);
        if (full) {
            vec_store(w->out + r * d_v + col, s);
        } else {
            vec_store_n(w->out + r * d_v + col, s, cols);
        }
        if (!bonus) {
            y = vec_fma(vec_set1(w->c[r]), s, y);
        }
    }
    vec_store_n(w->y + col, y, cols);
}

SIMD_INLINE void sweep_rows(const struct rows * w, int32_t kind, int32_t form, bool bonus,
        int64_t d_v, int64_t i, int n, const struct token * token) {
    int64_t col = token->col0;
    for (; col + VEC <= token->col1; col += VEC) {
        sweep_cols(w, kind, form, bonus, d_v, i, n, token->col0, col, VEC);
    }
    if (col < token->col1) {
        sweep_cols(w, kind, form, bonus, d_v, i, n, token->col0, col, token->col1 - col);
    }
}

SIMD_INLINE void sweep(const struct rows * w, int32_t kind, bool bonus,
        const struct scan_dims * dims, const struct token * token) {
    const struct rows held = *w;
    int64_t           i = 0;
    for (; i + TOKEN_ROWS <= dims->d_k; i += TOKEN_ROWS) {
        sweep_rows(&held, kind, 0, bonus, dims->d_v, i, TOKEN_ROWS, token);
    }
    for (; i < dims->d_k; ++i) {
        sweep_rows(&held, kind, 0, bonus, dims->d_v, i, 1, token);
    }
}

// A transition per element, one tile of columns at a time. Mamba's files store A transposed, d_k
// floats per column. A tile of A is transposed back while its lines are in the cache; they are not
// fetched again for every row.
static void sweep_element(
        const struct signed_scan * op, struct rows * w, const struct token * token) {
    const char *  A = head_A(op, token->h);
    const int64_t nb0 = (int64_t) op->A->nb[0], nb1 = (int64_t) op->A->nb[1], d_v = op->dims.d_v;
    float         turned[ELEMENT_COLS];
    for (int64_t col0 = token->col0; col0 < token->col1; col0 += ELEMENT_COLS) {
        struct token tile = *token;
        tile.col0 = col0;
        tile.col1 = col0 + ELEMENT_COLS < token->col1 ? col0 + ELEMENT_COLS : token->col1;
        for (int64_t i = 0; i < op->dims.d_k; ++i) {
            for (int64_t col = tile.col0; col < tile.col1; ++col) {
                turned[col - col0] = EXP_SCALE * *(const float *) (A + i * nb1 + col * nb0);
            }
            w->A = turned;
            if (op->p.form == GGML_SIGNED_SCAN_EXP) {
                sweep_rows(w, SIGNED_SCAN_ELEMENT, GGML_SIGNED_SCAN_EXP, false, d_v, i, 1, &tile);
            } else {
                sweep_rows(w, SIGNED_SCAN_ELEMENT, GGML_SIGNED_SCAN_TWO_EXP_M1, false, d_v, i, 1,
                        &tile);
            }
        }
    }
}

SIMD_INLINE void sweep_bonus(const struct rows * w, int32_t kind, bool bonus,
        const struct scan_dims * dims, const struct token * token) {
    if (bonus) {
        sweep(w, kind, true, dims, token);
    } else {
        sweep(w, kind, false, dims, token);
    }
}

void signed_token_run(const void * ctx, const struct token * token, float * work) {
    const struct signed_scan * op = ctx;
    const int64_t              d_k = op->dims.d_k;
    const int64_t              d_v = op->dims.d_v;
    const int64_t              h = token->h;
    const int32_t              kind = op->p.kind;
    const float *              value = tokens_row(&op->x, h, 0, token->t);
    const struct head_gate *   gate = has_head_gates(kind) ? head_gate_at(op, h, token->t) : NULL;

    float *     y = work;
    float *     x = work + d_v;
    struct rows w = {
        .in = token->in,
        .out = token->out,
        .c = tokens_row(&op->c, h, 0, token->t),
        .b = tokens_row(&op->b, h, 0, token->t),
        .dt = kind == SIGNED_SCAN_ELEMENT ? tokens_row(&op->gate, h, 0, token->t) : NULL,
        .x = x,
        .y = y,
    };
    for (int64_t col = token->col0; col < token->col1; ++col) {
        y[col] = 0.0f;
        x[col] = gate != NULL                  ? gate->in * value[col]
                 : kind == SIGNED_SCAN_ELEMENT ? w.dt[col] * value[col]
                                               : value[col];
    }
    switch (kind) {
        case SIGNED_SCAN_NONE:
            sweep_bonus(&w, SIGNED_SCAN_NONE, op->p.bonus, &op->dims, token);
            break;
        case SIGNED_SCAN_CHANNEL:
            w.gate = tokens_row(&op->gate, h, 0, token->t);
            sweep_bonus(&w, SIGNED_SCAN_CHANNEL, op->p.bonus, &op->dims, token);
            break;
        case SIGNED_SCAN_ELEMENT: sweep_element(op, &w, token); break;
        default:
            w.gate = &gate->a;
            sweep_bonus(&w, SIGNED_SCAN_HEAD, op->p.bonus, &op->dims, token);
            break;
    }

    float cub = 0.0f; // Σ_i c_i bonus_i b_i
    for (int64_t i = 0; op->p.bonus && i < d_k; ++i) {
        cub = fma1(w.c[i] * tokens_row(&op->bonus, h, 0, 0)[i], w.b[i], cub);
    }
    for (int64_t col = token->col0; col < token->col1; ++col) {
        const float sum = op->p.bonus ? fma1(cub, x[col], y[col]) : y[col];
        token->y[col] =
                kind == SIGNED_SCAN_MLSTM ? op->p.scale * sum / gate->den : op->p.scale * sum;
    }
}
