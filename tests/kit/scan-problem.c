#include "kit/scan-problem.h"

const char * const test_householder_names[TEST_HOUSEHOLDER_MODES] = { "beta, no gate",
    "beta, gate per head", "beta, gate per channel", "r and w, no gate", "r and w, gate per head",
    "r and w, gate per channel" };

const char * const test_signed_names[TEST_SIGNED_MODES] = { "no gate", "gate per head",
    "gate per channel", "constant gate per head", "constant gate per channel",
    "bonus, gate per channel", "bonus, gate per head", "bonus, no gate", "Mamba", "Mamba signed",
    "Mamba-2", "Mamba-2 signed", "mLSTM", "mLSTM, hard gates" };

static void describe(struct test_scan * s, const char * mode, const struct test_problem * p) {
    int n = snprintf(s->text, sizeof(s->text),
            "%s, %dx%d, H %d, n_h %d, layout %d, head counts %d, turn %d, snapshots %d, lengths",
            mode, p->d_k, p->d_v, p->H, p->n_h, p->layout, p->heads, p->batch.turn,
            p->batch.n_snap);
    for (int i = 0; i < p->batch.n_seqs && i < 4; ++i) {
        n += snprintf(s->text + n, sizeof(s->text) - n, " %d", (int) p->batch.len[i]);
    }
}

// A tensor with one row per token; `which` varies the head counts of the inputs
static struct ggml_tensor * tokens(struct test_arena * a, const struct test_problem * p,
        const char * name, int64_t width, int which, int64_t n_h, int64_t T) {
    return test_tensor(
            a, GGML_TYPE_F32, p->layout, name, width, test_divisor(p->H, p->heads + which), n_h, T);
}

static struct ggml_tensor * state_of(
        struct test_arena * a, const struct test_problem * p, int64_t size) {
    return test_tensor(a, GGML_TYPE_F32, p->state_gaps ? TEST_GAPS : TEST_DENSE, "state", size,
            test_batch_slots(&p->batch), 1, 1);
}

// Negates a third of the gates and sets some to 0, to detect divisions by gates.
static void flip_signs(struct ggml_tensor * x, struct test_rng * rng) {
    for (int64_t t = 0; t < x->ne[3]; ++t) {
        for (int64_t h = 0; h < x->ne[1]; ++h) {
            for (int64_t i = 0; i < x->ne[0]; ++i) {
                if (test_below(rng, 3) == 0) {
                    test_set(x, i, h, 0, t, -test_get(x, i, h, 0, t));
                }
                if (test_below(rng, 50) == 0) {
                    test_set(x, i, h, 0, t, 0.0f);
                }
            }
        }
    }
}

struct test_scan test_make_householder(
        struct test_arena * a, const struct test_problem * p, struct test_rng * rng) {
    const int64_t    T = test_batch_tokens(&p->batch);
    const bool       rw = p->mode >= TEST_RW;
    struct test_scan s = { .op = TEST_HOUSEHOLDER, .batch = p->batch };

    struct ggml_householder_scan_args * x = &s.householder;
    x->state = state_of(a, p, (int64_t) p->d_k * p->d_v * p->H);
    x->ids = test_batch_ids(a, &p->batch);
    x->q = tokens(a, p, "q", p->d_k, 0, 1, T);
    x->k = tokens(a, p, "k", p->d_k, 1, p->n_h, T);
    x->v = tokens(a, p, "v", p->d_v, 2, p->n_h, T);
    x->scale = 1.0f / sqrtf((float) p->d_k);
    test_fill_slots(x->state, x->ids, rng);
    test_fill_unit(x->q, rng, 0.0);
    test_fill_unit(x->k, rng, p->mean);
    test_fill_normal(x->v, rng, 1.0);
    if (rw) { // as in RWKV-7: r of length 1, w = r ∘ a with a in (0, 1)
        x->r = tokens(a, p, "r", p->d_k, 3, 1, T);
        x->w = tokens(a, p, "w", p->d_k, 3, 1, T);
        test_fill_unit(x->r, rng, p->mean);
        test_fill_uniform(x->w, rng, 0.0, 1.0);
        for (int64_t t = 0; t < T; ++t) {
            for (int64_t h = 0; h < x->r->ne[1]; ++h) {
                for (int64_t i = 0; i < p->d_k; ++i) {
                    test_set(x->w, i, h, 0, t,
                            test_get(x->r, i, h, 0, t) * test_get(x->w, i, h, 0, t));
                }
            }
        }
    } else {
        x->beta = tokens(a, p, "beta", 1, 3, p->n_h, T);
        test_fill_uniform(x->beta, rng, p->beta_lo, p->beta_hi > 0.0 ? p->beta_hi : 2.0);
    }
    if (p->mode % 3 != 0) {
        const double lo = p->gate_lo > 0.0 ? p->gate_lo : rw ? 0.55 : 0.8;
        x->gate = tokens(a, p, "gate", p->mode % 3 == 1 ? 1 : p->d_k, 4, 1, T);
        test_fill_uniform(x->gate, rng, lo, 1.0);
        if (!rw) {
            flip_signs(x->gate, rng);
        }
    }
    describe(&s, test_householder_names[p->mode], p);
    return s;
}

static double log_sigmoid(double x) {
    return x < 0.0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

// Gates of mLSTM, and an m for every slot: any is valid
static void fill_mlstm(
        struct ggml_signed_scan_args * x, const struct test_problem * p, struct test_rng * rng) {
    const bool    is_hard = p->mode == MODE_MLSTM_HARD;
    const double  hard = p->hard > 0.0 ? p->hard : 100.0;
    const double  size_i = p->eps == TEST_EPS_NUMERATOR ? 0.5 : 2.0;
    const int64_t size = x->state->ne[0] / p->H;
    for (int64_t t = 0; t < x->log_f->ne[3]; ++t) {
        for (int64_t h = 0; h < x->log_f->ne[1]; ++h) {
            test_set(x->log_f, 0, h, 0, t,
                    (float) log_sigmoid(is_hard ? test_uniform(rng, -hard, hard)
                                                : 3.0 + 1.5 * test_normal(rng)));
        }
        for (int64_t h = 0; h < x->log_i->ne[1]; ++h) {
            test_set(x->log_i, 0, h, 0, t,
                    (float) (p->faint  ? test_uniform(rng, -80.0, -65.0)
                             : is_hard ? test_uniform(rng, -hard, hard)
                                       : size_i * test_normal(rng)));
        }
    }
    for (int64_t slot = 0; slot < x->state->ne[1]; ++slot) {
        for (int64_t h = 0; h < p->H && !isnan(test_get(x->state, 0, slot, 0, 0)); ++h) {
            test_set(x->state, h * size + size - 1, slot, 0, 0,
                    (float) test_uniform(rng, is_hard ? -50.0 : -2.0, is_hard ? 50.0 : 2.0));
        }
    }
}

struct test_scan test_make_signed(
        struct test_arena * a, const struct test_problem * p, struct test_rng * rng) {
    const int64_t    T = test_batch_tokens(&p->batch);
    const bool       is_mlstm = p->mode >= MODE_MLSTM;
    const int64_t    size = (int64_t) p->d_k * p->d_v + (is_mlstm ? p->d_k + 1 : 0);
    struct test_scan s = { .op = TEST_SIGNED, .batch = p->batch };

    struct ggml_signed_scan_args * x = &s.sign;
    x->state = state_of(a, p, size * p->H);
    x->ids = test_batch_ids(a, &p->batch);
    x->c = tokens(a, p, "c", p->d_k, 0, 1, T);
    x->b = tokens(a, p, "b", p->d_k, 1, 1, T);
    x->x = tokens(a, p, "x", p->d_v, 2, 1, T);
    x->scale = 1.0f / sqrtf((float) p->d_k);
    x->eps = p->eps > 0.0f ? p->eps : 1e-6f;
    x->form = p->mode == MODE_MAMBA_SIGNED || p->mode == MODE_MAMBA2_SIGNED
                      ? GGML_SIGNED_SCAN_TWO_EXP_M1
                      : GGML_SIGNED_SCAN_EXP;
    test_fill_slots(x->state, x->ids, rng);
    test_fill_normal(x->c, rng, 1.0);
    test_fill_normal(x->b, rng, 1.0);
    test_fill_normal(x->x, rng, 1.0);

    const bool head =
            p->mode == MODE_HEAD || p->mode == MODE_CONST_HEAD || p->mode == MODE_BONUS_HEAD;
    const bool fixed = p->mode == MODE_CONST_HEAD || p->mode == MODE_CONST_CHANNEL;
    if (head || fixed || p->mode == MODE_CHANNEL || p->mode == MODE_BONUS) {
        x->gate = tokens(a, p, "gate", head ? 1 : p->d_k, 3, 1, fixed ? 1 : T);
        test_fill_uniform(x->gate, rng, p->gate_lo > 0.0 ? p->gate_lo : 0.8, 1.0);
        flip_signs(x->gate, rng);
    }
    if (p->mode == MODE_BONUS || p->mode == MODE_BONUS_HEAD || p->mode == MODE_BONUS_NONE) {
        x->bonus = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "bonus", p->d_k,
                test_divisor(p->H, p->heads + 4), 1, 1);
        test_fill_normal(x->bonus, rng, 1.0);
    }
    if (p->mode >= MODE_MAMBA && p->mode <= MODE_MAMBA2_SIGNED) {
        const bool one = p->mode >= MODE_MAMBA2;
        x->dt = tokens(a, p, "dt", one ? 1 : p->d_v, 3, 1, T);
        x->A = test_tensor(a, GGML_TYPE_F32, p->heads % 2 == 0 ? TEST_REVERSED : TEST_DENSE, "A",
                one ? 1 : p->d_v, one ? 1 : p->d_k, test_divisor(p->H, p->heads + 4), 1);
        // dt A from nearly 0 to −3: exp(dt A) from 1 to 0.05, 2 exp(dt A) − 1 from 1 to −0.9
        test_fill_uniform(x->dt, rng, 0.001, 0.3);
        test_fill_uniform(x->A, rng, -10.0, -0.1);
    }
    if (is_mlstm) {
        x->log_f = tokens(a, p, "log_f", 1, 3, 1, T);
        x->log_i = tokens(a, p, "log_i", 1, 4, 1, T);
        fill_mlstm(x, p, rng);
    }
    describe(&s, test_signed_names[p->mode], p);
    return s;
}

struct test_scan test_make_conv(
        struct test_arena * a, const struct test_problem * p, struct test_rng * rng) {
    const bool       shift = p->mode == 0;
    struct test_scan s = { .op = TEST_CONV, .batch = p->batch };
    s.conv.state = state_of(a, p, (int64_t) p->d_k * p->d_v);
    s.conv.ids = test_batch_ids(a, &p->batch);
    s.conv.x = test_tensor(
            a, GGML_TYPE_F32, p->layout, "x", p->d_v, test_batch_tokens(&p->batch), 1, 1);
    s.conv.activation = (enum ggml_short_conv_activation)(shift ? 0 : (p->mode - 1) / 2);
    test_fill_slots(s.conv.state, s.conv.ids, rng);
    test_fill_normal(s.conv.x, rng, 1.0);
    if (!shift) {
        s.conv.weight =
                test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "weight", p->d_k + 1, p->d_v, 1, 1);
        test_fill_normal(s.conv.weight, rng, 1.0);
    }
    if (!shift && p->mode % 2 == 0) {
        s.conv.bias = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "bias", p->d_v, 1, 1, 1);
        test_fill_normal(s.conv.bias, rng, 1.0);
    }
    describe(&s, shift ? "token shift" : "convolution", p);
    return s;
}

struct test_scan test_make_lstm(
        struct test_arena * a, const struct test_problem * p, struct test_rng * rng) {
    struct test_scan s = { .op = TEST_LSTM, .batch = p->batch };
    const int64_t    d = p->d_v, rows = p->mode == GGML_LSTM_SCAN_SLSTM ? 4 : 2;
    s.lstm.state = state_of(a, p, rows * d * p->H);
    s.lstm.ids = test_batch_ids(a, &p->batch);
    s.lstm.x =
            test_tensor(a, GGML_TYPE_F32, p->layout, "x", d, p->H, 4, test_batch_tokens(&p->batch));
    s.lstm.R = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "R", 4 * d, d, p->H, 1);
    s.lstm.form = (enum ggml_lstm_scan_form) p->mode;
    test_fill_slots(s.lstm.state, s.lstm.ids, rng);
    test_fill_normal(s.lstm.x, rng, p->hard > 0.0 ? p->hard : 1.0);
    test_fill_normal(s.lstm.R, rng, 1.0 / sqrt((double) d));
    // a normalizer is positive after the first token
    for (int64_t slot = 0; slot < s.lstm.state->ne[1] && rows == 4; ++slot) {
        float * state = (float *) ((char *) s.lstm.state->data + slot * s.lstm.state->nb[1]);
        for (int64_t i = 0; i < rows * d * p->H; ++i) {
            if (i / d % 4 == 2) {
                state[i] = fabsf(state[i]) + 0.5f;
            }
        }
    }
    describe(&s, rows == 4 ? "sLSTM" : "LSTM", p);
    return s;
}

static struct ggml_tensor * zeros(struct test_arena * a, const char * name, int64_t ne0,
        int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor * x = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, name, ne0, ne1, ne2, ne3);
    test_fill(x, 0.0f);
    return x;
}

struct test_scan test_zero_householder(struct test_arena * a, const struct test_batch * batch,
        int64_t d_k, int64_t d_v, int64_t H, int64_t n_h, int64_t gate_width) {
    const int64_t    T = test_batch_tokens(batch);
    struct test_scan s = { .op = TEST_HOUSEHOLDER, .batch = *batch };

    s.householder = (struct ggml_householder_scan_args) {
        .state = zeros(a, "state", d_k * d_v * H, test_batch_slots(batch), 1, 1),
        .ids = test_batch_ids(a, batch),
        .q = zeros(a, "q", d_k, H, 1, T),
        .k = zeros(a, "k", d_k, 1, n_h, T),
        .v = zeros(a, "v", d_v, 1, n_h, T),
        .beta = zeros(a, "beta", 1, 1, n_h, T),
        .gate = gate_width > 0 ? zeros(a, "gate", gate_width, 1, 1, T) : NULL,
        .scale = 1.0f,
    };
    return s;
}
