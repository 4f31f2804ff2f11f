// Sequences computed in one batch give the logits of each sequence alone: bit by bit in a model
// with matrices in Q8_0, within rounding otherwise.
//
// A product with a Q8_0 matrix adds up every column in the same order, so tokens cannot affect each
// other. With F32, several columns are added up in another order than one, unless they are computed
// one by one: in a quantized model for up to 32 tokens, or always if the session asks for exact
// cuts. The sequences differ in length, start and end at different calls, and are rewound.

#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/rng.h"
#include "kit/widen.h"
#include "lrnn.h"

#include <unistd.h>

enum { N_SEQS = 3, N_TOKENS = 40, N_REWIND = 3, MAX_CALLS = 96, MAX_PART = 5 };

static const double LIMIT_F32 = 1e-4; // absolute difference of logits, which are 1 to 10
static char         path[64];

// One call for one sequence: rewind, then append tokens. The same alone and in a batch.
struct turn {
    int32_t back;
    int32_t n;
    int32_t tokens[MAX_PART];
};

struct plan {
    struct turn turns[N_SEQS][MAX_CALLS];
    int         n_calls;
};

static void make_plan(struct plan * p, int64_t n_vocab, bool decoding, uint64_t seed) {
    static const int starts[N_SEQS] = { 0, 3, 5 },
                     ends[N_SEQS] = { N_TOKENS, N_TOKENS - 9, N_TOKENS - 2 };
    struct test_rng rng = { seed };
    memset(p, 0, sizeof(*p));
    p->n_calls = N_TOKENS;
    for (int s = 0; s < N_SEQS; ++s) {
        int64_t length = 0, can = 0;
        for (int i = starts[s]; i < ends[s]; ++i) {
            struct turn * turn = &p->turns[s][i];
            if (!decoding && i % 3 == s) {
                continue; // this sequence is not in the call
            }
            if (can > 0 && test_below(&rng, 4) == 0) {
                turn->back = (int32_t) (1 + test_below(&rng, can));
            }
            turn->n = decoding ? 1 : (int32_t) (1 + test_below(&rng, MAX_PART));
            for (int32_t k = 0; k < turn->n; ++k) {
                turn->tokens[k] = (int32_t) test_below(&rng, n_vocab);
            }
            length += turn->n - turn->back;
            can = can - turn->back + turn->n;
            can = can < N_REWIND ? can : N_REWIND;
            can = can < length ? can : length;
        }
    }
}

// Runs the plan for all sequences, or for sequence `alone` if it is not negative. Stores the logits
// of the last token of each turn in out[sequence][call].
static bool run(struct test * t, const char * name, struct lrnn_model * model,
        const struct plan * p, int alone, struct lrnn_session_params params, float * out) {
    const int64_t         V = lrnn_model_get_info(model).n_vocab;
    struct lrnn_error     err;
    struct lrnn_session * session = lrnn_session_new(model, &params, &err);
    bool                  done = test_check(t, session != NULL, "%s: %s", name, err.text);
    for (int i = 0; done && i < p->n_calls; ++i) {
        struct lrnn_input in[N_SEQS];
        int32_t           n_in = 0;
        for (int k = 0; done && k < N_SEQS; ++k) {
            const int           s = (k + i) % N_SEQS; // the order varies
            const struct turn * turn = &p->turns[s][i];
            if (turn->n > 0 && (alone < 0 || alone == s)) {
                done = turn->back == 0 || lrnn_seq_rewind(session, s, turn->back, &err);
                in[n_in++] = (struct lrnn_input) {
                    .seq = s, .tokens = turn->tokens, .n_tokens = turn->n, .n_logits = 1
                };
            }
        }
        done = done && (n_in == 0 || lrnn_eval(session, in, n_in, &err));
        test_check(t, done, "%s: call %d: %s", name, i, err.text);
        for (int32_t k = 0; done && k < n_in; ++k) {
            memcpy(out + (in[k].seq * MAX_CALLS + i) * V, lrnn_logits(session, k),
                    (size_t) V * sizeof(float));
        }
    }
    lrnn_session_free(session);
    return done;
}

// The largest difference of a logit between a batch and single sequences.
static double compare(struct test * t, const char * name, struct lrnn_model * model, bool decoding,
        int32_t n_threads, enum lrnn_cache_type cache_type) {
    const int64_t                    V = lrnn_model_get_info(model).n_vocab;
    const size_t                     n = (size_t) (N_SEQS * MAX_CALLS * V);
    const struct lrnn_session_params params = {
        .n_threads = n_threads,
        .n_seqs = N_SEQS,
        .n_rewind = N_REWIND,
        .n_cache = 4 * N_TOKENS,
        .cache_type = cache_type,
    };
    struct plan * plan = malloc(sizeof(*plan));
    float *       all = calloc(2 * n, sizeof(float));
    double        worst = 0.0;
    make_plan(plan, V, decoding, (uint64_t) (1 + n_threads));
    bool done = run(t, name, model, plan, -1, params, all);
    for (int s = 0; done && s < N_SEQS; ++s) {
        done = run(t, name, model, plan, s, params, all + n);
    }
    for (size_t i = 0; i < n; ++i) {
        const double d = fabs((double) all[i] - (double) all[n + i]);
        worst = d <= worst ? worst : d; // NaN wins
    }
    free(plan);
    free(all);
    return done ? worst : NAN;
}

// A sequence, its fork, and a sequence loaded from its state file continue with the same bits.
static void compare_copies(
        struct test * t, const char * name, struct lrnn_model * model, enum lrnn_cache_type type) {
    enum { N = 9 };
    const struct lrnn_session_params params = {
        .n_threads = 1, .n_seqs = 3, .n_cache = 4 * N, .cache_type = type
    };
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    int32_t                      tokens[N];
    char                         state[64];
    struct lrnn_error            err = { LRNN_ERROR_NONE, "" };
    test_own_path(state, sizeof(state), "test-batch-invariance.state");
    for (int i = 0; i < N; ++i) {
        tokens[i] = (int32_t) ((7 * i + 3) % info.n_vocab);
    }
    struct lrnn_session * s = lrnn_session_new(model, &params, &err);
    struct lrnn_input     in = { .tokens = tokens, .n_tokens = N };
    bool ok = s != NULL && lrnn_eval(s, &in, 1, &err) && lrnn_seq_fork(s, 0, 1, &err) &&
              lrnn_seq_save(s, 0, NULL, state, &err) && lrnn_seq_load(s, 2, NULL, state, &err);
    const size_t size = (size_t) info.n_vocab * sizeof(float);
    float *      first = malloc(size);
    in.n_tokens = in.n_logits = 1;
    for (; ok && in.seq < 3; ++in.seq) {
        ok = lrnn_eval(s, &in, 1, &err);
        if (ok && in.seq == 0) {
            memcpy(first, lrnn_logits(s, 0), size);
        }
        test_check(t, !ok || memcmp(first, lrnn_logits(s, 0), size) == 0,
                "%s, cache in %s: a %s continues with other bits", name, lrnn_cache_type_name(type),
                in.seq == 1 ? "fork" : "loaded sequence");
    }
    test_check(t, ok, "%s: %s", name, err.text);
    lrnn_session_free(s);
    // another type of the cache
    s = lrnn_session_new(model,
            &(struct lrnn_session_params) {
                    .n_threads = 1, .n_cache = 4 * N, .cache_type = (type + 1) % 3 },
            &err);
    ok = s != NULL && lrnn_seq_load(s, 0, NULL, state, &err);
    test_check(t, !ok && strstr(err.text, "the attention cache has the type ") != NULL,
            "%s: a state with another type of the cache was accepted", name);
    lrnn_session_free(s);
    remove(state);
    free(first);
}

// The logits of a text whose tokens are fed one by one, and in calls of up to 32 tokens, some of
// them followed by wrong tokens that are rewound, as drafts are. Returns the largest difference.
static double compare_cuts(struct test * t, const char * name, struct lrnn_model * model,
        int32_t n_threads, enum lrnn_cache_type cache_type) {
    enum { N = 120, CALL = 32, BACK = 9 };
    const struct lrnn_session_params params = {
        .n_threads = n_threads,
        .n_seqs = 2,
        .n_rewind = BACK,
        .n_cache = N + CALL,
        .cache_type = cache_type,
    };
    const int64_t     V = lrnn_model_get_info(model).n_vocab;
    struct test_rng   rng = { 5 };
    int32_t           tokens[N + CALL];
    struct lrnn_error err;
    float *           all = malloc((size_t) (N * V) * sizeof(*all));
    double            worst = 0.0;
    for (int i = 0; i < N + CALL; ++i) {
        tokens[i] = (int32_t) test_below(&rng, V);
    }
    struct lrnn_session * s = lrnn_session_new(model, &params, &err);
    bool                  ok = s != NULL;
    for (int64_t at = 0; ok && at < N; ++at) {
        const struct lrnn_input in = { .tokens = tokens + at, .n_tokens = 1, .n_logits = 1 };
        ok = lrnn_eval(s, &in, 1, &err);
        if (ok) {
            memcpy(all + at * V, lrnn_logits(s, 0), (size_t) V * sizeof(*all));
        }
    }
    for (int64_t at = 0; ok && at < N;) {
        const int64_t wrong = test_below(&rng, BACK + 1);
        int64_t       right = 1 + test_below(&rng, CALL - wrong);
        right = right < N - at ? right : N - at;
        int32_t call[CALL];
        for (int64_t i = 0; i < right + wrong; ++i) {
            call[i] = i < right ? tokens[at + i] : (int32_t) test_below(&rng, V);
        }
        const int64_t           n = right + wrong;
        const struct lrnn_input in = { .seq = 1, .tokens = call, .n_tokens = n, .n_logits = n };
        ok = lrnn_eval(s, &in, 1, &err);
        for (int64_t i = 0; ok && i < right * V; ++i) {
            const double d = fabs((double) all[at * V + i] - (double) lrnn_logits(s, 0)[i]);
            worst = d <= worst ? worst : d; // NaN wins
        }
        ok = ok && lrnn_seq_rewind(s, 1, wrong, &err);
        at += right;
    }
    test_check(t, ok, "%s: %s", name, err.text);
    lrnn_session_free(s);
    free(all);
    return ok ? worst : NAN;
}

//
// Models: golden models, widened so that every row has several whole blocks of Q8_0
//

enum { LENGTH = 32, WIDTH = 3 * LENGTH };

// Quantizes all matrices, or those of the default policy, which keeps gates, β and low ranks in
// F32. Rows that are not whole blocks become F16.
static struct lrnn_model * quantize(struct model_edit * e, bool all, struct lrnn_error * err) {
    static const char * const kept[] = { "ssm_beta", "ssm_alpha", "ssm_ba", "ssm_f_", "ssm_g_",
        "time_mix_", "ssm_dt", "ssm_x", "igate", "fgate" };
    for (int64_t i = 0; i < e->n_tensors; ++i) {
        const struct ggml_tensor * x = e->tensors[i];
        bool                       keep = !widen_is_matrix(x) || x->type != GGML_TYPE_F32;
        for (size_t k = 0; !all && k < sizeof(kept) / sizeof(kept[0]); ++k) {
            keep = keep || strstr(x->name, kept[k]) != NULL;
        }
        if (!keep) {
            model_edit_convert(e, x->name, x->ne[0] % LENGTH == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16);
        }
    }
    return model_edit_write(e, path) ? lrnn_model_load(path, NULL, err) : NULL;
}

// With exact cuts, a quantized model gives the same bits for one long call and for single tokens.
static void test_exact_cuts(struct test * t, const char * name, struct lrnn_model * model) {
    enum { LONG = 2 * N_TOKENS };
    const struct lrnn_model_info     info = lrnn_model_get_info(model);
    const struct lrnn_session_params params = { .n_threads = 1, .n_seqs = 2, .exact_cuts = true };
    struct test_rng                  rng = { 3 };
    struct lrnn_error                err;
    int32_t                          tokens[LONG];
    struct lrnn_session *            session = lrnn_session_new(model, &params, &err);
    bool done = test_check(t, session != NULL, "%s: %s", name, err.text);
    for (int i = 0; i < LONG; ++i) {
        tokens[i] = (int32_t) test_below(&rng, info.n_vocab);
    }
    const size_t row = (size_t) info.n_vocab * sizeof(float);
    float *      whole = malloc(LONG * row);
    done = done && lrnn_eval(session, &(struct lrnn_input) { 0, tokens, LONG, LONG }, 1, &err);
    if (done) {
        memcpy(whole, lrnn_logits(session, 0), LONG * row);
    }
    int n_wrong = 0;
    for (int i = 0; i < LONG && done; ++i) {
        done = lrnn_eval(session, &(struct lrnn_input) { 1, tokens + i, 1, 1 }, 1, &err);
        n_wrong +=
                done && memcmp(whole + i * info.n_vocab, lrnn_logits(session, 0), row) != 0 ? 1 : 0;
    }
    test_check(t, done && n_wrong == 0, "%s: with exact cuts, %d of %d logits depend on the cut",
            name, n_wrong, LONG);
    free(whole);
    lrnn_session_free(session);
}

static void test_model(struct test * t, const struct golden * g) {
    static const char * const         TYPES[] = { "F32", "Q8_0 and F32", "Q8_0" };
    static const enum lrnn_cache_type CACHES[] = { LRNN_CACHE_F32, LRNN_CACHE_F16,
        LRNN_CACHE_Q8_0 };
    double                            worst[3] = { 0.0, 0.0, 0.0 };
    struct model_edit                 e;
    struct lrnn_error                 err = { LRNN_ERROR_NONE, "" };
    if (!test_check(t, model_edit_open(&e, g->path), "%s: cannot be read", g->path)) {
        return;
    }
    for (int type = 0; type < 3; ++type) {
        struct lrnn_model * model =
                type > 0 ? quantize(&e, type == 2, &err) : widen(&e, LENGTH, WIDTH, path, &err);
        const double limit = type > 0 ? 0.0 : LIMIT_F32;
        if (!test_check(t, model != NULL, "%s: %s", g->name, err.text)) {
            break;
        }
        // one token per call; random cuts; random cuts with two threads
        for (int how = 0; how < 3; ++how) {
            const double d = compare(t, g->name, model, how == 0, 1 + how / 2, CACHES[type]);
            test_check(t, d <= limit,
                    "%s, %s, %s, %d threads: batch and single sequences differ by %.3g; expected "
                    "at most %.0e",
                    g->name, TYPES[type], how == 0 ? "one token per call" : "random cuts",
                    1 + how / 2, d, limit);
            worst[type] = d <= worst[type] ? worst[type] : d;
        }
        for (int32_t n_threads = 1; n_threads <= 2 && type > 0; ++n_threads) {
            const double d = compare_cuts(t, g->name, model, n_threads, CACHES[type]);
            test_check(t, d == 0.0,
                    "%s, %s, %d threads: tokens in one call differ by %.3g from "
                    "one token per call",
                    g->name, TYPES[type], n_threads, d);
        }
        if (lrnn_model_get_info(model).n_layer_attention > 0) {
            compare_copies(t, g->name, model, CACHES[type]);
        }
        if (type > 0) {
            test_exact_cuts(t, g->name, model);
        }
        lrnn_model_free(model);
    }
    printf("%-28s largest difference: F32 %.1e, Q8_0 and F32 %.1e, Q8_0 %.1e\n", g->name, worst[0],
            worst[1], worst[2]);
    model_edit_close(&e);
}

//
// 16 sequences of a mixture, with experts in the types of released files
//

enum { MANY = 16, STEPS = 12, WIDE = 256, FIRST_MAX = 3 };

// Tokens of sequence s: FIRST_MAX at most in the first call, then one in each.
static int64_t first_tokens(int s) {
    return 1 + s % FIRST_MAX;
}

// Logits of all calls, [STEPS][MANY][V], of all sequences together or of each alone.
static bool run_many(struct test * t, const char * name, struct lrnn_model * model, bool together,
        int32_t n_threads, float * out) {
    const int64_t                    V = lrnn_model_get_info(model).n_vocab;
    const struct lrnn_session_params params = {
        .n_threads = n_threads, .n_seqs = MANY, .n_cache = STEPS + FIRST_MAX
    };
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct lrnn_session * session = lrnn_session_new(model, &params, &err);
    bool                  done = session != NULL;
    for (int call = 0; done && call < STEPS; ++call) {
        struct lrnn_input in[MANY];
        int32_t           tokens[MANY][FIRST_MAX];
        for (int s = 0; s < MANY; ++s) {
            for (int i = 0; i < FIRST_MAX; ++i) {
                tokens[s][i] = (int32_t) ((7 * s + 5 * call + 11 * i + s * call) % V);
            }
            in[s] = (struct lrnn_input) { .seq = s,
                .tokens = tokens[s],
                .n_tokens = call == 0 ? first_tokens(s) : 1,
                .n_logits = 1 };
        }
        const int n = together ? MANY : 1; // inputs of a call of lrnn_eval
        for (int s = 0; done && s < MANY; s += n) {
            done = lrnn_eval(session, in + s, n, &err);
            for (int k = 0; done && k < n; ++k) {
                memcpy(out + (call * MANY + s + k) * V, lrnn_logits(session, k),
                        (size_t) V * sizeof(float));
            }
        }
    }
    test_check(t, done, "%s: %s", name, err.text);
    lrnn_session_free(session);
    return done;
}

// Matrices with rows of 256 weights get the type, others F16. Routers stay in F32.
static void test_many(struct test * t, const char * name, enum ggml_type type) {
    static const char * const widths[] = { "expert_feed_forward_length",
        "expert_shared_feed_forward_length" };
    struct golden             g;
    struct model_edit         e;
    struct lrnn_error         err = { LRNN_ERROR_NONE, "" };
    char                      key[128];
    int                       n_experts = 0;
    golden_read(&g, name);
    if (!test_check(t, model_edit_open(&e, g.path), "%s: cannot be read", g.path)) {
        return;
    }
    const char * arch = gguf_get_val_str(e.gguf, gguf_find_key(e.gguf, "general.architecture"));
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); ++i) {
        snprintf(key, sizeof(key), "%.32s.%s", arch, widths[i]);
        gguf_set_val_u32(e.gguf, key, WIDE);
    }
    lrnn_model_free(widen(&e, LENGTH, WIDE, path, &err));
    for (int64_t i = 0; i < e.n_tensors; ++i) {
        const struct ggml_tensor * x = e.tensors[i];
        if (widen_is_matrix(x)) {
            n_experts += strstr(x->name, "_exps.") != NULL && x->ne[0] % WIDE == 0;
            model_edit_convert(&e, x->name, x->ne[0] % WIDE == 0 ? type : GGML_TYPE_F16);
        }
    }
    struct lrnn_model * model =
            model_edit_write(&e, path) ? lrnn_model_load(path, NULL, &err) : NULL;
    if (test_check(t, model != NULL && n_experts >= 3, "%s, %s: %d matrices of experts: %s", name,
                ggml_type_name(type), n_experts, err.text)) {
        const size_t n = (size_t) (STEPS * MANY * lrnn_model_get_info(model).n_vocab);
        float *      logits = calloc(2 * n, sizeof(*logits));
        for (int how = 0; how < 2; ++how) { // threads: 1 together, 2 alone; and the reverse
            bool done = run_many(t, name, model, true, 1 + how, logits) &&
                        run_many(t, name, model, false, 2 - how, logits + n);
            for (size_t i = 0; i < n && done; ++i) {
                done = isfinite(logits[i]);
            }
            test_check(t, done && memcmp(logits, logits + n, n * sizeof(*logits)) == 0,
                    "%s, experts in %s, %d threads: 16 sequences differ from each alone", name,
                    ggml_type_name(type), 1 + how);
        }
        free(logits);
        printf("%-28s 16 sequences as each alone, experts in %s\n", name, ggml_type_name(type));
    }
    lrnn_model_free(model);
    model_edit_close(&e);
    golden_free(&g);
}

int main(void) {
    static const char * const mixtures[] = { "qwen35moe", "qwen3next", "granite_h_moe" };
    struct test               t = { 0 };
    struct golden_list        list;
    golden_list_load(&list);
    test_own_path(path, sizeof(path), "test-batch-invariance.gguf");
    for (int i = 0; i < list.n; ++i) {
        test_model(&t, &list.models[i]);
    }
    for (size_t i = 0; i < sizeof(mixtures) / sizeof(mixtures[0]); ++i) {
        test_many(&t, mixtures[i], GGML_TYPE_Q4_K);
        test_many(&t, mixtures[i], GGML_TYPE_MXFP4);
    }
    golden_list_free(&list);
    remove(path);
    return test_end(&t, "test-batch-invariance");
}
