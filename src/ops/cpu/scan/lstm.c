// GGML_OP_LSTM_SCAN on the CPU.
//
//     (i, f, z, o) = x_t + Rᵀ y
//     LSTM    c ← σ(f) c + σ(i) tanh(z) ,        y = σ(o) tanh(c)
//     sLSTM   m' = max(log σ(f) + m, i) ,        with n = 0: m' = i
//             f' = exp(log σ(f) + m − m') ,      i' = exp(i − m') ,      both at most 1
//             c ← f' c + i' tanh(z) ,            n ← f' n + i' ,     y = σ(o) c / n
//
// Heads do not mix: a task is one head of one sequence. A token needs the y of the token before, so
// there is no chunk path. Sums have a fixed order, so results depend neither on threads nor on how
// a sequence is cut into calls.

#include "scan-cpu.h"

enum {
    COLUMNS = 4 * VEC, // of R that are added up in registers
};

static int64_t round_up(int64_t n) {
    return (n + COLUMNS - 1) / COLUMNS * COLUMNS;
}

// Per thread: the state of a head, [rows][d], and its gates, [4·d].
static int64_t thread_floats(const struct scan_dims * dims) {
    return round_up(dims->head_size) + round_up(4 * dims->d_v);
}

size_t lstm_work_size(const struct ggml_tensor * op, int n_threads) {
    const struct scan_dims dims = ggml_scan_dims_get(op);
    return (size_t) (thread_floats(&dims) * n_threads) * sizeof(float) + VEC_BYTES;
}

// gates[0 .. n) += Σ_k R[k][0 .. n) y[k], n at most COLUMNS
SIMD_INLINE void add_columns(
        float * gates, const float * R, int64_t nb_row, const float * y, int64_t d, int64_t n) {
    vec sum[4];
    for (int v = 0; v < 4; ++v) {
        sum[v] = vec_load(gates + v * VEC);
    }
    for (int64_t k = 0; k < d; ++k) {
        const float * row = R + k * nb_row;
        const vec     x = vec_set1(y[k]);
        for (int v = 0; v < 4; ++v) {
            const int64_t left = n - v * VEC;
            const vec     r = left >= VEC ? vec_load(row + v * VEC)
                              : left > 0  ? vec_load_n(row + v * VEC, left)
                                          : (vec) { 0.0f };
            sum[v] = vec_fma(r, x, sum[v]);
        }
    }
    for (int v = 0; v < 4; ++v) {
        vec_store(gates + v * VEC, sum[v]);
    }
}

// gates [4·d] = x_t + Rᵀ y
static void gates_of(const struct tokens * X, const float * R, int64_t h, int64_t t, int64_t d,
        const float * y, float * gates) {
    for (int64_t j = 0; j < 4; ++j) {
        memcpy(gates + j * d, tokens_row(X, h, j, t), (size_t) d * sizeof(float));
    }
    int64_t column = 0;
    for (; column + COLUMNS <= 4 * d; column += COLUMNS) {
        add_columns(gates + column, R + column, 4 * d, y, d, COLUMNS);
    }
    if (column < 4 * d) {
        add_columns(gates + column, R + column, 4 * d, y, d, 4 * d - column);
    }
}

struct cell { // a vector of each
    vec y, c, n, m;
};

SIMD_INLINE struct cell cell_step(int32_t form, struct cell s, vec i, vec f, vec z, vec o) {
    if (form == GGML_LSTM_SCAN_LSTM) {
        s.c = vec_sigmoid(f) * s.c + vec_sigmoid(i) * vec_tanh(z);
        s.y = vec_sigmoid(o) * vec_tanh(s.c);
        return s;
    }
    const vec log_f = s.m - vec_softplus(-f); // log σ(f) + m
    const vec m = vec_select(s.n == (vec) { 0.0f }, i, vec_max(log_f, i));
    const vec keep = vec_exp(-vec_max(m - log_f, (vec) { 0.0f })); // at the first token m < log_f
    const vec add = vec_exp(i - m);
    s.c = keep * s.c + add * vec_tanh(z);
    s.n = keep * s.n + add;
    s.m = m;
    s.y = vec_sigmoid(o) * s.c / s.n;
    return s;
}

// One step of the vector of elements j .. j + n − 1 of a head, n at most VEC.
SIMD_INLINE void step(
        int32_t form, const float * gates, float * S, int64_t d, int64_t j, int64_t n) {
    const bool  slstm = form == GGML_LSTM_SCAN_SLSTM;
    const vec   one = vec_set1(1.0f);
    struct cell s = { .c = vec_load_n(S + d + j, n),
        .n = slstm ? vec_load_n(S + 2 * d + j, n) : one,
        .m = slstm ? vec_load_n(S + 3 * d + j, n) : one };
    s = cell_step(form, s, vec_load_n(gates + j, n), vec_load_n(gates + d + j, n),
            vec_load_n(gates + 2 * d + j, n), vec_load_n(gates + 3 * d + j, n));
    vec_store_n(S + j, s.y, n);
    vec_store_n(S + d + j, s.c, n);
    if (slstm) {
        vec_store_n(S + 2 * d + j, s.n, n);
        vec_store_n(S + 3 * d + j, s.m, n);
    }
}

void lstm_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct scan_dims dims = ggml_scan_dims_get(dst);
    const int32_t          form = ggml_scan_params_get(dst).form;
    const int64_t          d = dims.d_v;
    const struct tokens    X = tokens_of(dst->src[LSTM_SRC_X], dims.n_head);
    const float *          R = dst->src[LSTM_SRC_R]->data; // [H][d][4·d]

    float * S = work_aligned(params->wdata) + params->ith * thread_floats(&dims); // [rows][d]
    float * gates = S + round_up(dims.head_size);                                 // [4·d]
    memset(gates, 0, (size_t) round_up(4 * d) * sizeof(float));

    for (int64_t i = params->ith; i < dims.n_seqs * dims.n_head; i += params->nth) {
        const int64_t   h = i % dims.n_head;
        struct scan_seq seq;
        if (!scan_seq_read(dst, &dims, i / dims.n_head, h == 0, &seq)) {
            continue;
        }
        state_begin(dst, &dims, &seq, h, S);
        for (int64_t done = 0; done < seq.count; ++done) {
            const int64_t t = seq.first + done;
            state_store(dst, &dims, &seq, h, done, S);
            gates_of(&X, R + h * 4 * d * d, h, t, d, S, gates);
            for (int64_t j = 0; j < d; j += VEC) {
                step(form, gates, S, d, j, d - j < VEC ? d - j : VEC);
            }
            memcpy((float *) dst->data + (t * dims.n_head + h) * d, S, (size_t) d * sizeof(float));
        }
        state_store(dst, &dims, &seq, h, seq.count, S);
    }
}
