// ggml_scan_ids_check against a direct implementation of its rules, on hand-made and random ids;
// ggml_scan_check_values on inputs with one invalid number at a time.

#include "lrnn.h"
#include "kit/scan-case.h"

//
// ids
//

enum { MAX_IDS = 64 };

// The rules, one by one: slots and tokens are in range, every token belongs to exactly one
// sequence, no slot is written twice, and no slot is written by one sequence and read by another.
static bool valid(const int32_t * ids, int n_snap, int n_seqs, int n_slots, int n_tokens) {
    const int stride = GGML_SCAN_SNAPS + n_snap;
    for (int s = 0; s < n_seqs; ++s) {
        const int32_t * id = ids + s * stride;
        if (id[GGML_SCAN_SLOT_IN] < -1 || id[GGML_SCAN_SLOT_IN] >= n_slots) {
            return false;
        }
        if (id[GGML_SCAN_SLOT_OUT] < 0 || id[GGML_SCAN_SLOT_OUT] >= n_slots) {
            return false;
        }
        if (id[GGML_SCAN_FIRST] < 0 || id[GGML_SCAN_COUNT] < 0) {
            return false;
        }
        if ((int64_t) id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT] > n_tokens) {
            return false;
        }
        for (int i = 0; i < n_snap; ++i) {
            if (id[GGML_SCAN_SNAPS + i] < -1 || id[GGML_SCAN_SNAPS + i] >= n_slots) {
                return false;
            }
        }
    }
    for (int token = 0; token < n_tokens; ++token) {
        int owners = 0;
        for (int s = 0; s < n_seqs; ++s) {
            const int32_t * id = ids + s * stride;
            owners += token >= id[GGML_SCAN_FIRST] &&
                      token < id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT];
        }
        if (owners != 1) {
            return false;
        }
    }
    for (int slot = 0; slot < n_slots; ++slot) {
        int writes = 0, writer = -1;
        for (int s = 0; s < n_seqs; ++s) {
            const int32_t * id = ids + s * stride;
            for (int i = GGML_SCAN_SLOT_OUT; i < stride; ++i) {
                if ((i == GGML_SCAN_SLOT_OUT || i >= GGML_SCAN_SNAPS) && id[i] == slot) {
                    ++writes;
                    writer = s;
                }
            }
        }
        if (writes > 1) {
            return false;
        }
        for (int s = 0; s < n_seqs && writes == 1; ++s) {
            if (s != writer && ids[s * stride + GGML_SCAN_SLOT_IN] == slot) {
                return false;
            }
        }
    }
    return true;
}

static bool check(const int32_t * ids, int n_snap, int n_seqs, int n_slots, int n_tokens,
        struct lrnn_error * err) {
    err->text[0] = '\0';
    return ggml_scan_ids_check(ids, n_snap, n_seqs, n_slots, n_tokens, err);
}

static void test_ids_by_hand(struct test * t) {
    static const struct {
        const char * what;
        bool         ok;
        int          n_snap, n_seqs, n_slots, n_tokens;
        int32_t      ids[18];
    } cases[] = {
        { "one sequence in place", true, 0, 1, 1, 5, { 0, 0, 0, 5 } },
        { "from the zero state", true, 0, 1, 1, 5, { -1, 0, 0, 5 } },
        { "a fork", true, 0, 1, 2, 5, { 0, 1, 0, 5 } },
        { "two forks of one source", true, 0, 2, 3, 5, { 0, 1, 0, 2, 0, 2, 2, 3 } },
        { "sequences in any order", true, 0, 2, 2, 5, { 1, 1, 3, 2, 0, 0, 0, 3 } },
        { "a sequence without tokens", true, 0, 2, 3, 5, { 0, 2, 0, 0, 1, 1, 0, 5 } },
        { "one without tokens after the last", true, 0, 2, 2, 5, { 0, 0, 5, 0, 1, 1, 0, 5 } },
        { "snapshots", true, 2, 1, 4, 5, { 0, 1, 0, 5, 2, 3 } },
        { "no snapshots", true, 2, 1, 1, 5, { 0, 0, 0, 5, -1, -1 } },
        { "a ring: a snapshot in its own source", true, 1, 1, 2, 5, { 0, 1, 0, 5, 0 } },
        { "slot_in -2", false, 0, 1, 2, 5, { -2, 0, 0, 5 } },
        { "slot_in too large", false, 0, 1, 2, 5, { 2, 0, 0, 5 } },
        { "slot_out -1", false, 0, 1, 2, 5, { 0, -1, 0, 5 } },
        { "slot_out too large", false, 0, 1, 2, 5, { 0, 2, 0, 5 } },
        { "slot_out far too large", false, 0, 1, 2, 5, { 0, INT32_MAX, 0, 5 } },
        { "a snapshot too large", false, 1, 1, 2, 5, { 0, 0, 0, 5, 2 } },
        { "a snapshot -2", false, 1, 1, 2, 5, { 0, 0, 0, 5, -2 } },
        { "first -1", false, 0, 1, 2, 5, { 0, 0, -1, 5 } },
        { "count -1", false, 0, 1, 2, 5, { 0, 0, 0, -1 } },
        { "tokens beyond the end", false, 0, 1, 2, 5, { 0, 0, 1, 5 } },
        { "first + count overflows", false, 0, 1, 2, 5, { 0, 0, INT32_MAX, INT32_MAX } },
        { "a token of no sequence", false, 0, 1, 2, 5, { 0, 0, 1, 4 } },
        { "a token of no sequence between two", false, 0, 2, 2, 5, { 0, 0, 0, 2, 1, 1, 3, 2 } },
        { "a token of two sequences", false, 0, 2, 2, 5, { 0, 0, 0, 3, 1, 1, 2, 3 } },
        { "the same tokens twice", false, 0, 2, 2, 5, { 0, 0, 0, 5, 1, 1, 0, 5 } },
        { "no sequence", false, 0, 0, 2, 5, { 0 } },
        { "two outputs in one slot", false, 0, 2, 2, 5, { 0, 0, 0, 2, 1, 0, 2, 3 } },
        { "an output in the source of another", false, 0, 2, 3, 5, { 0, 1, 0, 2, 1, 2, 2, 3 } },
        { "an output in the source of an earlier", false, 0, 2, 3, 5, { 0, 1, 0, 2, 2, 0, 2, 3 } },
        { "both read a slot that one writes", false, 0, 2, 3, 5, { 0, 0, 0, 2, 0, 1, 2, 3 } },
        { "a snapshot in its own output", false, 1, 1, 2, 5, { 0, 1, 0, 5, 1 } },
        { "two snapshots in one slot", false, 2, 1, 3, 5, { 0, 1, 0, 5, 2, 2 } },
        { "a snapshot in the output of another", false, 1, 2, 4, 5,
                { 0, 0, 0, 2, 1, 1, 1, 2, 3, -1 } },
        { "a snapshot in the source of another", false, 1, 2, 4, 5,
                { 0, 0, 0, 2, 1, 1, 2, 2, 3, -1 } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct lrnn_error err;
        const bool ok = check(cases[i].ids, cases[i].n_snap, cases[i].n_seqs, cases[i].n_slots,
                cases[i].n_tokens, &err);
        test_check(t, ok == cases[i].ok, "%s: %s", cases[i].what, ok ? "accepted" : err.text);
        test_check(t,
                ok == valid(cases[i].ids, cases[i].n_snap, cases[i].n_seqs, cases[i].n_slots,
                              cases[i].n_tokens),
                "the rules: %s", cases[i].what);
        test_check(t, ok || (strlen(err.text) > 10 && strchr(err.text, '\n') == NULL),
                "expected one sentence: %s: \"%s\"", cases[i].what, err.text);
    }
    // the message names the slot
    struct lrnn_error err;
    const int32_t     clash[] = { 0, 7, 0, 2, 1, 7, 2, 3 };
    test_check(t,
            !check(clash, 0, 2, 9, 5, &err) && test_has_word(err.text, "7") &&
                    test_has_word(err.text, "slot"),
            "the message does not name slot 7: %s", err.text);
    test_check(t, !ggml_scan_ids_check(clash, 0, 2, 9, 5, NULL),
            "accepted without a message "
            "buffer");
    printf("ggml_scan_ids_check: %d cases by hand\n", (int) (sizeof(cases) / sizeof(cases[0])));
}

static void test_ids_random(struct test * t) {
    struct test_rng rng = { 1 };
    int             n_valid = 0, n_wrong = 0;
    const int       n = 300000;
    for (int c = 0; c < n; ++c) {
        const int n_snap = (int) test_below(&rng, 3);
        const int n_seqs = 1 + (int) test_below(&rng, 3);
        const int n_slots = 1 + (int) test_below(&rng, 12);
        const int n_tokens = 1 + (int) test_below(&rng, 6);
        const int stride = GGML_SCAN_SNAPS + n_snap;
        int32_t   ids[MAX_IDS];
        int       next = 0; // mostly a partition of the tokens
        for (int s = 0; s < n_seqs; ++s) {
            int32_t *     id = ids + s * stride;
            const int32_t in = (int32_t) test_below(&rng, n_slots + 1) - 1;
            id[GGML_SCAN_SLOT_IN] = in;
            id[GGML_SCAN_SLOT_OUT] =
                    test_below(&rng, 2) == 0 && in >= 0 ? in : (int32_t) test_below(&rng, n_slots);
            id[GGML_SCAN_FIRST] = next;
            id[GGML_SCAN_COUNT] = s == n_seqs - 1 ? n_tokens - next
                                                  : (int32_t) test_below(&rng, n_tokens - next + 1);
            next += id[GGML_SCAN_COUNT];
            for (int i = 0; i < n_snap; ++i) {
                id[GGML_SCAN_SNAPS + i] =
                        (int32_t) test_below(&rng, n_slots + 2) - 2 + (test_below(&rng, 20) != 0);
            }
        }
        if (test_below(&rng, 4) == 0) {
            ids[test_below(&rng, n_seqs * stride)] += (int32_t) test_below(&rng, 5) - 2;
        }
        struct lrnn_error err;
        const bool        want = valid(ids, n_snap, n_seqs, n_slots, n_tokens);
        n_valid += want;
        n_wrong += check(ids, n_snap, n_seqs, n_slots, n_tokens, &err) != want;
    }
    test_check(t, n_wrong == 0, "%d of %d random ids give a wrong result", n_wrong, n);
    test_check(t, n_valid > n / 20 && n_valid < n * 19 / 20,
            "the random ids test too little: %d of %d are valid", n_valid, n);
    printf("ggml_scan_ids_check: %d random ids, %d of them valid, agree with the rules\n", n,
            n_valid);
}

//
// values
//

static bool has_number(const char * text, int64_t number) {
    char word[32];
    snprintf(word, sizeof(word), "%lld", (long long) number);
    return test_has_word(text, word);
}

enum {
    ALL_CHECKS = GGML_SCAN_CHECK_FINITE | GGML_SCAN_CHECK_BETA | GGML_SCAN_CHECK_GATE |
                 GGML_SCAN_CHECK_KEYS
};

// Sets one element of x to `value` and computes. Exactly the checks in `finds` must fail and name
// the element. Then restores the old value.
static void spoil(struct test * t, struct test_arena * a, struct test_scan * s,
        struct ggml_tensor * x, const char * name, const int64_t * at, float value, int finds,
        bool has_head, int64_t head, int64_t token) {
    struct ggml_tensor * state = *test_scan_state(s);
    float *              before = test_copy(state);
    const float          old = test_get(x, at[0], at[1], at[2], at[3]);
    test_set(x, at[0], at[1], at[2], at[3], value);
    struct ggml_tensor * op = test_scan_build(t, a, s, GGML_SCAN_PATH_STEP);
    test_compute(a, op, 2);
    for (int bit = 1; bit < ALL_CHECKS; bit <<= 1) {
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        const bool        ok = ggml_scan_check_values(op, bit, &err);
        test_check(t, ok == !(finds & bit), "check %d %s %s = %g: %s", bit,
                ok ? "accepts" : "reports", name, (double) value, err.text);
        if (!ok) {
            test_check(t, test_has_word(err.text, name), "the message does not name %s: %s", name,
                    err.text);
            test_check(t, !has_head || has_number(err.text, head),
                    "the message does not name head %d: %s", (int) head, err.text);
            test_check(t, token < 0 || has_number(err.text, token),
                    "the message does not name token %d: %s", (int) token, err.text);
        }
    }
    test_check(t, ggml_scan_check_values(op, 0, NULL), "a value is reported without a check");
    test_set(x, at[0], at[1], at[2], at[3], old);
    test_restore(state, before);
    free(before);
}

static void test_values(struct test * t) {
    struct test_rng   rng = { 2 };
    struct test_batch batch = { .n_seqs = 2, .len = { 33, 11 } };
    const int64_t     T = 44, D_K = 8, D_V = 8, H = 4, n_h = 2;
    const int64_t     head = 3, token = 37;
    int64_t           n0 = t->n_checks;

    // Householder
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = { .op = TEST_HOUSEHOLDER, .batch = batch, .text = "values" };
    struct ggml_householder_scan_args * args = &s.householder;

    *args = (struct ggml_householder_scan_args) {
        .state = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "state", D_K * D_V * H,
                test_batch_slots(&batch), 1, 1),
        .ids = test_batch_ids(&a, &batch),
        .q = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "q", D_K, H, 1, T),
        .k = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "k", D_K, H, n_h, T),
        .v = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "v", D_V, H, n_h, T),
        .beta = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "beta", 1, H, n_h, T),
        .gate = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "gate", D_K, H, 1, T),
        .scale = 1.0f,
    };
    test_fill_normal(args->state, &rng, 1.0);
    test_fill_unit(args->q, &rng, 0.0);
    test_fill_unit(args->k, &rng, 0.0);
    test_fill_normal(args->v, &rng, 1.0);
    test_fill_uniform(args->beta, &rng, 0.0, 2.0);
    test_fill_uniform(args->gate, &rng, -1.0, 1.0);

    const int64_t        at[4] = { 5, head, 0, token };
    const int64_t        at_f[4] = { 5, head, 1, token };
    const int64_t        at_0[4] = { 0, head, 1, token };
    const int            finite = GGML_SCAN_CHECK_FINITE;
    const int            in_beta = GGML_SCAN_CHECK_BETA;
    const int            in_gate = GGML_SCAN_CHECK_GATE;
    const int            in_keys = GGML_SCAN_CHECK_KEYS;
    struct ggml_tensor * op = test_scan_build(t, &a, &s, GGML_SCAN_PATH_STEP);
    struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
    // the ends of the ranges are valid
    test_set(args->beta, 0, 0, 0, 0, 0.0f);
    test_set(args->beta, 0, 1, 0, 0, 2.0f);
    test_set(args->gate, 0, 0, 0, 0, -1.0f);
    test_set(args->gate, 0, 1, 0, 0, 1.0f);
    test_compute(&a, op, 1);
    test_check(t, ggml_scan_check_values(op, ALL_CHECKS, &err), "valid values are reported: %s",
            err.text);

    spoil(t, &a, &s, args->q, "q", at, NAN, finite, true, head, token);
    spoil(t, &a, &s, args->q, "q", at, INFINITY, finite, true, head, token);
    spoil(t, &a, &s, args->k, "k", at_f, NAN, finite | in_keys, true, head, token);
    spoil(t, &a, &s, args->k, "k", at_f, 1.5f, in_keys, true, head, token);
    spoil(t, &a, &s, args->v, "v", at_f, -INFINITY, finite, true, head, token);
    spoil(t, &a, &s, args->beta, "beta", at_0, NAN, finite | in_beta, true, head, token);
    spoil(t, &a, &s, args->beta, "beta", at_0, 2.0001f, in_beta, true, head, token);
    spoil(t, &a, &s, args->beta, "beta", at_0, 3.0f, in_beta, true, head, token);
    spoil(t, &a, &s, args->beta, "beta", at_0, -1e-3f, in_beta, true, head, token);
    spoil(t, &a, &s, args->gate, "gate", at, NAN, finite | in_gate, true, head, token);
    spoil(t, &a, &s, args->gate, "gate", at, 1.001f, in_gate, true, head, token);
    spoil(t, &a, &s, args->gate, "gate", at, -1.001f, in_gate, true, head, token);
    // a non-finite state in a slot that is read and written
    const int64_t in_state[4] = { 17, ((int32_t *) args->ids->data)[GGML_SCAN_SLOT_IN], 0, 0 };
    spoil(t, &a, &s, args->state, "state", in_state, NAN, finite, false, 0, -1);

    // finite inputs with a non-finite output: 1e30 in v and q
    for (int64_t i = 0; i < D_K; ++i) {
        test_set(args->q, i, head, 0, token, 1e30f);
        test_set(args->v, i, head, 1, token, 1e30f);
    }
    test_set(args->beta, 0, head, 1, token, 1.0f);
    test_compute(&a, op, 1);
    test_check(t,
            !ggml_scan_check_values(op, finite, &err) && test_has_word(err.text, "output") &&
                    has_number(err.text, token),
            "an output that overflows is not reported: %s", err.text);
    test_check(t, ggml_scan_check_values(op, in_beta | in_gate | in_keys, &err),
            "finite values are reported: %s", err.text);
    test_arena_free(&a);

    // signed-gate scan: gate and bonus; Mamba; mLSTM
    for (int form = 0; form < 3; ++form) {
        test_arena_init(&a);
        const int64_t    size = form == 2 ? D_K * D_V + D_K + 1 : D_K * D_V;
        struct test_scan g = { .op = TEST_SIGNED, .batch = batch, .text = "values" };

        g.sign = (struct ggml_signed_scan_args) {
            .state = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "state", size * H,
                    test_batch_slots(&batch), 1, 1),
            .ids = test_batch_ids(&a, &batch),
            .c = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "c", D_K, H, 1, T),
            .b = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "b", D_K, H, 1, T),
            .x = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "x", D_V, H, 1, T),
            .scale = 1.0f,
        };
        test_fill_normal(g.sign.state, &rng, 1.0);
        test_fill_normal(g.sign.c, &rng, 1.0);
        test_fill_normal(g.sign.b, &rng, 1.0);
        test_fill_normal(g.sign.x, &rng, 1.0);
        const int64_t at_g[4] = { 0, head, 0, token };
        if (form == 0) {
            g.sign.gate = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "gate", 1, H, 1, T);
            g.sign.bonus = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "bonus", D_K, H, 1, 1);
            test_fill_uniform(g.sign.gate, &rng, -1.0, 1.0);
            test_fill_normal(g.sign.bonus, &rng, 1.0);
            spoil(t, &a, &g, g.sign.gate, "gate", at_g, NAN, finite | in_gate, true, head, token);
            spoil(t, &a, &g, g.sign.gate, "gate", at_g, -1.1f, in_gate, true, head, token);
            spoil(t, &a, &g, g.sign.bonus, "bonus", (int64_t[]) { 2, head, 0, 0 }, NAN, finite,
                    true, head, -1);
            spoil(t, &a, &g, g.sign.c, "c", at, NAN, finite, true, head, token);
            spoil(t, &a, &g, g.sign.b, "b", at, NAN, finite, true, head, token);
            spoil(t, &a, &g, g.sign.x, "x", at, NAN, finite, true, head, token);
        } else if (form == 1) {
            g.sign.dt = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "dt", D_V, H, 1, T);
            g.sign.A = test_tensor(&a, GGML_TYPE_F32, TEST_REVERSED, "A", D_V, D_K, H, 1);
            test_fill_uniform(g.sign.dt, &rng, 0.01, 0.3);
            test_fill_uniform(g.sign.A, &rng, -5.0, -1.0);
            spoil(t, &a, &g, g.sign.dt, "dt", at, NAN, finite, true, head, token);
            spoil(t, &a, &g, g.sign.A, "A", (int64_t[]) { 2, 1, head, 0 }, NAN, finite, true, head,
                    -1);
            spoil(t, &a, &g, g.sign.dt, "dt", at, 2.5f, 0, true, head, token); // dt has no range
        } else {
            g.sign.log_f = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "log_f", 1, H, 1, T);
            g.sign.log_i = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "log_i", 1, H, 1, T);
            test_fill_uniform(g.sign.log_f, &rng, -1.0, 0.0);
            test_fill_uniform(g.sign.log_i, &rng, -3.0, 3.0);
            spoil(t, &a, &g, g.sign.log_f, "log_f", at_g, NAN, finite, true, head, token);
            spoil(t, &a, &g, g.sign.log_i, "log_i", at_g, NAN, finite, true, head, token);
            // logarithms have no range
            spoil(t, &a, &g, g.sign.log_i, "log_i", at_g, 5.0f, 0, true, head, token);
        }
        test_arena_free(&a);
    }

    // short convolution
    test_arena_init(&a);
    struct test_scan c = { .op = TEST_CONV, .batch = batch, .text = "values" };

    c.conv = (struct ggml_short_conv_args) {
        .state = test_tensor(
                &a, GGML_TYPE_F32, TEST_DENSE, "state", 3 * 10, test_batch_slots(&batch), 1, 1),
        .ids = test_batch_ids(&a, &batch),
        .x = test_tensor(&a, GGML_TYPE_F32, TEST_GAPS, "x", 10, T, 1, 1),
        .weight = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "weight", 4, 10, 1, 1),
        .bias = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "bias", 10, 1, 1, 1),
    };
    test_fill_normal(c.conv.state, &rng, 1.0);
    test_fill_normal(c.conv.x, &rng, 1.0);
    test_fill_normal(c.conv.weight, &rng, 1.0);
    test_fill_normal(c.conv.bias, &rng, 1.0);
    spoil(t, &a, &c, c.conv.x, "x", (int64_t[]) { 3, token, 0, 0 }, NAN, finite, false, 0, token);
    spoil(t, &a, &c, c.conv.weight, "weight", (int64_t[]) { 3, 5, 0, 0 }, NAN, finite, false, 0,
            -1);
    spoil(t, &a, &c, c.conv.bias, "bias", (int64_t[]) { 3, 0, 0, 0 }, NAN, finite, false, 0, -1);
    test_arena_free(&a);

    printf("ggml_scan_check_values: every input of every op with NaN, infinity, beta outside [0, "
           "2],\n"
           "  gates outside [-1, 1], long keys: %lld checks\n",
            (long long) (t->n_checks - n0));
}

int main(void) {
    struct test t = { 0 };
    test_ids_by_hand(&t);
    test_ids_random(&t);
    test_values(&t);
    return test_end(&t, "test-scan-ids");
}
