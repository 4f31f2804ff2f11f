// The trace of a session. The traced inputs of a recurrence, replayed in double precision from the
// equations of lrnn.h and lrnn-ops.h, give its traced outputs. The traced input of the output
// matrix times that matrix, read from the file by ggml, gives the logits. Every family, two
// sequences of different length, cut into calls.

#include "kit/check.h"
#include "kit/golden.h"
#include "lrnn.h"

#include "gguf.h"

enum { N_LAYERS = 8, N_SEQS = 2, N_CALLS = 3 };

// tokens per call and sequence
static const int64_t CUTS[N_CALLS][N_SEQS] = { { 9, 4 }, { 1, 7 }, { 6, 1 } };

// Receives the events of a session.
struct tracer {
    struct test *       t;
    struct test_worst * worst;
    const char *        model;
    const char *        output; // name of the output matrix
    int64_t             call;
    int64_t             n_scans, n_matrices;
    double *            states[N_LAYERS][N_SEQS];
    float *             x; // input of the output matrix [D, rows]
    int64_t             n_embd, n_rows;
    int64_t             stop_at; // stop the call at this matrix; -1: never
};

// Element i of a traced tensor, for head h of the H heads of the state.
static double at(const struct lrnn_trace_tensor * t, int64_t i, int64_t h, int64_t H,
        int64_t factor, int64_t token) {
    const int64_t head = h / (H / t->ne[1]);
    return (double) t->data[((token * t->ne[2] + factor) * t->ne[1] + head) * t->ne[0] + i];
}

struct scan {
    const struct lrnn_trace_event * w;
    int64_t                         h, token;
    double *                        S; // [d_k][d_v]; mLSTM: then n [d_k], then m
};

static double get(const struct scan * s, const char * name, int64_t i, int64_t factor) {
    const struct lrnn_trace_tensor * t = lrnn_trace_find(s->w, name);
    return at(t, t->ne[0] == 1 ? 0 : i, s->h, s->w->n_head, factor, t->ne[3] == 1 ? 0 : s->token);
}

static double gate(const struct scan * s, int64_t i) {
    return lrnn_trace_find(s->w, "gate") != NULL ? get(s, "gate", i, 0) : 1.0;
}

// S ← (I − β k kᵀ) S + β k vᵀ for each factor, after the gate; o = scale Sᵀ q
static void householder(const struct scan * s, double * o) {
    const int64_t K = s->w->d_k, P = s->w->d_v, n_h = lrnn_trace_find(s->w, "k")->ne[2];
    for (int64_t i = 0; i < K * P; ++i) {
        s->S[i] *= gate(s, i / P);
    }
    for (int64_t f = 0; f < n_h; ++f) {
        for (int64_t j = 0; j < P; ++j) {
            double kS = 0;
            for (int64_t i = 0; i < K; ++i) {
                kS += get(s, "k", i, f) * s->S[i * P + j];
            }
            for (int64_t i = 0; i < K; ++i) {
                s->S[i * P + j] +=
                        get(s, "beta", 0, f) * get(s, "k", i, f) * (get(s, "v", j, f) - kS);
            }
        }
    }
    for (int64_t j = 0; j < P; ++j) {
        o[j] = 0;
        for (int64_t i = 0; i < K; ++i) {
            o[j] += (double) s->w->scale * s->S[i * P + j] * get(s, "q", i, 0);
        }
    }
}

// S ← (diag(gate) − w rᵀ) S + k vᵀ; o = scale Sᵀ q
static void rank_one(const struct scan * s, double * o) {
    const int64_t K = s->w->d_k, P = s->w->d_v;
    for (int64_t j = 0; j < P; ++j) {
        double rS = 0;
        for (int64_t i = 0; i < K; ++i) {
            rS += get(s, "r", i, 0) * s->S[i * P + j];
        }
        o[j] = 0;
        for (int64_t i = 0; i < K; ++i) {
            s->S[i * P + j] = gate(s, i) * s->S[i * P + j] - get(s, "w", i, 0) * rS +
                              get(s, "k", i, 0) * get(s, "v", j, 0);
            o[j] += (double) s->w->scale * s->S[i * P + j] * get(s, "q", i, 0);
        }
    }
}

// exp(dt A) or 2 exp(dt A) − 1; A is [d_v, d_k, heads], or [1, 1, heads]
static double transition(const struct scan * s, int64_t i, int64_t j) {
    const struct lrnn_trace_tensor * A = lrnn_trace_find(s->w, "A");
    const int64_t                    h = s->h / (s->w->n_head / A->ne[2]);
    const double a = (double) A->data[(h * A->ne[1] + (A->ne[1] == 1 ? 0 : i)) * A->ne[0] +
                                      (A->ne[0] == 1 ? 0 : j)];
    const double e = exp(get(s, "dt", j, 0) * a);
    return s->w->transition == LRNN_TRANSITION_TWO_EXP_M1 ? 2 * e - 1 : e;
}

// S ← A ∘ S + b xᵀ; y = scale Sᵀ c. With a bonus, y is read before the update.
static void diagonal(const struct scan * s, double * y) {
    const int64_t K = s->w->d_k, P = s->w->d_v;
    const bool    ssm = s->w->transition != LRNN_TRANSITION_GATE,
               bonus = lrnn_trace_find(s->w, "bonus") != NULL;
    for (int64_t j = 0; j < P; ++j) {
        y[j] = 0;
        for (int64_t i = 0; i < K; ++i) {
            const double write =
                    get(s, "b", i, 0) * get(s, "x", j, 0) * (ssm ? get(s, "dt", j, 0) : 1.0);
            const double old = s->S[i * P + j];
            s->S[i * P + j] = (ssm ? transition(s, i, j) : gate(s, i)) * old + write;
            y[j] += (double) s->w->scale * get(s, "c", i, 0) *
                    (bonus ? old + get(s, "bonus", i, 0) * write : s->S[i * P + j]);
        }
    }
}

// C ← f C + i b xᵀ, n ← f n + i b, scaled by e^−m; y = Cᵀ c / (max(|n·c|, e^−m) + eps)
static void mlstm(const struct scan * s, double * y) {
    const int64_t K = s->w->d_k, P = s->w->d_v;
    double *      n = s->S + K * P, *m = n + K;
    const double  log_f = get(s, "log_f", 0, 0) + *m, log_i = get(s, "log_i", 0, 0);
    *m = log_f > log_i ? log_f : log_i;
    const double f = exp(log_f - *m), in = exp(log_i - *m);
    double       nc = 0;
    for (int64_t i = 0; i < K; ++i) {
        n[i] = f * n[i] + in * get(s, "b", i, 0);
        nc += (double) s->w->scale * n[i] * get(s, "c", i, 0);
    }
    const double below = fmax(fabs(nc), exp(-*m)) + (double) s->w->eps;
    for (int64_t j = 0; j < P; ++j) {
        y[j] = 0;
        for (int64_t i = 0; i < K; ++i) {
            s->S[i * P + j] = f * s->S[i * P + j] + in * get(s, "b", i, 0) * get(s, "x", j, 0);
            y[j] += (double) s->w->scale * s->S[i * P + j] * get(s, "c", i, 0) / below;
        }
    }
}

static void replay(struct tracer * u, const struct lrnn_trace_event * w) {
    const struct lrnn_trace_tensor * out =
            lrnn_trace_find(w, w->transition <= LRNN_TRANSITION_RANK_ONE ? "o" : "y");
    const int64_t P = w->d_v, size = w->d_k * P + w->d_k + 1;
    double        err = 0, all = 0;
    double *      o = calloc((size_t) P, sizeof(*o));

    test_check(u->t, out != NULL && out->ne[0] == P && out->ne[1] == w->n_head,
            "%s: layer %d does not trace its output", u->model, w->layer);
    for (int32_t i = 0; i < w->n_seqs; ++i) {
        const struct lrnn_trace_seq * q = &w->seqs[i];
        double **                     state = &u->states[w->layer][q->seq];
        if (*state == NULL) {
            *state = calloc((size_t) (w->n_head * size), sizeof(double));
        }
        for (int64_t h = 0; h < w->n_head; ++h) {
            for (int64_t token = q->first; token < q->first + q->count; ++token) {
                const struct scan s = { w, h, token, *state + h * size };
                switch (w->transition) {
                    case LRNN_TRANSITION_HOUSEHOLDER: householder(&s, o); break;
                    case LRNN_TRANSITION_RANK_ONE: rank_one(&s, o); break;
                    case LRNN_TRANSITION_MLSTM: mlstm(&s, o); break;
                    default: diagonal(&s, o); break;
                }
                for (int64_t j = 0; j < P; ++j) {
                    const double d = (double) out->data[(token * w->n_head + h) * P + j] - o[j];
                    err += d * d;
                    all += o[j] * o[j];
                }
            }
        }
    }
    char where[128];
    snprintf(
            where, sizeof(where), "%s layer %d call %lld", u->model, w->layer, (long long) u->call);
    test_bound(u->t, u->worst, all > 0 ? err / all : NAN, where);
    free(o);
}

static bool trace(const struct lrnn_trace_event * w, void * user) {
    struct tracer * u = user;

    int64_t n_tokens = 0;
    for (int32_t i = 0; i < w->n_seqs; ++i) {
        int64_t before = 0;
        for (int64_t c = 0; c < u->call; ++c) {
            before += CUTS[c][w->seqs[i].seq];
        }
        test_check(u->t,
                w->seqs[i].first == n_tokens && w->seqs[i].count == CUTS[u->call][w->seqs[i].seq] &&
                        w->seqs[i].position == before,
                "%s: call %lld, sequence %d: tokens %lld + %lld at position %lld", u->model,
                (long long) u->call, w->seqs[i].seq, (long long) w->seqs[i].first,
                (long long) w->seqs[i].count, (long long) w->seqs[i].position);
        n_tokens += w->seqs[i].count;
    }
    if (w->weight == NULL) {
        u->n_scans++;
        test_check(u->t,
                w->layer >= 0 && w->layer < N_LAYERS && w->transition != LRNN_TRANSITION_NONE,
                "%s: scan of layer %d", u->model, w->layer);
        replay(u, w);
        return true;
    }
    const struct lrnn_trace_tensor * x = lrnn_trace_find(w, "x");
    if (!test_check(u->t, w->n_tensors == 1 && x != NULL && w->transition == LRNN_TRANSITION_NONE,
                "%s: %s: expected one input x", u->model, w->weight)) {
        return false;
    }
    if (strcmp(w->weight, u->output) == 0) {
        u->n_embd = x->ne[0];
        u->n_rows = x->ne[1];
        u->x = realloc(u->x, (size_t) (x->ne[0] * x->ne[1]) * sizeof(float));
        memcpy(u->x, x->data, (size_t) (x->ne[0] * x->ne[1]) * sizeof(float));
    }
    return u->n_matrices++ != u->stop_at;
}

// Compares the logits with the output matrix of the file times x.
static void check_output(struct tracer * u, const struct golden * g, const float * logits,
        const float * W, struct test_worst * worst) {
    test_check(u->t, u->n_rows == N_SEQS && u->x != NULL,
            "%s: the output matrix has %lld inputs; expected %d", u->model, (long long) u->n_rows,
            N_SEQS);
    double err = 0, all = 0;
    for (int64_t row = 0; u->x != NULL && row < N_SEQS; ++row) {
        for (int64_t v = 0; v < g->n_vocab; ++v) {
            double y = 0;
            for (int64_t i = 0; i < u->n_embd; ++i) {
                y += (double) W[v * u->n_embd + i] * (double) u->x[row * u->n_embd + i];
            }
            const double d = (double) logits[row * g->n_vocab + v] - y;
            err += d * d;
            all += y * y;
        }
    }
    test_bound(u->t, worst, err / all, u->model);
}

static bool advance(
        struct lrnn_session * s, const struct golden * g, int64_t call, struct lrnn_error * err) {
    struct lrnn_input in[N_SEQS];
    for (int32_t q = 0; q < N_SEQS; ++q) {
        in[q].seq = q;
        in[q].tokens = g->tokens + lrnn_seq_length(s, q);
        in[q].n_tokens = CUTS[call][q];
        in[q].n_logits = 1;
    }
    return lrnn_eval(s, in, N_SEQS, err);
}

static void test_model(struct test * t, const struct golden * g, struct test_worst * scans,
        struct test_worst * outputs) {
    struct lrnn_error            err;
    struct lrnn_model *          model = test_load_model(g->path, NULL);
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    struct ggml_context *        ctx = NULL;
    struct gguf_context *        gguf =
            gguf_init_from_file(g->path, (struct gguf_init_params) { .ctx = &ctx });
    struct ggml_tensor * W = ggml_get_tensor(ctx, "output.weight");
    W = W != NULL ? W : ggml_get_tensor(ctx, "token_embd.weight");

    // an LSTM has no transition, a convolution (LFM2) no recurrence
    int64_t n_linear = info.n_head > 0 ? info.n_layer_recurrent : 0;
    for (struct ggml_tensor * x = ggml_get_first_tensor(ctx); x != NULL;
            x = ggml_get_next_tensor(ctx, x)) {
        n_linear -= strstr(x->name, "slstm_r.weight") != NULL;
    }

    struct tracer u = {
        .t = t, .worst = scans, .model = g->name, .output = W->name, .stop_at = -1
    };
    struct lrnn_session_params params = {
        .n_threads = 2, .n_seqs = N_SEQS, .n_cache = 64, .trace = trace, .trace_user = &u
    };
    struct lrnn_session * plain = test_session(model, &params); // no events
    params.trace_kinds = LRNN_TRACE_SCANS | LRNN_TRACE_MATRICES;
    struct lrnn_session * traced = test_session(model, &params);

    for (u.call = 0; u.call < N_CALLS; ++u.call) {
        test_check(t, advance(plain, g, u.call, &err), "%s: %s", g->name, err.text);
        test_check(t, u.n_matrices == 0 || u.call > 0,
                "%s: a session without trace_kinds sends events", g->name);
        test_check(t, advance(traced, g, u.call, &err), "%s: %s", g->name, err.text);
        test_check(t,
                memcmp(lrnn_logits(plain, 0), lrnn_logits(traced, 0),
                        (size_t) (N_SEQS * g->n_vocab) * sizeof(float)) == 0,
                "%s: tracing changes the logits", g->name);
        // these apply a soft cap or a scale to the product
        if (strcmp(g->name, "xlstm") != 0 && strcmp(info.family, "granitehybrid") != 0) {
            check_output(&u, g, lrnn_logits(traced, 0), W->data, outputs);
        }
    }
    test_check(t, u.n_scans == N_CALLS * n_linear, "%s: %lld recurrences traced; expected %lld",
            g->name, (long long) u.n_scans, (long long) (N_CALLS * n_linear));
    test_check(t, u.n_matrices >= N_CALLS * (2 * info.n_layer + 1), "%s: only %lld matrices traced",
            g->name, (long long) u.n_matrices);

    u.stop_at = 1;
    u.call = 0;
    u.n_matrices = 0;
    for (int32_t q = 0; q < N_SEQS; ++q) {
        lrnn_seq_reset(traced, q, &err);
    }
    for (int il = 0; il < N_LAYERS; ++il) {
        for (int q = 0; q < N_SEQS; ++q) {
            free(u.states[il][q]);
            u.states[il][q] = NULL;
        }
    }
    test_check(t,
            !advance(traced, g, 0, &err) && u.n_matrices == 2 && lrnn_seq_length(traced, 0) == 0 &&
                    lrnn_logits(traced, 0) == NULL,
            "%s: the callback does not stop the call", g->name);
    for (int il = 0; il < N_LAYERS; ++il) {
        for (int q = 0; q < N_SEQS; ++q) {
            free(u.states[il][q]);
        }
    }
    free(u.x);
    lrnn_session_free(plain);
    lrnn_session_free(traced);
    lrnn_model_free(model);
    gguf_free(gguf);
    ggml_free(ctx);
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list golden = { 0 };
    struct test_worst  scans = { .what = "recurrences replayed in double, NMSE", .limit = 1e-11 };
    struct test_worst  outputs = { .what = "logits from the traced activations, NMSE",
         .limit = 1e-13 };
    golden_list_load(&golden);
    for (int i = 0; i < golden.n; ++i) {
        test_model(&t, &golden.models[i], &scans, &outputs);
    }
    test_worst_print(&scans);
    test_worst_print(&outputs);
    golden_list_free(&golden);
    return test_end(&t, "test-trace");
}
