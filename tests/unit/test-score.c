// Tests of scoring: losses against the logits of the library, for several call sizes, groups and
// resets; norms of states.

#include "lrnn.h"
#include "ggml.h"
#include "kit/score-bench.h"

#include <inttypes.h>

//
// Losses
//

// −ln p of each target: one token per call, softmax in double precision.
static void reference_nll(struct lrnn_session * session, const struct window * w,
        bool reset_documents, double * nll) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    for (int64_t i = 0; i + 1 < w->n_tokens; ++i) {
        bool fresh = i == 0;
        for (int32_t k = 1; k < w->n_spans && reset_documents; ++k) {
            fresh = fresh || w->spans[k].first == i;
        }
        if (fresh) {
            lrnn_seq_reset(session, 0, &err);
        }
        const struct lrnn_input input = {
            .seq = 0, .tokens = &w->tokens[i], .n_tokens = 1, .n_logits = 1
        };
        if (!lrnn_eval(session, &input, 1, &err)) {
            printf("FAILED: %s\n", err.text);
            exit(1);
        }
        const float * z = lrnn_logits(session, 0);
        double        sum = 0.0;
        for (int v = 0; v < N_VOCAB; ++v) {
            sum += exp((double) z[v] - (double) z[w->tokens[i + 1]]);
        }
        nll[i] = log(sum);
    }
}

static double worst_difference(const struct score_window * w, const double * nll) {
    double worst = 0.0;
    for (int64_t i = 0; i < w->n_targets; ++i) {
        const double d = fabs((double) w->nll[i] - nll[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

// Compares single tokens with calls and groups of several sizes, also with resets at documents.
static void test_numbers(const char * name) {
    struct lrnn_model * model = bench_model(name);
    struct test_worst   worst = { .what = name, .limit = 2e-5 };
    struct lrnn_error   err;
    static const struct {
        int64_t          batch, group;
        enum score_reset reset;
        enum window_mode mode;
    } cases[] = {
        { 1, 1, SCORE_RESET_WINDOW, WINDOW_PACKED },
        { 7, 3, SCORE_RESET_WINDOW, WINDOW_PACKED },
        { 64, 4, SCORE_RESET_WINDOW, WINDOW_PACKED },
        { 512, 2, SCORE_RESET_WINDOW, WINDOW_PACKED },
        { 64, 4, SCORE_RESET_DOCUMENT, WINDOW_PACKED },
        { 64, 3, SCORE_RESET_WINDOW, WINDOW_DOCUMENT },
    };
    struct lrnn_session * session = test_session(
            model, &(struct lrnn_session_params) { .n_threads = 1, .cache_type = LRNN_CACHE_F32 });
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); ++c) {
        struct score_bench_run run = {
            .model = model,
            .name = "numbers",
            .n_batch = cases[c].batch,
            .group = cases[c].group,
            .reset = cases[c].reset,
            .cache_type = LRNN_CACHE_F32, // F16 rounds differences between calls up
            .window = { .mode = cases[c].mode, .length = 120, .min_doc_tokens = 3 },
        };
        test_check(&bench.t, bench_run(&run) == LRNN_ERROR_NONE, "not done");
        struct scores    scores = bench_read("numbers");
        struct windows * ws = bench_windows(model, run.window);
        for (int64_t i = 0; i < scores.n_windows; ++i) {
            struct window w;
            double        nll[120];
            char          where[64];
            windows_read(ws, i, &w, &err);
            reference_nll(session, &w, cases[c].reset == SCORE_RESET_DOCUMENT, nll);
            snprintf(where, sizeof(where), "case %zu, window %d", c, (int) i);
            test_bound(&bench.t, &worst, worst_difference(&scores.windows[i], nll), where);
            test_check(&bench.t, scores.windows[i].n_targets == w.n_tokens - 1,
                    "targets of window %" PRId64, i);
            window_free(&w);
        }
        windows_free(ws);
        scores_free(&scores);
    }
    test_worst_print(&worst);
    bench_forget("numbers");
    lrnn_session_free(session);
    lrnn_model_free(model);
}

// The first L tokens of a long window score like a window of L tokens: bit-identical if calls end
// at the same tokens.
static void test_prefix(void) {
    struct lrnn_model *    model = bench_model("gated_deltanet_neg");
    struct score_bench_run run = { .model = model,
        .name = "long",
        .n_batch = 16,
        .group = 2,
        .window = { .mode = WINDOW_DOCUMENT, .length = 81 } };
    bench_run(&run);
    struct scores        longer = bench_read("long");
    static const int64_t lengths[] = { 17, 33, 50, 64 };
    for (int k = 0; k < 4; ++k) {
        struct score_bench_run shorter = run;
        shorter.name = "short";
        shorter.window.length = lengths[k];
        shorter.window.min_doc_tokens = lengths[k];
        bench_run(&shorter);
        struct scores scores = bench_read("short");
        test_check(&bench.t, scores.n_windows == longer.n_windows, "%" PRId64 " documents",
                scores.n_windows);
        double worst = 0.0;
        bool   same = true;
        for (int64_t i = 0; i < scores.n_windows; ++i) {
            for (int64_t j = 0; j < lengths[k] - 1; ++j) {
                const double d =
                        fabs((double) (scores.windows[i].nll[j] - longer.windows[i].nll[j]));
                worst = d > worst ? d : worst;
                same = same && d == 0.0;
            }
        }
        // 16 tokens per call: windows of 17 and 33 are fed 16 and 32 tokens, like the long one
        test_check(&bench.t, worst < 2e-5 && (k >= 2 || same),
                "prefix of %" PRId64 " tokens: off by %g", lengths[k], worst);
        scores_free(&scores);
    }
    scores_free(&longer);
    bench_forget("long");
    bench_forget("short");
    lrnn_model_free(model);
}

// With --reset never, windows are parts of one long window.
static void test_never(void) {
    struct lrnn_model *    model = bench_model("rwkv7");
    struct score_bench_run pieces = { .model = model,
        .name = "pieces",
        .n_batch = 25,
        .group = 1,
        .window = { .length = 100, .max_windows = 6 } };
    struct score_bench_run whole = { .model = model,
        .name = "whole",
        .n_batch = 25,
        .group = 1,
        .window = { .length = 600, .max_windows = 1 } };
    pieces.reset = SCORE_RESET_NEVER;
    bench_run(&pieces);
    bench_run(&whole);
    struct scores a = bench_read("pieces"), b = bench_read("whole");
    bool          same = true;
    for (int64_t i = 0; i < 6; ++i) {
        for (int64_t j = 1; j < 100; ++j) {
            same = same && a.windows[i].nll[j - 1] == b.windows[0].nll[i * 100 + j - 1];
        }
    }
    test_check(&bench.t, same, "the windows differ from one long window");
    scores_free(&a);
    scores_free(&b);
    bench_forget("pieces");
    bench_forget("whole");
    lrnn_model_free(model);
}

// Without output weights all tokens are equally likely: the perplexity is the size of the
// vocabulary at every position.
static void test_uniform_model(void) {
    struct model_edit e = bench_open("mamba_neg");
    bench_add_symbols(&e);
    struct ggml_tensor * output = model_edit_find(&e, "output.weight");
    if (output == NULL) { // tied to the embedding: add an output matrix
        const int64_t * ne = model_edit_find(&e, "token_embd.weight")->ne;
        output = model_edit_put(&e, "output.weight", GGML_TYPE_F32, 2, ne);
    }
    memset(output->data, 0, ggml_nbytes(output));
    struct lrnn_model *    model = bench_load(&e, "uniform");
    struct score_bench_run run = { .model = model, .name = "uniform", .n_batch = 32, .group = 2 };
    run.window.length = 100;
    bench_run(&run);
    struct scores scores = bench_read("uniform");
    bool          same = scores.n_windows > 0;
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        for (int64_t j = 0; j < 99; ++j) {
            same = same && scores.windows[i].nll[j] == (float) log(N_VOCAB) &&
                   (scores.windows[i].flags[j] & SCORE_COUNTED) != 0;
        }
    }
    test_check(&bench.t, same, "wrong losses of a uniform model");
    scores_free(&scores);
    bench_forget("uniform");
    lrnn_model_free(model);
}

// Logits overflow at some positions: the losses there are non-finite, and only there; the run
// continues.
static void test_not_finite(void) {
    struct model_edit e = bench_open("delta_net_neg");
    bench_add_symbols(&e);
    struct ggml_tensor * output = model_edit_find(&e, "output.weight");
    for (int64_t i = 0; i < output->ne[0]; ++i) {
        // overflows if the first component exceeds 1.13
        ((float *) output->data)[5 * output->ne[0] + i] = i == 0 ? 3e38f : 0.0f;
    }
    struct lrnn_model *    model = bench_load(&e, "odd");
    struct score_bench_run run = { .model = model, .name = "odd", .n_batch = 16, .group = 2 };
    run.window.length = 60;
    test_check(&bench.t, bench_run(&run) == LRNN_ERROR_NONE, "a non-finite loss stopped the run");
    struct lrnn_error     err;
    struct scores         scores = bench_read("odd");
    struct windows *      ws = bench_windows(model, run.window);
    struct lrnn_session * session =
            test_session(model, &(struct lrnn_session_params) { .n_threads = 1 });
    int64_t n_diverged = 0, first_window = 0, first_at = 0, n_finite = 0;
    bool    right = true;
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        struct window w;
        bool          bad = false;
        windows_read(ws, i, &w, &err);
        lrnn_seq_reset(session, 0, &err);
        for (int64_t j = 1; j < 60; ++j) {
            lrnn_eval(session,
                    &(struct lrnn_input) {
                            .seq = 0, .tokens = &w.tokens[j - 1], .n_tokens = 1, .n_logits = 1 },
                    1, &err);
            const bool finite = isfinite(lrnn_logits(session, 0)[5]);
            right = right && finite == (isfinite(scores.windows[i].nll[j - 1]) != 0);
            n_finite += finite;
            if (!finite && !bad) {
                bad = true;
                first_window = n_diverged == 0 ? i : first_window;
                first_at = n_diverged == 0 ? j : first_at;
                n_diverged++;
            }
        }
        window_free(&w);
    }
    test_check(&bench.t, right && n_diverged > 0 && n_finite > 0,
            "non-finite losses at the wrong positions");
    test_check(&bench.t,
            run.result.n_diverged == n_diverged && run.result.diverged_window == first_window &&
                    run.result.diverged_at == first_at,
            "%" PRId64 " windows diverged, the first %" PRId64 " at %" PRId64 "; expected %" PRId64
            ", %" PRId64 ", %" PRId64,
            run.result.n_diverged, run.result.diverged_window, run.result.diverged_at, n_diverged,
            first_window, first_at);
    lrnn_session_free(session);
    windows_free(ws);
    scores_free(&scores);
    bench_forget("odd");
    lrnn_model_free(model);
}

//
// Norms of states
//

// Norms are taken where calls of 24 tokens first reach a power of two, and at the end. They equal
// those of a session that makes the same calls.
static void test_norms(void) {
    static const int64_t AT[] = { 24, 48, 72, 144, 149 }; // 1 to 16, 32, 64, 128, the end
    enum { N_AT = sizeof(AT) / sizeof(AT[0]) };
    struct lrnn_model *    model = bench_model("delta_net_neg");
    struct score_bench_run with = { .model = model,
        .name = "norms",
        .n_batch = 24,
        .group = 1,
        .probe = true,
        .window = { .length = 150 } };
    struct score_bench_run without = with;
    without.name = "plain";
    without.probe = false;
    bench_run(&with);
    bench_run(&without);
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct scores         scores = bench_read("norms"), plain = bench_read("plain");
    struct windows *      ws = bench_windows(model, with.window);
    struct lrnn_session * session =
            test_session(model, &(struct lrnn_session_params) { .n_threads = 1, .n_batch = 24 });
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        const struct score_window * w = &scores.windows[i];
        struct window               window;
        windows_read(ws, i, &window, &err);
        lrnn_seq_reset(session, 0, &err);
        bool same = w->n_norms == N_AT;
        for (int64_t at = 0, k = 0; at < 149 && same;) {
            const int64_t n = at + 24 < 149 ? 24 : 149 - at;
            lrnn_eval(session,
                    &(struct lrnn_input) {
                            .tokens = window.tokens + at, .n_tokens = n, .n_logits = n },
                    1, &err);
            at += n;
            if (at == AT[k]) {
                int32_t      layer;
                const double norm = lrnn_seq_state_norm(session, 0, &layer);
                same = w->norms[k].at == at && w->norms[k].norm == (float) norm &&
                       w->norms[k].layer == layer;
                k++;
            }
        }
        test_check(&bench.t, same, "window %" PRId64 ": wrong norms (%d of them)", i, w->n_norms);
        test_check(&bench.t,
                plain.windows[i].n_norms == 0 &&
                        memcmp(plain.windows[i].nll, w->nll, 149 * sizeof(*w->nll)) == 0,
                "the probe changes the scores of window %" PRId64, i);
        window_free(&window);
    }
    lrnn_session_free(session);
    windows_free(ws);
    scores_free(&scores);
    scores_free(&plain);
    bench_forget("norms");
    bench_forget("plain");
    lrnn_model_free(model);
}

// GLA with gates that forget, and with gates of 1, so that S = Σ k vᵀ: the first state is bounded,
// the second grows with the text.
static double growth(float normalizer) {
    struct model_edit e = bench_open("gla");
    bench_add_symbols(&e);
    gguf_set_val_f32(e.gguf, "lrnn.gate_normalizer", normalizer);
    struct lrnn_model *    model = bench_load(&e, "growth");
    struct score_bench_run run = { .model = model,
        .name = "growth",
        .n_batch = 64,
        .group = 1,
        .probe = true,
        .window = { .length = 700, .max_windows = 1 } };
    bench_run(&run);
    struct scores               scores = bench_read("growth");
    const struct score_window * w = &scores.windows[0];
    double                      ratio = NAN;
    if (test_check(&bench.t, w->n_norms == 5 && w->norms[0].at == 64 && w->norms[4].at == 699,
                "%d norms", w->n_norms)) {
        ratio = (double) w->norms[4].norm / (double) w->norms[0].norm;
    }
    scores_free(&scores);
    bench_forget("growth");
    lrnn_model_free(model);
    return ratio;
}

static void test_growth(void) {
    const double bounded = growth(1.0f), grows = growth(1e6f);
    printf("state norm after 699 tokens, relative to 64 tokens: %.3g with gates that forget, %.3g "
           "with gates of 1\n",
            bounded, grows);
    test_check(&bench.t, bounded < 2.0 && grows > 4.0, "growth of a state is not measured");
}

int main(void) {
    if (!bench_begin()) {
        return 1;
    }
    test_numbers("delta_net_neg");
    test_numbers("xlstm");
    test_numbers("olmo_hybrid");
    test_prefix();
    test_never();
    test_uniform_model();
    test_not_finite();
    test_norms();
    test_growth();
    return bench_end("score");
}
