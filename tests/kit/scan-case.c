#include "kit/scan-case.h"

#include "lrnn.h"
#include "kit/device.h"
#include "kit/nmse.h"

const char * const test_path_names[4] = { "auto", "step", "chunk", "reference" };

struct ggml_tensor ** test_scan_state(struct test_scan * s) {
    return s->op == TEST_HOUSEHOLDER ? &s->householder.state
           : s->op == TEST_SIGNED    ? &s->sign.state
           : s->op == TEST_LSTM      ? &s->lstm.state
                                     : &s->conv.state;
}

struct ggml_tensor ** test_scan_ids(struct test_scan * s) {
    return s->op == TEST_HOUSEHOLDER ? &s->householder.ids
           : s->op == TEST_SIGNED    ? &s->sign.ids
           : s->op == TEST_LSTM      ? &s->lstm.ids
                                     : &s->conv.ids;
}

struct oracle test_scan_oracle(const struct test_scan * s) {
    return s->op == TEST_HOUSEHOLDER ? oracle_householder(&s->householder)
           : s->op == TEST_SIGNED    ? oracle_signed(&s->sign)
           : s->op == TEST_LSTM      ? oracle_lstm(&s->lstm)
                                     : oracle_short_conv(&s->conv);
}

// The chunk path needs one transition per head, and no r and w.
static bool has_chunk(const struct test_scan * s) {
    return (s->op == TEST_HOUSEHOLDER && s->householder.r == NULL) ||
           (s->op == TEST_SIGNED &&
                   (s->sign.A == NULL || (s->sign.A->ne[0] == 1 && s->sign.A->ne[1] == 1)));
}

// The convolution and the LSTM have one path.
bool test_scan_has_path(const struct test_scan * s, enum ggml_scan_path path) {
    if (test_device() != NULL) { // shaders have one path
        return path == GGML_SCAN_PATH_STEP;
    }
    return s->op == TEST_CONV || s->op == TEST_LSTM ? path == GGML_SCAN_PATH_STEP
                                                    : path != GGML_SCAN_PATH_CHUNK || has_chunk(s);
}

bool test_scan_is_step(const struct test_scan * s, enum ggml_scan_path path) {
    return path == GGML_SCAN_PATH_STEP || path == GGML_SCAN_PATH_REFERENCE || !has_chunk(s);
}

struct ggml_tensor * test_scan_build(struct test * t, struct test_arena * a,
        const struct test_scan * s, enum ggml_scan_path path) {
    struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
    struct ggml_tensor * op = NULL;
    if (s->op == TEST_HOUSEHOLDER) {
        struct ggml_householder_scan_args args = s->householder;
        args.path = path;
        op = ggml_householder_scan(a->ctx, &args, &err);
    } else if (s->op == TEST_SIGNED) {
        struct ggml_signed_scan_args args = s->sign;
        args.path = path;
        op = ggml_signed_scan(a->ctx, &args, &err);
    } else if (s->op == TEST_LSTM) {
        op = ggml_lstm_scan(a->ctx, &s->lstm, &err);
    } else {
        op = ggml_short_conv(a->ctx, &s->conv, &err);
    }
    if (!test_check(t, op != NULL, "%s: the builder rejects a valid case: %s", s->text, err.text)) {
        exit(1);
    }
    return op;
}

struct test_scan test_scan_gather(
        struct test_arena * a, const struct test_scan * s, const int64_t * idx, int64_t n) {
    struct test_scan      r = *s;
    struct ggml_tensor ** tokens[8] = { NULL };
    const int             dim = s->op == TEST_CONV ? 1 : 3;
    int64_t               n_tokens = 0;
    if (s->op == TEST_HOUSEHOLDER) {
        struct ggml_tensor ** all[] = { &r.householder.q, &r.householder.k, &r.householder.v,
            &r.householder.beta, &r.householder.gate, &r.householder.r, &r.householder.w };
        memcpy(tokens, all, sizeof(all));
    } else if (s->op == TEST_SIGNED) {
        struct ggml_tensor ** all[] = { &r.sign.c, &r.sign.b, &r.sign.x, &r.sign.gate, &r.sign.dt,
            &r.sign.log_f, &r.sign.log_i };
        memcpy(tokens, all, sizeof(all));
    } else {
        tokens[0] = s->op == TEST_LSTM ? &r.lstm.x : &r.conv.x;
    }
    n_tokens = (*tokens[0])->ne[dim];
    for (int i = 0; tokens[i] != NULL; ++i) {
        // a gate may be the same for all tokens
        if (*tokens[i] != NULL && (*tokens[i])->ne[dim] == n_tokens) {
            *tokens[i] = test_gather(a, *tokens[i], dim, idx, n);
        }
    }
    return r;
}

double test_scan_nmse_out(const struct oracle * o, const struct ggml_tensor * op) {
    const float * out = op->data;
    struct nmse   sum = { 0 };
    for (int64_t i = 0; i < o->n_tokens * o->n_heads * o->d_out; ++i) {
        const double weight = o->weight[i / o->d_out];
        if (weight > 0.0) {
            nmse_add(&sum, weight * out[i], weight * o->out[i]);
        }
    }
    return nmse_value(&sum);
}

double test_scan_nmse_state(const struct oracle * o, const struct test_scan * s) {
    struct test_scan           copy = *s;
    const struct ggml_tensor * state = *test_scan_state(&copy);
    const bool                 mlstm = s->op == TEST_SIGNED && s->sign.log_f != NULL;
    const int64_t              size = o->slot_size / o->n_heads;
    struct nmse                sum = { 0 };
    double                     worst = 0.0;
    for (int64_t slot = 0; slot < o->n_slots; ++slot) {
        for (int64_t h = 0; h < o->n_heads && o->written[slot]; ++h) {
            const double * ref = o->state + (slot * o->n_heads + h) * size;
            const float *  got =
                    (const float *) ((const char *) state->data + slot * state->nb[1]) + h * size;
            struct nmse head = { 0 };
            // mLSTM: relative to the oracle's m
            const double same = mlstm ? exp(got[size - 1] - ref[size - 1]) : 1.0;
            for (int64_t i = 0; i < (mlstm ? size - 1 : size); ++i) {
                nmse_add(&head, same * got[i], ref[i]);
            }
            const double nmse = nmse_value(&head);
            worst = nmse <= worst ? worst : nmse;
            sum.error += head.error;
            sum.size += head.size;
        }
    }
    return mlstm ? worst : nmse_value(&sum);
}
