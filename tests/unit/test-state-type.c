// Rounded states: a session with a state_type gives the logits of a session in F32 whose states are
// taken out after every token, rounded by the loops below, and put back.

#include "lrnn.h"
#include "kit/check.h"

enum { TOKENS = 24, TYPES = 4 };

// The nearest number with 8 significant bits, ties to even.
static float round_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// The nearest number with 11 significant bits, or below 2^-14 the nearest multiple of 2^-24.
static float round_f16(float x) {
    int exponent;
    frexpf(x, &exponent);
    const int unit = exponent - 11 > -24 ? exponent - 11 : -24;
    return ldexpf(nearbyintf(ldexpf(x, -unit)), unit);
}

// 32 numbers as multiples of one scale, largest/127 in F16. The multiples are found before the
// scale is rounded, ties away from zero.
static void round_q8_0(float * x) {
    float largest = 0.0f;
    for (int i = 0; i < 32; ++i) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float scale = largest / 127.0f;
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < 32; ++i) {
        x[i] = roundf(x[i] * inverse) * round_f16(scale);
    }
}

static void round_all(float * x, size_t n, enum lrnn_state_type type) {
    for (size_t i = 0; i < n; ++i) {
        x[i] = type == LRNN_STATE_BF16  ? round_bf16(x[i])
               : type == LRNN_STATE_F16 ? round_f16(x[i])
                                        : x[i];
    }
    for (size_t i = 0; i + 32 <= n && type == LRNN_STATE_Q8_0; i += 32) {
        round_q8_0(x + i);
    }
}

// Token by token, rounded here. logits: [TOKENS][n_vocab]
static bool run_by_hand(struct lrnn_model * model, const int32_t * tokens,
        enum lrnn_state_type type, float * logits, struct lrnn_error * err) {
    const struct lrnn_session_params params = { .n_threads = 1 };
    const size_t                     n_vocab = (size_t) lrnn_model_get_info(model).n_vocab;
    struct lrnn_session *            s = lrnn_session_new(model, &params, err);
    bool                             ok = s != NULL;
    for (int64_t t = 0; t < TOKENS && ok; ++t) {
        const struct lrnn_input input = { .tokens = tokens + t, .n_tokens = 1, .n_logits = 1 };
        ok = lrnn_eval(s, &input, 1, err);
        if (ok) {
            memcpy(logits + (size_t) t * n_vocab, lrnn_logits(s, 0), n_vocab * sizeof(float));
        }
        const size_t size = lrnn_seq_size(s, 0);
        float *      state = malloc(size);
        ok = ok && state != NULL && lrnn_seq_get(s, 0, state, size, err);
        if (ok) {
            round_all(state, size / sizeof(float), type);
            ok = lrnn_seq_set(s, 0, t + 1, state, size, err);
        }
        free(state);
    }
    lrnn_session_free(s);
    return ok;
}

// The same by the session, in one call next to a shorter sequence.
static bool run_session(struct lrnn_model * model, const int32_t * tokens,
        enum lrnn_state_type type, float * logits, struct lrnn_error * err) {
    const struct lrnn_session_params params = {
        .n_threads = 2, .n_seqs = 2, .n_batch = 3, .state_type = type
    };
    const size_t            n_vocab = (size_t) lrnn_model_get_info(model).n_vocab;
    const struct lrnn_input inputs[] = {
        { .seq = 1, .tokens = tokens + 3, .n_tokens = 7, .n_logits = 0 },
        { .seq = 0, .tokens = tokens, .n_tokens = TOKENS, .n_logits = TOKENS },
    };
    struct lrnn_session * s = lrnn_session_new(model, &params, err);
    const bool            ok = s != NULL && lrnn_eval(s, inputs, 2, err);
    for (int64_t t = 0; t < TOKENS && ok; ++t) {
        memcpy(logits + (size_t) t * n_vocab, lrnn_logits(s, t), n_vocab * sizeof(float));
    }
    lrnn_session_free(s);
    return ok;
}

static void check_model(struct test * t, const char * name) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    char              path[4096];
    int32_t           tokens[TOKENS];
    snprintf(path, sizeof(path), "%s/%s.gguf", LRNN_MODELS, name);
    struct lrnn_model * model = lrnn_model_load(path, NULL, &err);
    if (!test_check(t, model != NULL, "%s", err.text)) {
        return;
    }
    const int32_t n_vocab = (int32_t) lrnn_model_get_info(model).n_vocab;
    const size_t  size = (size_t) TOKENS * (size_t) n_vocab * sizeof(float);
    for (int i = 0; i < TOKENS; ++i) {
        tokens[i] = (7 * i * i + 3 * i + 1) % n_vocab;
    }
    float * exact = malloc(size);
    float * found[2] = { malloc(size), malloc(size) };
    for (int type = LRNN_STATE_F32; type < TYPES; ++type) {
        const char * type_name = lrnn_state_type_name((enum lrnn_state_type) type);
        const bool   ok = run_by_hand(model, tokens, (enum lrnn_state_type) type, found[0], &err) &&
                        run_session(model, tokens, (enum lrnn_state_type) type, found[1], &err);
        test_check(t, ok, "%s, %s: %s", name, type_name, err.text);
        double worst = 0.0, change = 0.0;
        for (size_t i = 0; i < size / sizeof(float) && ok; ++i) {
            worst = fmax(worst, fabs((double) found[0][i] - (double) found[1][i]));
            change = type > 0 ? fmax(change, fabs((double) found[1][i] - (double) exact[i])) : 0.0;
        }
        if (type == LRNN_STATE_F32) {
            memcpy(exact, found[0], size);
        }
        test_check(t, worst == 0.0, "%s, %s: logits differ by %g", name, type_name, worst);
        test_check(t, type == LRNN_STATE_F32 || change > 1e-4,
                "%s, %s: rounding changes logits only by %g", name, type_name, change);
        printf("  %-24s %-5s rounded by hand and by the session: %.2g, effect %.2g\n", name,
                type_name, worst, change);
    }
    free(exact);
    free(found[0]);
    free(found[1]);
    lrnn_model_free(model);
}

static void check_refused(struct test * t) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct lrnn_model * model = lrnn_model_load(LRNN_MODELS "/parity-delta-neg.gguf", NULL, &err);
    const struct lrnn_session_params params = { .state_type = (enum lrnn_state_type) TYPES };
    test_check(t,
            model != NULL && lrnn_session_new(model, &params, &err) == NULL &&
                    strstr(err.text, "state_type is 4; expected 0 to 3") != NULL,
            "an unknown state_type: %s", err.text);
    lrnn_model_free(model);
}

int main(void) {
    struct test t = { 0 };
    // all states have a multiple of 32 numbers
    check_model(&t, "text-delta-neg");
    check_model(&t, "text-deltaproduct2-neg");
    check_model(&t, "parity-mamba-neg");
    check_model(&t, "s3-deltaproduct2-neg");
    check_refused(&t);
    return test_end(&t, "test-state-type");
}
