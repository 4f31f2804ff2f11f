#include "kit/scan-case.h"

// An element of a tensor with any strides
static double at(const struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return *(const float *) ((const char *) x->data + i0 * x->nb[0] + i1 * x->nb[1] +
                             i2 * x->nb[2] + i3 * x->nb[3]);
}

// The head of x that head h of the state reads
static int64_t head_of(const struct ggml_tensor * x, int64_t h, int64_t n_heads) {
    return h / (n_heads / x->ne[1]);
}

// x[:, head, factor, token] as doubles; a row of width 1 fills all n entries
static void row(double * dst, int64_t n, const struct ggml_tensor * x, int64_t h, int64_t n_heads,
        int64_t factor, int64_t token) {
    for (int64_t i = 0; i < n; ++i) {
        dst[i] = at(x, x->ne[0] == 1 ? 0 : i, head_of(x, h, n_heads), factor, token);
    }
}

static double * numbers(int64_t n) {
    return calloc(n > 0 ? n : 1, sizeof(double));
}

//
// Sequences and slots
//

static struct oracle oracle_new(
        const struct ggml_tensor * state, int64_t n_tokens, int64_t n_heads, int64_t d_out) {
    struct oracle o = {
        .n_tokens = n_tokens,
        .n_heads = n_heads,
        .d_out = d_out,
        .n_slots = state->ne[1],
        .slot_size = state->ne[0],
    };
    o.out = numbers(n_tokens * n_heads * d_out);
    o.weight = numbers(n_tokens * n_heads);
    o.state = numbers(o.n_slots * o.slot_size);
    o.written = calloc(o.n_slots + 1, sizeof(bool));

    for (int64_t i = 0; i < n_tokens * n_heads * d_out; ++i) {
        o.out[i] = NAN;
    }
    for (int64_t i = 0; i < n_tokens * n_heads; ++i) {
        o.weight[i] = 1.0;
    }
    for (int64_t s = 0; s < o.n_slots; ++s) {
        for (int64_t i = 0; i < o.slot_size; ++i) {
            o.state[s * o.slot_size + i] = at(state, i, s, 0, 0);
        }
    }
    return o;
}

void oracle_free(struct oracle * o) {
    free(o->out);
    free(o->weight);
    free(o->state);
    free(o->written);
    memset(o, 0, sizeof(*o));
}

struct seq {
    int64_t         slot_in, slot_out, first, count;
    int64_t         n_snap;
    const int32_t * snaps;
    bool            valid;
};

static struct seq seq_get(
        const struct ggml_tensor * ids, int64_t s, int64_t n_slots, int64_t n_tokens) {
    const int32_t * id = (const int32_t *) ((const char *) ids->data + s * ids->nb[1]);

    struct seq q = {
        .slot_in = id[GGML_SCAN_SLOT_IN],
        .slot_out = id[GGML_SCAN_SLOT_OUT],
        .first = id[GGML_SCAN_FIRST],
        .count = id[GGML_SCAN_COUNT],
        .n_snap = ids->ne[0] - GGML_SCAN_SNAPS,
        .snaps = id + GGML_SCAN_SNAPS,
    };
    q.valid = q.slot_in >= -1 && q.slot_in < n_slots && q.slot_out >= 0 && q.slot_out < n_slots &&
              q.first >= 0 && q.count >= 0 && q.first + q.count <= n_tokens;
    for (int64_t i = 0; i < q.n_snap; ++i) {
        q.valid = q.valid && q.snaps[i] >= -1 && q.snaps[i] < n_slots;
    }
    return q;
}

// The part [offset, offset + n) of the state before the first token
static void seq_load(const struct seq * q, const struct ggml_tensor * state, int64_t offset,
        int64_t n, double * S) {
    for (int64_t i = 0; i < n; ++i) {
        S[i] = q->slot_in < 0 ? 0.0 : at(state, offset + i, q->slot_in, 0, 0);
    }
}

// The slot for the state after `done` tokens; -1: none
static int64_t seq_slot(const struct seq * q, int64_t done) {
    const int64_t back = q->count - done; // tokens before the end
    return back == 0 ? q->slot_out : back <= q->n_snap ? q->snaps[back - 1] : -1;
}

// Stores the part [offset, offset + n) of the state after `done` tokens if there is a slot for it
static void seq_store(const struct seq * q, struct oracle * o, int64_t done, int64_t offset,
        int64_t n, const double * S) {
    const int64_t slot = seq_slot(q, done);
    if (slot >= 0) {
        memcpy(o->state + slot * o->slot_size + offset, S, n * sizeof(double));
        o->written[slot] = true;
    }
}

//
// Householder scan
//

struct oracle oracle_householder(const struct ggml_householder_scan_args * a) {
    const int64_t d_k = a->k->ne[0];
    const int64_t d_v = a->v->ne[0];
    const int64_t n_h = a->k->ne[2];
    const int64_t H = a->state->ne[0] / (d_k * d_v);

    struct oracle o = oracle_new(a->state, a->q->ne[3], H, d_v);

    double * S = numbers(d_k * d_v);
    double * q = numbers(d_k);
    double * k = numbers(d_k);
    double * v = numbers(d_v);
    double * g = numbers(d_k);
    double * r = numbers(d_k);
    double * w = numbers(d_k);
    double * u = numbers(d_v);

    for (int64_t s = 0; s < a->ids->ne[1]; ++s) {
        const struct seq sq = seq_get(a->ids, s, o.n_slots, o.n_tokens);
        if (!sq.valid) {
            continue;
        }
        for (int64_t h = 0; h < H; ++h) {
            seq_load(&sq, a->state, h * d_k * d_v, d_k * d_v, S);
            seq_store(&sq, &o, 0, h * d_k * d_v, d_k * d_v, S);

            for (int64_t n = 0; n < sq.count; ++n) {
                const int64_t t = sq.first + n;

                // before the gate: u = Sᵀ r
                if (a->r != NULL) {
                    row(r, d_k, a->r, h, H, 0, t);
                    row(w, d_k, a->w, h, H, 0, t);
                    memset(u, 0, d_v * sizeof(double));
                    for (int64_t i = 0; i < d_k; ++i) {
                        for (int64_t j = 0; j < d_v; ++j) {
                            u[j] += S[i * d_v + j] * r[i];
                        }
                    }
                }

                // S ← g ∘ S
                if (a->gate != NULL) {
                    row(g, d_k, a->gate, h, H, 0, t);
                    for (int64_t i = 0; i < d_k; ++i) {
                        for (int64_t j = 0; j < d_v; ++j) {
                            S[i * d_v + j] *= g[i];
                        }
                    }
                }

                if (a->r != NULL) {
                    // S ← S − w uᵀ + k vᵀ
                    row(k, d_k, a->k, h, H, 0, t);
                    row(v, d_v, a->v, h, H, 0, t);
                    for (int64_t i = 0; i < d_k; ++i) {
                        for (int64_t j = 0; j < d_v; ++j) {
                            S[i * d_v + j] += k[i] * v[j] - w[i] * u[j];
                        }
                    }
                } else {
                    // S ← S + β k (v − Sᵀ k)ᵀ, factor by factor
                    for (int64_t f = 0; f < n_h; ++f) {
                        row(k, d_k, a->k, h, H, f, t);
                        row(v, d_v, a->v, h, H, f, t);
                        const double beta = at(a->beta, 0, head_of(a->beta, h, H), f, t);
                        memset(u, 0, d_v * sizeof(double));
                        for (int64_t i = 0; i < d_k; ++i) {
                            for (int64_t j = 0; j < d_v; ++j) {
                                u[j] += S[i * d_v + j] * k[i];
                            }
                        }
                        for (int64_t i = 0; i < d_k; ++i) {
                            for (int64_t j = 0; j < d_v; ++j) {
                                S[i * d_v + j] += beta * k[i] * (v[j] - u[j]);
                            }
                        }
                    }
                }

                // o = scale · Sᵀ q
                row(q, d_k, a->q, h, H, 0, t);
                double * y = o.out + (t * H + h) * d_v;
                memset(y, 0, d_v * sizeof(double));
                for (int64_t i = 0; i < d_k; ++i) {
                    for (int64_t j = 0; j < d_v; ++j) {
                        y[j] += a->scale * S[i * d_v + j] * q[i];
                    }
                }

                seq_store(&sq, &o, n + 1, h * d_k * d_v, d_k * d_v, S);
            }
        }
    }

    free(S);
    free(q);
    free(k);
    free(v);
    free(g);
    free(r);
    free(w);
    free(u);
    return o;
}

//
// Signed-gate scan
//

// mLSTM without its stabilizer:
//
//     S ← f S + i b xᵀ ,   n ← f n + i b ,   f = exp(log_f) ,   i = exp(log_i)
//     y = scale · Sᵀ c / (max(|scale · n·c|, 1) + eps · exp(m)) ,   m ← max(log_f + m, log_i)
//
// This needs the range of long double (15 exponent bits), not its precision. m only matters through
// eps. The results S / exp(m) and n / exp(m), which are compared, fit a double.

// The weight of an output whose denominator is `share` of |scale| |n| |c|. The terms of n·c may
// cancel. Then the F32 sum has an error of about 2^-24 |n||c|, and the relative error of the
// quotient is 1/share of that. With a share of 1/10 or more it is within the limit of the step
// path. Below 1/100 the quotient is not compared; in between its weight is its share.
static double quotient_weight(double share) {
    return share < 0.01 ? 0.0 : share < 0.1 ? share : 1.0;
}

static struct oracle oracle_mlstm(const struct ggml_signed_scan_args * a) {
    const int64_t d_k = a->b->ne[0];
    const int64_t d_v = a->x->ne[0];
    const int64_t size = d_k * d_v + d_k + 1;
    const int64_t H = a->state->ne[0] / size;

    struct oracle o = oracle_new(a->state, a->c->ne[3], H, d_v);

    double *      head = numbers(size);
    double *      c = numbers(d_k);
    double *      b = numbers(d_k);
    double *      x = numbers(d_v);
    long double * S = calloc(d_k * d_v, sizeof(long double));
    long double * N = calloc(d_k, sizeof(long double));

    for (int64_t s = 0; s < a->ids->ne[1]; ++s) {
        const struct seq sq = seq_get(a->ids, s, o.n_slots, o.n_tokens);
        if (!sq.valid) {
            continue;
        }
        for (int64_t h = 0; h < H; ++h) {
            seq_load(&sq, a->state, h * size, size, head);
            seq_store(&sq, &o, 0, h * size, size, head);

            double            m = head[size - 1];
            const long double start = expl(m);
            for (int64_t i = 0; i < d_k * d_v; ++i) {
                S[i] = head[i] * start;
            }
            for (int64_t i = 0; i < d_k; ++i) {
                N[i] = head[d_k * d_v + i] * start;
            }

            for (int64_t n = 0; n < sq.count; ++n) {
                const int64_t t = sq.first + n;

                row(c, d_k, a->c, h, H, 0, t);
                row(b, d_k, a->b, h, H, 0, t);
                row(x, d_v, a->x, h, H, 0, t);
                const double      log_f = at(a->log_f, 0, head_of(a->log_f, h, H), 0, t);
                const double      log_i = at(a->log_i, 0, head_of(a->log_i, h, H), 0, t);
                const long double f = expl(log_f);
                const long double g = expl(log_i);

                long double nc = 0, nn = 0, cc = 0;
                m = fmax(log_f + m, log_i);
                for (int64_t i = 0; i < d_k; ++i) {
                    N[i] = f * N[i] + g * b[i];
                    nc += N[i] * c[i];
                    nn += N[i] * N[i];
                    cc += c[i] * c[i];
                    for (int64_t j = 0; j < d_v; ++j) {
                        S[i * d_v + j] = f * S[i * d_v + j] + g * b[i] * x[j];
                    }
                }

                const long double size_nc = fabsl(a->scale * nc);
                const long double below = fmaxl(size_nc, 1.0L) + a->eps * expl(m);
                for (int64_t j = 0; j < d_v; ++j) {
                    long double sum = 0;
                    for (int64_t i = 0; i < d_k; ++i) {
                        sum += S[i * d_v + j] * c[i];
                    }
                    o.out[(t * H + h) * d_v + j] = (double) (a->scale * sum / below);
                }
                o.weight[t * H + h] =
                        quotient_weight((double) (below / (fabsf(a->scale) * sqrtl(nn * cc))));

                if (seq_slot(&sq, n + 1) < 0) {
                    continue;
                }
                const long double range = expl(-m);
                for (int64_t i = 0; i < d_k * d_v; ++i) {
                    head[i] = (double) (S[i] * range);
                }
                for (int64_t i = 0; i < d_k; ++i) {
                    head[d_k * d_v + i] = (double) (N[i] * range);
                }
                head[size - 1] = m;
                seq_store(&sq, &o, n + 1, h * size, size, head);
            }
        }
    }

    free(head);
    free(c);
    free(b);
    free(x);
    free(S);
    free(N);
    return o;
}

struct oracle oracle_signed(const struct ggml_signed_scan_args * a) {
    if (a->log_f != NULL) {
        return oracle_mlstm(a);
    }

    const int64_t d_k = a->b->ne[0];
    const int64_t d_v = a->x->ne[0];
    const int64_t H = a->state->ne[0] / (d_k * d_v);

    struct oracle o = oracle_new(a->state, a->c->ne[3], H, d_v);

    double * S = numbers(d_k * d_v);
    double * c = numbers(d_k);
    double * b = numbers(d_k);
    double * x = numbers(d_v);
    double * g = numbers(d_k);
    double * dt = numbers(d_v);

    for (int64_t s = 0; s < a->ids->ne[1]; ++s) {
        const struct seq sq = seq_get(a->ids, s, o.n_slots, o.n_tokens);
        if (!sq.valid) {
            continue;
        }
        for (int64_t h = 0; h < H; ++h) {
            seq_load(&sq, a->state, h * d_k * d_v, d_k * d_v, S);
            seq_store(&sq, &o, 0, h * d_k * d_v, d_k * d_v, S);

            for (int64_t n = 0; n < sq.count; ++n) {
                const int64_t t = sq.first + n;

                row(c, d_k, a->c, h, H, 0, t);
                row(b, d_k, a->b, h, H, 0, t);
                row(x, d_v, a->x, h, H, 0, t);
                double * y = o.out + (t * H + h) * d_v;
                memset(y, 0, d_v * sizeof(double));

                // before the update: y = scale · (S + (bonus ∘ b) xᵀ)ᵀ c
                if (a->bonus != NULL) {
                    for (int64_t i = 0; i < d_k; ++i) {
                        const double u = at(a->bonus, i, head_of(a->bonus, h, H), 0, 0);
                        for (int64_t j = 0; j < d_v; ++j) {
                            y[j] += a->scale * (S[i * d_v + j] + u * b[i] * x[j]) * c[i];
                        }
                    }
                }

                if (a->dt != NULL) {
                    // S ← A ∘ S + b (dt ∘ x)ᵀ with A = exp(dt A) or 2 exp(dt A) − 1
                    row(dt, d_v, a->dt, h, H, 0, t);
                    const int64_t h_a = h / (H / a->A->ne[2]);
                    for (int64_t i = 0; i < d_k; ++i) {
                        for (int64_t j = 0; j < d_v; ++j) {
                            const double e = exp(dt[j] * at(a->A, a->A->ne[0] == 1 ? 0 : j,
                                                                 a->A->ne[1] == 1 ? 0 : i, h_a, 0));
                            const double A = a->form == GGML_SIGNED_SCAN_EXP ? e : 2.0 * e - 1.0;
                            S[i * d_v + j] = A * S[i * d_v + j] + b[i] * dt[j] * x[j];
                        }
                    }
                } else {
                    // S ← A ∘ S + b xᵀ
                    for (int64_t i = 0; i < d_k; ++i) {
                        g[i] = 1.0;
                    }
                    if (a->gate != NULL) {
                        row(g, d_k, a->gate, h, H, 0, a->gate->ne[3] == 1 ? 0 : t);
                    }
                    for (int64_t i = 0; i < d_k; ++i) {
                        for (int64_t j = 0; j < d_v; ++j) {
                            S[i * d_v + j] = g[i] * S[i * d_v + j] + b[i] * x[j];
                        }
                    }
                }

                // y = scale · Sᵀ c
                if (a->bonus == NULL) {
                    for (int64_t i = 0; i < d_k; ++i) {
                        for (int64_t j = 0; j < d_v; ++j) {
                            y[j] += a->scale * S[i * d_v + j] * c[i];
                        }
                    }
                }

                seq_store(&sq, &o, n + 1, h * d_k * d_v, d_k * d_v, S);
            }
        }
    }

    free(S);
    free(c);
    free(b);
    free(x);
    free(g);
    free(dt);
    return o;
}

//
// LSTM scan
//

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

// One token of a head: gates [4][d], state [rows][d]. Adds Rᵀ y to the gates first.
static void lstm_step(const struct ggml_lstm_scan_args * a, int64_t h, double * gates, double * S) {
    const int64_t d = a->x->ne[0];
    double *      y = S, *c = S + d, *n = S + 2 * d, *m = S + 3 * d;
    for (int64_t j = 0; j < 4 * d; ++j) {
        for (int64_t k = 0; k < d; ++k) {
            gates[j] += at(a->R, j, k, h, 0) * y[k];
        }
    }
    for (int64_t j = 0; j < d; ++j) {
        const double i = gates[j], f = gates[d + j], z = gates[2 * d + j], o = gates[3 * d + j];
        if (a->form == GGML_LSTM_SCAN_LSTM) {
            c[j] = sigmoid(f) * c[j] + sigmoid(i) * tanh(z);
            y[j] = sigmoid(o) * tanh(c[j]);
            continue;
        }
        const double log_f = m[j] - log1p(exp(-f));
        const double max = n[j] == 0.0 ? i : fmax(log_f, i);
        const double keep = fmin(exp(log_f - max), 1.0);
        c[j] = keep * c[j] + exp(i - max) * tanh(z);
        n[j] = keep * n[j] + exp(i - max);
        m[j] = max;
        y[j] = sigmoid(o) * c[j] / n[j];
    }
}

struct oracle oracle_lstm(const struct ggml_lstm_scan_args * a) {
    const int64_t d = a->x->ne[0];
    const int64_t H = a->x->ne[1];
    const int64_t size = a->state->ne[0] / H;

    struct oracle o = oracle_new(a->state, a->x->ne[3], H, d);
    double *      S = numbers(4 * d);
    double *      gates = numbers(4 * d);

    for (int64_t s = 0; s < a->ids->ne[1]; ++s) {
        const struct seq sq = seq_get(a->ids, s, o.n_slots, o.n_tokens);
        for (int64_t h = 0; h < H && sq.valid; ++h) {
            seq_load(&sq, a->state, h * size, size, S);
            seq_store(&sq, &o, 0, h * size, size, S);
            for (int64_t n = 0; n < sq.count; ++n) {
                const int64_t t = sq.first + n;
                for (int64_t gate = 0; gate < 4; ++gate) {
                    row(gates + gate * d, d, a->x, h, H, gate, t);
                }
                lstm_step(a, h, gates, S);
                memcpy(o.out + (t * H + h) * d, S, d * sizeof(double));
                seq_store(&sq, &o, n + 1, h * size, size, S);
            }
        }
    }

    free(S);
    free(gates);
    return o;
}

//
// Short convolution
//

static double activate(enum ggml_short_conv_activation activation, double x) {
    switch (activation) {
        case GGML_SHORT_CONV_SILU: return x / (1.0 + exp(-x));
        default: return x;
    }
}

struct oracle oracle_short_conv(const struct ggml_short_conv_args * a) {
    const int64_t n_ch = a->x->ne[0];
    const int64_t width = a->weight != NULL ? a->weight->ne[0] : 2;
    const int64_t tail = width - 1;

    struct oracle o = oracle_new(a->state, a->x->ne[1], 1, n_ch);

    double * past = numbers(n_ch * width); // the last `width` inputs, oldest first, up to x_t

    for (int64_t s = 0; s < a->ids->ne[1]; ++s) {
        const struct seq sq = seq_get(a->ids, s, o.n_slots, o.n_tokens);
        if (!sq.valid) {
            continue;
        }
        seq_load(&sq, a->state, 0, n_ch * tail, past);
        seq_store(&sq, &o, 0, 0, n_ch * tail, past);

        for (int64_t n = 0; n < sq.count; ++n) {
            const int64_t t = sq.first + n;
            for (int64_t c = 0; c < n_ch; ++c) {
                past[tail * n_ch + c] = at(a->x, c, t, 0, 0);
            }
            for (int64_t c = 0; c < n_ch; ++c) {
                // y = f(bias + Σ_w weight[w] · x_{t − (width − 1) + w}), or x_{t − 1}
                double y = past[c];
                if (a->weight != NULL) {
                    y = a->bias != NULL ? at(a->bias, c, 0, 0, 0) : 0.0;
                    for (int64_t w = 0; w < width; ++w) {
                        y += at(a->weight, w, c, 0, 0) * past[w * n_ch + c];
                    }
                }
                o.out[t * n_ch + c] = activate(a->activation, y);
            }
            memmove(past, past + n_ch, n_ch * tail * sizeof(double));
            seq_store(&sq, &o, n + 1, 0, n_ch * tail, past);
        }
    }

    free(past);
    return o;
}
