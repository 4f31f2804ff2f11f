// Tests of comparing models side by side: KL divergence, losses and top-1 at every position,
// against a loop over the logits of each model alone; summaries against sums by hand.

#include "lrnn.h"
#include "eval/estimates/kl.h"
#include "file/quantize.h"
#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/rng.h"

#include <unistd.h>

static char quantized[64]; // path of a model

//
// One position
//

// The definition, in long double, without subtracting the maximum.
static struct kl by_definition(const float * p, const float * q, int64_t n, int32_t target) {
    long double zp = 0.0L, zq = 0.0L, kl = 0.0L;
    int64_t     top_p = 0, top_q = 0;
    for (int64_t v = 0; v < n; ++v) {
        zp += expl((long double) p[v]);
        zq += expl((long double) q[v]);
        top_p = p[v] > p[top_p] ? v : top_p;
        top_q = q[v] > q[top_q] ? v : top_q;
    }
    for (int64_t v = 0; v < n; ++v) {
        const long double pv = expl((long double) p[v]) / zp;
        const long double qv = expl((long double) q[v]) / zq;
        kl += pv * logl(pv / qv);
    }
    return (struct kl) {
        .kl = (double) kl,
        .nll_p = (double) -logl(expl((long double) p[target]) / zp),
        .nll_q = (double) -logl(expl((long double) q[target]) / zq),
        .same_top = top_p == top_q,
    };
}

static void test_position(struct test * t) {
    struct test_rng   rng = { 3 };
    struct test_worst worst = { .what = "one position against the definition", .limit = 1e-12 };
    float             p[300], q[300];

    for (int i = 0; i < 200; ++i) {
        const int64_t n = 2 + test_below(&rng, 299);
        const double  spread = pow(10.0, test_uniform(&rng, -2.0, 1.3));
        const double  away = pow(10.0, test_uniform(&rng, -6.0, 0.0));
        for (int64_t v = 0; v < n; ++v) {
            p[v] = (float) (spread * test_normal(&rng));
            q[v] = p[v] + (float) (away * test_normal(&rng));
        }
        const int32_t   target = (int32_t) test_below(&rng, n);
        const struct kl d = kl_of(p, q, n, target);
        const struct kl e = by_definition(p, q, n, target);
        test_bound(t, &worst, fabs(d.kl - e.kl) + fabs(d.nll_p - e.nll_p) + fabs(d.nll_q - e.nll_q),
                "random logits");
        test_check(t, d.same_top == e.same_top && d.kl > -1e-15,
                "top-1, or a negative divergence: %g", d.kl);
        const struct kl same = kl_of(p, p, n, target);
        test_check(t, same.kl == 0.0 && same.nll_p == same.nll_q && same.same_top,
                "a model differs from itself by %g", same.kl);
    }
    // a fair coin and one with p = ¾: KL = ½ ln(½/¾) + ½ ln(½/¼) = ½ ln(4/3)
    const struct kl coin =
            kl_of((const float[2]) { 80.0f, 80.0f }, (const float[2]) { logf(3.0f), 0.0f }, 2, 1);
    test_check(t,
            fabs(coin.kl - 0.5 * log(4.0 / 3.0)) < 1e-6 && fabs(coin.nll_p - log(2.0)) < 1e-12 &&
                    fabs(coin.nll_q - log(4.0)) < 1e-6,
            "coins: %g", coin.kl);
    // beyond the range of exp
    const struct kl far =
            kl_of((const float[2]) { 0.0f, 5000.0f }, (const float[2]) { 3000.0f, 0.0f }, 2, 0);
    test_check(t, fabs(far.kl - 3000.0) < 1e-9 && far.nll_p == 5000.0 && !far.same_top,
            "far apart: %g", far.kl);
    test_worst_print(&worst);
}

//
// Models side by side
//

enum { CALL = 7 }; // tokens of a call

static struct lrnn_session * open_session(const char * path, struct lrnn_model ** model) {
    *model = test_load_model(path, NULL);
    return test_session(*model, &(struct lrnn_session_params) { .n_threads = 1 });
}

static bool quantize(const char * path, const char * type) {
    struct lrnn_error      err = { LRNN_ERROR_NONE, "" };
    struct quantize_plan   plan = { 0 };
    struct quantize_params params = { .type = quantize_type_find(type), .n_threads = 1 };
    struct model_file *    file = model_file_open(path, &err);
    const bool             ok = file != NULL && quantize_plan_make(&plan, file, &params, &err) &&
                    quantize_run(&plan, file, &params, quantized, NULL, NULL, &err);
    quantize_plan_free(&plan);
    model_file_free(file);
    return ok;
}

// The logits of a model alone, [n_vocab, n_tokens − 1]. The calls have the same shapes as side by
// side: activations are rounded to 8 bits, and the last bits of a sum, which depend on the shape of
// calls, can decide how.
static float * logits_alone(struct test * t, struct lrnn_session * s, const struct golden * g) {
    const int64_t     n_all = g->n_tokens - 1;
    float *           logits = malloc((size_t) (n_all * g->n_vocab) * sizeof(float));
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    test_check(t, lrnn_seq_reset(s, 0, &err), "%s", err.text);
    for (int64_t at = 0; at < n_all; at += CALL) {
        const int64_t           n = CALL < n_all - at ? CALL : n_all - at;
        const struct lrnn_input input = {
            .seq = 0, .tokens = g->tokens + at, .n_tokens = n, .n_logits = n
        };
        test_check(t, lrnn_eval(s, &input, 1, &err), "%s", err.text);
        for (int64_t j = 0; j < n; ++j) {
            memcpy(logits + (at + j) * g->n_vocab, lrnn_logits(s, j),
                    (size_t) g->n_vocab * sizeof(float));
        }
    }
    return logits;
}

static void test_models(struct test * t) {
    struct golden_list list;
    struct test_worst  worst = { .what = "models side by side against each alone", .limit = 1e-7 };
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    int                n_seen = 0;

    golden_list_load(&list);
    for (int i = 0; i < list.n; i += 3) { // every third family: the code is the same for all
        const struct golden * g = &list.models[i];
        struct lrnn_model *   models[3];
        if (!test_check(t, quantize(g->path, "Q4_0"), "%s cannot be quantized", g->name)) {
            continue;
        }
        struct lrnn_session * sessions[3] = {
            open_session(g->path, &models[0]),
            open_session(quantized, &models[1]),
            open_session(g->path, &models[2]),
        };
        uint8_t * scored = malloc((size_t) g->n_tokens);
        for (int64_t j = 0; j < g->n_tokens; ++j) {
            scored[j] = j % 5 != 3;
        }
        const struct window window = {
            .index = 4, .n_tokens = g->n_tokens, .tokens = g->tokens, .scored = scored
        };
        struct kl_windows found[2] = { { 0 } };
        for (int twice = 0; twice < 2; ++twice) { // windows must be independent
            test_check(t, kl_measure(sessions, 3, g->n_vocab, &window, CALL, found, &err), "%s: %s",
                    g->name, err.text);
        }
        test_check(t,
                found[0].n == 2 && found[1].n == 2 && found[0].windows[0].n == g->n_tokens - 1,
                "%s: windows are missing", g->name);

        float * logits[2];
        for (int m = 0; m < 2; ++m) {
            logits[m] = logits_alone(t, sessions[m], g);
        }
        for (int64_t pos = 1; pos < g->n_tokens; ++pos) {
            const struct kl e = by_definition(logits[0] + (pos - 1) * g->n_vocab,
                    logits[1] + (pos - 1) * g->n_vocab, g->n_vocab, g->tokens[pos]);
            for (int twice = 0; twice < 2; ++twice) {
                const struct kl_position * w = &found[0].windows[twice].at[pos - 1];
                const struct kl_position * s = &found[1].windows[twice].at[pos - 1];
                if (!scored[pos]) {
                    test_check(t, isnan(w->kl), "%s: position %d must not be scored", g->name,
                            (int) pos);
                    continue;
                }
                test_bound(t, &worst, fabs((double) w->kl - e.kl) / (1.0 + e.kl), g->name);
                test_check(t,
                        fabs((double) w->nll_p - e.nll_p) < 1e-6 &&
                                fabs((double) w->nll_q - e.nll_q) < 1e-6,
                        "%s, position %d: losses %g and %g, expected %g and %g", g->name, (int) pos,
                        (double) w->nll_p, (double) w->nll_q, e.nll_p, e.nll_q);
                test_check(t, s->kl == 0.0f && s->same_top && s->nll_p == s->nll_q,
                        "%s differs from itself", g->name);
                n_seen++;
            }
        }
        for (int m = 0; m < 3; ++m) {
            lrnn_session_free(sessions[m]);
            lrnn_model_free(models[m]);
        }
        for (int m = 0; m < 2; ++m) {
            kl_windows_free(&found[m]);
            free(logits[m]);
        }
        free(scored);
    }
    test_worst_print(&worst);
    printf("%d positions\n", n_seen);
    golden_list_free(&list);
    unlink(quantized);
}

//
// Summaries
//

static void test_summary(struct test * t) {
    enum { N = 100 };
    struct kl_position at[2][N];
    struct kl_window   windows[2] = { { N, at[0] }, { N, at[1] } };
    struct kl_windows  all = { .n = 2, .windows = windows };

    for (int w = 0; w < 2; ++w) {
        for (int i = 0; i < N; ++i) {
            at[w][i] = (struct kl_position) {
                .kl = (float) (w * N + i), // 0 … 199
                .nll_p = (float) (1 + w),
                .nll_q = (float) (1 + w) + (i < 50 ? 0.25f : 0.75f),
                .same_top = i % 4 != 0,
            };
        }
    }
    at[1][0].kl = NAN; // not scored: 100 is missing

    const struct position_range ranges[4] = { { 1, 50 }, { 51, 100 }, { 1, 100 },
        { 101, 200 } }; // the last is beyond the end
    struct kl_summary           s[4];
    kl_summarize(&all, ranges, 4, s);
    test_check(t, s[0].n == 99 && s[1].n == 100 && s[2].n == 199 && s[3].n == 0, "counts");
    test_check(t, fabs(s[2].kl.value - (199.0 * 200.0 / 2.0 - 100.0) / 199.0) < 1e-9, "mean: %g",
            s[2].kl.value);
    test_check(t, fabs(s[2].kl_p99 - (197.0 + 0.02)) < 1e-9 && s[2].kl_max == 199.0,
            "99th percentile of 0 … 199 without 100: %.9g", s[2].kl_p99); // 198·0.99 = 196.02
    test_check(t, fabs(s[0].change.value - 0.25) < 1e-12 && fabs(s[1].change.value - 0.75) < 1e-12,
            "change: %g, %g", s[0].change.value, s[1].change.value);
    test_check(t, fabs(s[1].nll_p.value - 1.5) < 1e-12 && fabs(s[1].nll_q.value - 2.25) < 1e-12,
            "losses: %g, %g", s[1].nll_p.value, s[1].nll_q.value);
    test_check(t, fabs(s[1].same_top.value - 0.76) < 1e-12, "top-1: %g",
            s[1].same_top.value); // 52, 56, … 96 of 50 … 99
    test_check(t, s[1].change.method == STATS_NONE, "two windows have no interval");
}

int main(void) {
    struct test t = { 0 };
    test_own_path(quantized, sizeof(quantized), "test-kl.gguf");
    test_position(&t);
    test_models(&t);
    test_summary(&t);
    return test_end(&t, "test-kl");
}
