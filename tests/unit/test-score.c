// Tests of scoring: losses against the logits of the library, for several call sizes, groups and
// resets. Resumed runs, also after SIGKILL, and shards give the bytes of an uninterrupted run.

#include "eval/score.h"
#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/rng.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test        t;
static struct golden_list golden;
static char               folder[256], data_path[512];

enum { N_DOCS = 9, N_VOCAB = 48 };

//
// A model with symbols s0 … s47 (s0 is the bos), and documents of them
//

static struct model_edit open_golden(const char * name) {
    struct model_edit e;
    if (!model_edit_open(&e, golden_find(&golden, name)->path)) {
        printf("FAILED: %s: cannot be read\n", name);
        exit(1);
    }
    return e;
}

static void add_symbols(struct model_edit * e) {
    static char  text[N_VOCAB][16];
    const char * tokens[N_VOCAB];
    int32_t      types[N_VOCAB];
    for (int i = 0; i < N_VOCAB; ++i) {
        snprintf(text[i], sizeof(text[i]), "s%d", i);
        tokens[i] = text[i];
        types[i]  = i == 0 ? 3 : 1; // control, normal
    }
    gguf_set_val_str(e->gguf, "tokenizer.ggml.model", "lrnn-symbols");
    gguf_set_arr_str(e->gguf, "tokenizer.ggml.tokens", tokens, N_VOCAB);
    gguf_set_arr_data(e->gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, N_VOCAB);
    gguf_set_val_u32(e->gguf, "tokenizer.ggml.bos_token_id", 0);
    gguf_set_val_bool(e->gguf, "tokenizer.ggml.add_bos_token", true);
}

static struct lrnn_model * load(struct model_edit * e, const char * name) {
    char path[512], err[512] = "cannot write the file";
    snprintf(path, sizeof(path), "%s/%s.gguf", folder, name);
    struct lrnn_model * model =
            model_edit_write(e, path) ? lrnn_model_load(path, NULL, err, sizeof(err)) : NULL;
    model_edit_close(e);
    unlink(path);
    if (model == NULL) {
        printf("FAILED: %s: %s\n", name, err);
        exit(1);
    }
    return model;
}

static struct lrnn_model * symbol_model(const char * name) {
    struct model_edit e = open_golden(name);
    add_symbols(&e);
    return load(&e, name);
}

static void write_data(void) {
    struct test_rng r = { 11 };
    FILE *          f = fopen(data_path, "wb");
    for (int d = 0; d < N_DOCS && f != NULL; ++d) {
        fprintf(f, "{\"text\": \"");
        const int n = d == 4 ? 5 : 90 + (int) test_below(&r, 60);
        for (int i = 0; i < n; ++i) {
            fprintf(f, "%ss%d", i > 0 ? " " : "", 1 + (int) test_below(&r, N_VOCAB - 1));
        }
        fprintf(f, "\"}\n");
    }
    if (f == NULL || fclose(f) != 0) {
        printf("FAILED: %s: %s\n", data_path, strerror(errno));
        exit(1);
    }
}

static struct windows * make(const struct lrnn_model * model, struct window_params params) {
    const char *     paths[]  = { data_path };
    char             err[512] = "";
    struct dataset * ds       = dataset_open(
            &(struct dataset_params) { .paths = paths, .n_paths = 1, .text_field = "text" }, err,
            sizeof(err));
    struct windows * ws =
            ds != NULL ? windows_make(ds, model, &params, folder, NULL, NULL, err, sizeof(err))
                       : NULL;
    dataset_free(ds);
    if (ws == NULL) {
        printf("FAILED: %s\n", err);
        exit(1);
    }
    return ws;
}

//
// A run
//

struct run {
    struct lrnn_model *  model;
    struct window_params window;
    enum score_reset     reset;
    int64_t              n_batch, group, checkpoint_every;
    int64_t              shard, n_shards;
    const char *         name; // of the file
    bool                 resume;
    bool                 probe;      // also record norms of states
    const char *         warning;    // part of the expected warning; NULL: none
    int                  stop_after; // calls; 0: never
    bool                 killed;     // by SIGKILL instead of a request to stop
    enum lrnn_cache_type cache_type;
    struct score_result  result;
};

struct stop {
    int  calls, after;
    bool killed;
};

static bool on_progress(const struct score_progress * progress, void * user) {
    struct stop * stop = user;
    (void) progress;
    if (++stop->calls != stop->after) {
        return true;
    }
    if (stop->killed) {
        raise(SIGKILL);
    }
    return false;
}

static const char * path_of(const char * name, char path[512]) {
    snprintf(path, 512, "%s/%s.nll", folder, name);
    return path;
}

static enum score_status go(struct run * run) {
    char                           path[512], checkpoints[600], err[512] = "";
    struct windows *               ws       = make(run->model, run->window);
    const struct windows_summary * s        = windows_get_summary(ws);
    static const char * const      resets[] = { "window", "document", "never" };
    const struct score_meta        meta     = {
                   .model            = "m",
                   .files            = s->files,
                   .sources          = "",
                   .data_fingerprint = s->fingerprint,
                   .template         = "",
                   .same_targets     = "",
                   .n_vocab          = N_VOCAB,
                   .mode             = run->window.mode == WINDOW_DOCUMENT ? "document" : "packed",
                   .reset            = resets[run->reset],
                   .window           = run->window.length,
                   .probe            = run->probe ? "state-norm" : "",
                   .n_batch          = run->n_batch,
                   .group            = run->group,
                   .n_windows        = s->n_windows,
                   .shard            = run->n_shards > 0 ? run->shard : 1,
                   .n_shards         = run->n_shards > 0 ? run->n_shards : 1,
    };
    path_of(run->name, path);
    snprintf(checkpoints, sizeof(checkpoints), "%s.checkpoint", path);
    struct stop         stop   = { .after = run->stop_after, .killed = run->killed };
    struct score_params params = {
        .n_threads        = 1,
        .n_batch          = run->n_batch,
        .group            = run->group,
        .reset            = run->reset,
        .max_length       = run->window.length,
        .cache_type       = run->cache_type,
        .resume           = run->resume,
        .checkpoint_every = run->checkpoint_every,
        .checkpoints      = checkpoints,
        .callback         = on_progress,
        .user             = &stop,
        .state_norm       = run->probe,
    };
    int64_t n_done = 0;
    score_shard_range(&meta, &params.first, &params.end);
    enum score_status     status = SCORE_FAILED;
    struct score_writer * w      = NULL;
    if (run->resume) {
        w = score_writer_resume(path, &meta, &n_done, err, sizeof(err));
    } else {
        w = score_writer_create(path, &meta, err, sizeof(err));
    }
    params.next = params.first + n_done;
    if (w != NULL && score_meta_identity(&meta, params.identity)) {
        status = score_run(run->model, ws, w, &params, &run->result, err, sizeof(err));
    }
    test_check(&t, status != SCORE_FAILED, "%s: %s", run->name, err);
    test_check(&t,
            run->warning != NULL ? strstr(run->result.warning, run->warning) != NULL
                                 : run->result.warning[0] == '\0',
            "warning '%s', expected '%s'", run->result.warning,
            run->warning != NULL ? run->warning : "");
    score_writer_close(w, err, sizeof(err));
    windows_free(ws);
    return status;
}

static struct scores read_scores(const char * name) {
    char          path[512], err[512] = "";
    const char *  paths[] = { path_of(name, path) };
    struct scores scores;
    if (!scores_read(paths, 1, false, &scores, err, sizeof(err))) {
        printf("FAILED: %s\n", err);
        exit(1);
    }
    return scores;
}

static bool same_files(const char * a, const char * b) {
    char path_a[512], path_b[512];
    return test_same_files(path_of(a, path_a), path_of(b, path_b));
}

static void forget(const char * name) {
    char path[512];
    unlink(path_of(name, path));
}

//
// Losses
//

// −ln p of each target: one token per call, softmax in double precision.
static void reference_nll(struct lrnn_session * session, const struct window * w,
        bool reset_documents, double * nll) {
    char err[512] = "";
    for (int64_t i = 0; i + 1 < w->n_tokens; ++i) {
        bool fresh = i == 0;
        for (int32_t k = 1; k < w->n_spans && reset_documents; ++k) {
            fresh = fresh || w->spans[k].first == i;
        }
        if (fresh) {
            lrnn_seq_reset(session, 0, err, sizeof(err));
        }
        const struct lrnn_input input = {
            .seq = 0, .tokens = &w->tokens[i], .n_tokens = 1, .n_logits = 1
        };
        if (!lrnn_eval(session, &input, 1, err, sizeof(err))) {
            printf("FAILED: %s\n", err);
            exit(1);
        }
        const float * z   = lrnn_logits(session, 0);
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
        worst          = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

// Compares single tokens with calls and groups of several sizes, also with resets at documents.
static void test_numbers(const char * name) {
    struct lrnn_model * model = symbol_model(name);
    struct test_worst   worst = { .what = name, .limit = 2e-5 };
    char                err[512];
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
    struct lrnn_session * session = lrnn_session_new(model,
            &(struct lrnn_session_params) { .n_threads = 1, .cache_type = LRNN_CACHE_F32 }, err,
            sizeof(err));
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); ++c) {
        struct run run = {
            .model      = model,
            .name       = "numbers",
            .n_batch    = cases[c].batch,
            .group      = cases[c].group,
            .reset      = cases[c].reset,
            .cache_type = LRNN_CACHE_F32, // F16 rounds differences between calls up
            .window     = { .mode = cases[c].mode, .length = 120, .min_doc_tokens = 3 },
        };
        test_check(&t, go(&run) == SCORE_DONE, "not done");
        struct scores    scores = read_scores("numbers");
        struct windows * ws     = make(model, run.window);
        for (int64_t i = 0; i < scores.n_windows; ++i) {
            struct window w;
            double        nll[120];
            char          where[64];
            windows_read(ws, i, &w, err, sizeof(err));
            reference_nll(session, &w, cases[c].reset == SCORE_RESET_DOCUMENT, nll);
            snprintf(where, sizeof(where), "case %zu, window %d", c, (int) i);
            test_bound(&t, &worst, worst_difference(&scores.windows[i], nll), where);
            test_check(&t, scores.windows[i].n_targets == w.n_tokens - 1,
                    "targets of window %" PRId64, i);
            window_free(&w);
        }
        windows_free(ws);
        scores_free(&scores);
    }
    test_worst_print(&worst);
    forget("numbers");
    lrnn_session_free(session);
    lrnn_model_free(model);
}

// The first L tokens of a long window score like a window of L tokens: bit-identical if calls end
// at the same tokens.
static void test_prefix(void) {
    struct lrnn_model * model = symbol_model("gated_deltanet_neg");
    struct run          run   = { .model = model,
                   .name                 = "long",
                   .n_batch              = 16,
                   .group                = 2,
                   .window               = { .mode = WINDOW_DOCUMENT, .length = 81 } };
    go(&run);
    struct scores        longer    = read_scores("long");
    static const int64_t lengths[] = { 17, 33, 50, 64 };
    for (int k = 0; k < 4; ++k) {
        struct run shorter            = run;
        shorter.name                  = "short";
        shorter.window.length         = lengths[k];
        shorter.window.min_doc_tokens = lengths[k];
        go(&shorter);
        struct scores scores = read_scores("short");
        test_check(&t, scores.n_windows == longer.n_windows, "%" PRId64 " documents",
                scores.n_windows);
        double worst = 0.0;
        bool   same  = true;
        for (int64_t i = 0; i < scores.n_windows; ++i) {
            for (int64_t j = 0; j < lengths[k] - 1; ++j) {
                const double d =
                        fabs((double) (scores.windows[i].nll[j] - longer.windows[i].nll[j]));
                worst = d > worst ? d : worst;
                same  = same && d == 0.0;
            }
        }
        // 16 tokens per call: windows of 17 and 33 are fed 16 and 32 tokens, like the long one
        test_check(&t, worst < 2e-5 && (k >= 2 || same), "prefix of %" PRId64 " tokens: off by %g",
                lengths[k], worst);
        scores_free(&scores);
    }
    scores_free(&longer);
    forget("long");
    forget("short");
    lrnn_model_free(model);
}

// With --reset never, windows are parts of one long window.
static void test_never(void) {
    struct lrnn_model * model  = symbol_model("rwkv7");
    struct run          pieces = { .model = model,
                 .name                    = "pieces",
                 .n_batch                 = 25,
                 .group                   = 1,
                 .window                  = { .length = 100, .max_windows = 6 } };
    struct run          whole  = { .model = model,
                  .name                   = "whole",
                  .n_batch                = 25,
                  .group                  = 1,
                  .window                 = { .length = 600, .max_windows = 1 } };
    pieces.reset               = SCORE_RESET_NEVER;
    go(&pieces);
    go(&whole);
    struct scores a = read_scores("pieces"), b = read_scores("whole");
    bool          same = true;
    for (int64_t i = 0; i < 6; ++i) {
        for (int64_t j = 1; j < 100; ++j) {
            same = same && a.windows[i].nll[j - 1] == b.windows[0].nll[i * 100 + j - 1];
        }
    }
    test_check(&t, same, "the windows differ from one long window");
    scores_free(&a);
    scores_free(&b);
    forget("pieces");
    forget("whole");
    lrnn_model_free(model);
}

// Without output weights all tokens are equally likely: the perplexity is the size of the
// vocabulary at every position.
static void test_uniform_model(void) {
    struct model_edit e = open_golden("mamba_neg");
    add_symbols(&e);
    struct ggml_tensor * output = model_edit_find(&e, "output.weight");
    if (output == NULL) { // tied to the embedding: add an output matrix
        const int64_t * ne = model_edit_find(&e, "token_embd.weight")->ne;
        output             = model_edit_put(&e, "output.weight", GGML_TYPE_F32, 2, ne);
    }
    memset(output->data, 0, ggml_nbytes(output));
    struct lrnn_model * model = load(&e, "uniform");
    struct run          run   = { .model = model, .name = "uniform", .n_batch = 32, .group = 2 };
    run.window.length         = 100;
    go(&run);
    struct scores scores = read_scores("uniform");
    bool          same   = scores.n_windows > 0;
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        for (int64_t j = 0; j < 99; ++j) {
            same = same && scores.windows[i].nll[j] == (float) log(N_VOCAB) &&
                   (scores.windows[i].flags[j] & SCORE_COUNTED) != 0;
        }
    }
    test_check(&t, same, "wrong losses of a uniform model");
    scores_free(&scores);
    forget("uniform");
    lrnn_model_free(model);
}

// Logits overflow at some positions: the losses there are non-finite, and only there; the run
// continues.
static void test_not_finite(void) {
    struct model_edit e = open_golden("delta_net_neg");
    add_symbols(&e);
    struct ggml_tensor * output = model_edit_find(&e, "output.weight");
    for (int64_t i = 0; i < output->ne[0]; ++i) {
        // overflows if the first component exceeds 1.13
        ((float *) output->data)[5 * output->ne[0] + i] = i == 0 ? 3e38f : 0.0f;
    }
    struct lrnn_model * model = load(&e, "odd");
    struct run          run   = { .model = model, .name = "odd", .n_batch = 16, .group = 2 };
    run.window.length         = 60;
    test_check(&t, go(&run) == SCORE_DONE, "a non-finite loss stopped the run");
    char                  err[512];
    struct scores         scores  = read_scores("odd");
    struct windows *      ws      = make(model, run.window);
    struct lrnn_session * session = lrnn_session_new(
            model, &(struct lrnn_session_params) { .n_threads = 1 }, err, sizeof(err));
    int64_t n_diverged = 0, first_window = 0, first_at = 0, n_finite = 0;
    bool    right = true;
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        struct window w;
        bool          bad = false;
        windows_read(ws, i, &w, err, sizeof(err));
        lrnn_seq_reset(session, 0, err, sizeof(err));
        for (int64_t j = 1; j < 60; ++j) {
            lrnn_eval(session,
                    &(struct lrnn_input) {
                            .seq = 0, .tokens = &w.tokens[j - 1], .n_tokens = 1, .n_logits = 1 },
                    1, err, sizeof(err));
            const bool finite = isfinite(lrnn_logits(session, 0)[5]);
            right             = right && finite == (isfinite(scores.windows[i].nll[j - 1]) != 0);
            n_finite += finite;
            if (!finite && !bad) {
                bad          = true;
                first_window = n_diverged == 0 ? i : first_window;
                first_at     = n_diverged == 0 ? j : first_at;
                n_diverged++;
            }
        }
        window_free(&w);
    }
    test_check(&t, right && n_diverged > 0 && n_finite > 0,
            "non-finite losses at the wrong positions");
    test_check(&t,
            run.result.n_diverged == n_diverged && run.result.diverged_window == first_window &&
                    run.result.diverged_at == first_at,
            "%" PRId64 " windows diverged, the first %" PRId64 " at %" PRId64 "; expected %" PRId64
            ", %" PRId64 ", %" PRId64,
            run.result.n_diverged, run.result.diverged_window, run.result.diverged_at, n_diverged,
            first_window, first_at);
    lrnn_session_free(session);
    windows_free(ws);
    scores_free(&scores);
    forget("odd");
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
    struct lrnn_model * model   = symbol_model("delta_net_neg");
    struct run          with    = { .model = model,
                    .name                  = "norms",
                    .n_batch               = 24,
                    .group                 = 1,
                    .probe                 = true,
                    .window                = { .length = 150 } };
    struct run          without = with;
    without.name                = "plain";
    without.probe               = false;
    go(&with);
    go(&without);
    char                  err[512] = "";
    struct scores         scores = read_scores("norms"), plain = read_scores("plain");
    struct windows *      ws      = make(model, with.window);
    struct lrnn_session * session = lrnn_session_new(model,
            &(struct lrnn_session_params) { .n_threads = 1, .n_batch = 24 }, err, sizeof(err));
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        const struct score_window * w = &scores.windows[i];
        struct window               window;
        windows_read(ws, i, &window, err, sizeof(err));
        lrnn_seq_reset(session, 0, err, sizeof(err));
        bool same = w->n_norms == N_AT;
        for (int64_t at = 0, k = 0; at < 149 && same;) {
            const int64_t n = at + 24 < 149 ? 24 : 149 - at;
            lrnn_eval(session,
                    &(struct lrnn_input) {
                            .tokens = window.tokens + at, .n_tokens = n, .n_logits = n },
                    1, err, sizeof(err));
            at += n;
            if (at == AT[k]) {
                int32_t      layer;
                const double norm = lrnn_seq_state_norm(session, 0, &layer);
                same              = w->norms[k].at == at && w->norms[k].norm == (float) norm &&
                       w->norms[k].layer == layer;
                k++;
            }
        }
        test_check(&t, same, "window %" PRId64 ": wrong norms (%d of them)", i, w->n_norms);
        test_check(&t,
                plain.windows[i].n_norms == 0 &&
                        memcmp(plain.windows[i].nll, w->nll, 149 * sizeof(*w->nll)) == 0,
                "the probe changes the scores of window %" PRId64, i);
        window_free(&window);
    }
    lrnn_session_free(session);
    windows_free(ws);
    scores_free(&scores);
    scores_free(&plain);
    forget("norms");
    forget("plain");
    lrnn_model_free(model);
}

// GLA with gates that forget, and with gates of 1, so that S = Σ k vᵀ: the first state is bounded,
// the second grows with the text.
static double growth(float normalizer) {
    struct model_edit e = open_golden("gla");
    add_symbols(&e);
    gguf_set_val_f32(e.gguf, "lrnn.gate_normalizer", normalizer);
    struct lrnn_model * model = load(&e, "growth");
    struct run          run   = { .model = model,
                   .name                 = "growth",
                   .n_batch              = 64,
                   .group                = 1,
                   .probe                = true,
                   .window               = { .length = 700, .max_windows = 1 } };
    go(&run);
    struct scores               scores = read_scores("growth");
    const struct score_window * w      = &scores.windows[0];
    double                      ratio  = NAN;
    if (test_check(&t, w->n_norms == 5 && w->norms[0].at == 64 && w->norms[4].at == 699, "%d norms",
                w->n_norms)) {
        ratio = (double) w->norms[4].norm / (double) w->norms[0].norm;
    }
    scores_free(&scores);
    forget("growth");
    lrnn_model_free(model);
    return ratio;
}

static void test_growth(void) {
    const double bounded = growth(1.0f), grows = growth(1e6f);
    printf("state norm after 699 tokens, relative to 64 tokens: %.3g with gates that forget, %.3g "
           "with gates of 1\n",
            bounded, grows);
    test_check(&t, bounded < 2.0 && grows > 4.0, "growth of a state is not measured");
}

//
// Resumed runs
//

static bool no_checkpoint(const char * name) {
    char        path[512], checkpoints[600];
    struct stat st;
    snprintf(checkpoints, sizeof(checkpoints), "%s.checkpoint", path_of(name, path));
    return stat(checkpoints, &st) != 0;
}

// Runs in a child process that is killed after a number of calls. Returns true if it was still
// running.
static bool killed_after(struct run run, int calls) {
    run.stop_after = calls;
    run.killed     = true;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int64_t before = t.n_failed;
        go(&run);
        fflush(stdout);
        _exit(t.n_failed == before ? 0 : 1);
    }
    int status = 0;
    test_check(&t, child > 0 && waitpid(child, &status, 0) == child, "cannot create a process: %s",
            strerror(errno));
    test_check(&t, WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "the child process failed");
    return WIFSIGNALED(status);
}

static void test_resume(
        const char * model_name, enum score_reset reset, int64_t group, bool probe) {
    struct lrnn_model * model = symbol_model(model_name);
    const struct run    run   = {
             .model            = model,
             .name             = "resumed",
             .n_batch          = 16,
             .group            = group,
             .reset            = reset,
             .checkpoint_every = 60,
             .probe            = probe,
             .window           = { .length = 100, .max_windows = 4 },
    };
    struct run unbroken = run;
    unbroken.name       = "unbroken";
    go(&unbroken);
    test_check(&t, no_checkpoint("unbroken"), "a finished run left a checkpoint");

    // stopped after every fourth call
    int        n_stops  = 0;
    int64_t    n_tokens = 0;
    struct run asked    = run;
    asked.stop_after    = 4;
    while (go(&asked) == SCORE_STOPPED && n_stops < 1000) {
        n_tokens += asked.result.n_tokens;
        n_stops++;
        asked.resume = true;
    }
    n_tokens += asked.result.n_tokens;
    test_check(&t, n_stops > 2 && same_files("unbroken", "resumed"),
            "%s, reset %d: stopped %d times, the file has other bytes", model_name, (int) reset,
            n_stops);
    test_check(&t, n_tokens == unbroken.result.n_tokens,
            "a stopped run computed %" PRId64 " tokens, an uninterrupted one %" PRId64, n_tokens,
            unbroken.result.n_tokens);
    test_check(&t, no_checkpoint("resumed"), "a finished run left a checkpoint");

    // killed after more and more calls
    forget("resumed");
    struct run again   = run;
    int        n_kills = 0;
    for (int calls = 4; killed_after(again, calls) && n_kills < 50; ++calls, ++n_kills) {
        again.resume = true;
    }
    test_check(&t, n_kills > 1 && same_files("unbroken", "resumed"),
            "%s, reset %d: killed %d times, the file has other bytes", model_name, (int) reset,
            n_kills);
    test_check(&t, no_checkpoint("resumed"), "a finished run left a checkpoint");

    // killed while appending a group: the missing windows are computed again
    again.resume = true;
    if (reset != SCORE_RESET_NEVER) {
        char        path[512];
        struct stat st;
        test_check(&t,
                stat(path_of("resumed", path), &st) == 0 && truncate(path, st.st_size - 40) == 0,
                "cannot truncate the file");
        test_check(&t,
                go(&again) == SCORE_DONE && again.result.n_windows == 1 &&
                        same_files("unbroken", "resumed"),
                "%s: truncated inside a group", model_name);
    }

    // resuming a finished run changes nothing
    test_check(&t,
            go(&again) == SCORE_DONE && again.result.n_tokens == 0 &&
                    same_files("unbroken", "resumed"),
            "a finished run was changed");

    // a run without --resume ignores checkpoints
    forget("resumed");
    asked.resume = false;
    test_check(&t, go(&asked) == SCORE_STOPPED && !no_checkpoint("resumed"),
            "a stopped run left no checkpoint");
    struct run restarted = run;
    test_check(&t,
            go(&restarted) == SCORE_DONE && restarted.result.n_resumed == 0 &&
                    same_files("unbroken", "resumed"),
            "a restarted run used a checkpoint");

    forget("resumed");
    forget("unbroken");
    lrnn_model_free(model);
}

// A checkpoint of another run over the same windows is ignored with a warning.
static void test_foreign_checkpoint(void) {
    struct lrnn_model * model = symbol_model("delta_net_neg");
    const struct run    run   = { .model = model,
             .name                       = "mine",
             .n_batch                    = 16,
             .group                      = 2,
             .window                     = { .length = 100, .max_windows = 4 } };
    char                mine[600], theirs[600], path[512];
    snprintf(mine, sizeof(mine), "%s.checkpoint", path_of("mine", path));
    snprintf(theirs, sizeof(theirs), "%s.checkpoint", path_of("theirs", path));

    struct run other = run; // its losses are those of other states
    other.name       = "theirs";
    other.reset      = SCORE_RESET_DOCUMENT;
    other.stop_after = 4;
    test_check(&t, go(&other) == SCORE_STOPPED, "the other run was not stopped");

    struct run unbroken = run;
    unbroken.name       = "unbroken";
    go(&unbroken);

    struct run stopped = run;
    stopped.stop_after = 1;
    test_check(&t, go(&stopped) == SCORE_STOPPED, "the run was not stopped");
    char old[700];
    snprintf(old, sizeof(old), "%s.old", mine);
    test_check(&t, rename(mine, old) == 0 && rename(theirs, mine) == 0, "cannot rename: %s",
            strerror(errno));

    struct run resumed = run;
    resumed.resume     = true;
    resumed.warning    = "another run";
    test_check(&t,
            go(&resumed) == SCORE_DONE && resumed.result.n_resumed == 0 &&
                    same_files("unbroken", "mine"),
            "a checkpoint of another run was used");
    test_check(&t, no_checkpoint("mine"), "a finished run left a checkpoint");

    // the run's own checkpoint, with a wrong loss and unharmed
    forget("mine");
    stopped.stop_after = 4;
    test_check(&t, go(&stopped) == SCORE_STOPPED, "the run was not stopped");
    char   partial[700];
    size_t size;
    snprintf(partial, sizeof(partial), "%s/0.partial", mine);
    uint8_t * data = test_read_file(partial, &size);
    data[92] ^= 1; // after the headers of file and window
    test_write_file(partial, data, size);
    free(data);
    resumed.warning = "checksum";
    test_check(&t,
            go(&resumed) == SCORE_DONE && resumed.result.n_resumed == 0 &&
                    same_files("unbroken", "mine"),
            "a damaged checkpoint was used");

    forget("mine");
    test_check(&t, go(&stopped) == SCORE_STOPPED, "the run was not stopped");
    resumed.warning = NULL;
    test_check(&t,
            go(&resumed) == SCORE_DONE && resumed.result.n_resumed > 0 &&
                    same_files("unbroken", "mine"),
            "the run's own checkpoint was not used");

    char command[800];
    snprintf(command, sizeof(command), "rm -r '%s'", old);
    test_check(&t, system(command) == 0, "cannot remove %s", old);
    forget("mine");
    forget("theirs");
    forget("unbroken");
    lrnn_model_free(model);
}

// A file cut after any number of windows is completed with the bytes of an unbroken run: a group
// that is there in part is computed as a whole. One token per window and call, so that a group of
// another size would round differently.
static void test_cut_files(void) {
    enum { GROUP = 3, N_WINDOWS = 8 };
    struct lrnn_model * model    = symbol_model("gated_deltanet_neg");
    const struct run    run      = { .model = model,
                .name                       = "cut",
                .n_batch                    = 1,
                .group                      = GROUP,
                .window                     = { .length = 40, .max_windows = N_WINDOWS } };
    struct run          unbroken = run;
    char                path[512];
    size_t              ends[N_WINDOWS + 1]; // offsets of the windows in the file
    size_t              size = 0;
    int                 n    = 0;
    unbroken.name            = "unbroken";
    go(&unbroken);
    uint8_t * data = test_read_file(path_of("unbroken", path), &size);
    for (size_t i = 0; i + 4 <= size && n <= N_WINDOWS; ++i) {
        if (memcmp(data + i, "NLL1", 4) == 0) {
            ends[n++] = i;
        }
    }
    test_check(&t, n == N_WINDOWS, "%d windows in the file", n);
    for (int k = 0; k < n; ++k) {
        test_write_file(path_of("cut", path), data, ends[k]);
        struct run again = run;
        again.resume     = true;
        test_check(&t, go(&again) == SCORE_DONE && again.result.n_windows == N_WINDOWS - k,
                "%d windows were appended to %d", (int) again.result.n_windows, k);
        test_check(&t, same_files("unbroken", "cut"), "cut after %d windows: other bytes", k);
    }
    free(data);
    forget("cut");
    forget("unbroken");
    lrnn_model_free(model);
}

// Four shards, one of them killed and resumed, equal the unsplit run.
static void test_shards(void) {
    struct lrnn_model * model   = symbol_model("deltaproduct3_neg");
    const struct run    run     = { .model = model,
               .name                       = "whole",
               .n_batch                    = 16,
               .group                      = 2,
               .checkpoint_every           = 20,
               .probe                      = true,
               .window                     = { .length = 70 } };
    struct run          unsplit = run;
    go(&unsplit);
    static const char * const names[] = { "part1", "part2", "part3", "part4" };
    char                      path[4][512], err[512] = "";
    const char *              paths[4];
    for (int i = 0; i < 4; ++i) {
        struct run part = run;
        part.name       = names[i];
        part.shard      = i + 1;
        part.n_shards   = 4;
        if (i == 2) {
            test_check(&t, killed_after(part, 4), "the shard finished before it was killed");
            part.resume = true;
        }
        go(&part);
        paths[i] = path_of(names[i], path[i]);
    }
    struct scores whole = read_scores("whole"), parts;
    if (test_check(&t, scores_read(paths, 4, false, &parts, err, sizeof(err)), "%s", err)) {
        bool same = parts.n_windows == whole.n_windows && whole.n_windows > 10;
        for (int64_t i = 0; i < whole.n_windows && same; ++i) {
            const struct score_window * a = &whole.windows[i];
            const struct score_window * b = &parts.windows[i];
            same                          = a->index == b->index && a->n_targets == b->n_targets &&
                   a->n_spans == b->n_spans &&
                   memcmp(a->nll, b->nll, (size_t) a->n_targets * sizeof(*a->nll)) == 0 &&
                   memcmp(a->flags, b->flags, (size_t) a->n_targets) == 0 &&
                   memcmp(a->bytes, b->bytes, (size_t) a->n_targets * sizeof(*a->bytes)) == 0 &&
                   memcmp(a->spans, b->spans, (size_t) a->n_spans * sizeof(*a->spans)) == 0 &&
                   a->n_norms == b->n_norms && a->n_norms > 2 &&
                   memcmp(a->norms, b->norms, (size_t) a->n_norms * sizeof(*a->norms)) == 0;
        }
        test_check(&t, same, "four shards differ from the run");
        scores_free(&parts);
    }
    scores_free(&whole);
    for (int i = 0; i < 4; ++i) {
        forget(names[i]);
    }
    forget("whole");
    lrnn_model_free(model);
}

int main(void) {
    char err[512];
    if (!golden_list_load(&golden, err, sizeof(err))) {
        printf("FAILED: %s\n", err);
        return 1;
    }
    snprintf(folder, sizeof(folder), "%s/lrnn-score.XXXXXX",
            getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(folder) == NULL) {
        printf("FAILED: cannot create a folder: %s\n", strerror(errno));
        return 1;
    }
    snprintf(data_path, sizeof(data_path), "%s/data.jsonl", folder);
    write_data();
    test_numbers("delta_net_neg");
    test_numbers("xlstm");
    test_numbers("olmo_hybrid");
    test_prefix();
    test_never();
    test_uniform_model();
    test_not_finite();
    test_norms();
    test_growth();
    test_resume("gated_deltaproduct2_neg", SCORE_RESET_WINDOW, 2, true);
    test_resume("olmo_hybrid", SCORE_RESET_WINDOW, 3, false);
    test_resume("mamba2", SCORE_RESET_DOCUMENT, 2, true);
    test_resume("rwkv6", SCORE_RESET_NEVER, 1, true);
    test_foreign_checkpoint();
    test_cut_files();
    test_shards();
    unlink(data_path);
    test_check(&t, rmdir(folder) == 0, "%s: not empty", folder);
    golden_list_free(&golden);
    return test_end(&t, "score");
}
