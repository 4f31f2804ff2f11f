// State tracking: the exact models of models/exact answer every letter correctly at any length, on
// the step and chunk paths, alone or with another sequence, in F32 and Q8_0, and after saving and
// loading their state. With eigenvalues in [0,1], or with one factor too few, they fail. Several
// runs of the program may share a folder.

#include "lrnn.h"
#include "eval/tasks/probe.h"
#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"

#include <glob.h>
#include <inttypes.h>
#include <unistd.h>

// sanitizers are ten times slower
static const int64_t LONG = LRNN_SANITIZE ? 20000 : 200000;
static const int64_t LONGER = LRNN_SANITIZE ? 100000 : 10000000;

static struct lrnn_model * load_exact(const char * name) {
    char path[512];
    snprintf(path, sizeof(path), "%s/exact/%s.gguf", LRNN_MODELS, name);
    return test_load_model(path, NULL);
}

static struct task * make_task(struct test * t, const char * spec) {
    struct lrnn_error err;
    struct task *     task = task_new(spec, NULL, 0, &err);
    test_check(t, task != NULL, "%s", err.text);
    return task;
}

struct score {
    int64_t asked, wrong;
    double  margin;
};

// One thread: the models are too small for two.
static struct score probe(struct test * t, struct lrnn_model * model, const char * spec,
        int64_t length, int64_t n_sequences, int32_t n_batch) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct probe_result result = { 0 };
    struct score        score = { 0 };
    struct task *       task = make_task(t, spec);
    if (model != NULL && task != NULL) {
        const struct probe_params params = {
            .lengths = { length },
            .n_lengths = 1,
            .n_sequences = n_sequences,
            .seed = 1,
            .session = { .n_threads = 1 },
            .n_batch = n_batch,
        };
        const bool ok = probe_by_length(model, task, &params, &result, &err);
        test_check(t, ok, "%s: %s", spec, err.text);
        score = (struct score) { result.rows[0].n_asked,
            result.rows[0].n_asked - result.rows[0].n_right, result.rows[0].margin };
    }
    task_free(task);
    return score;
}

static void check_exact(struct test * t, const char * name, const char * spec, int64_t length,
        int64_t n_sequences, int32_t n_batch) {
    struct lrnn_model * model = load_exact(name);
    const struct score  s = probe(t, model, spec, length, n_sequences, n_batch);
    test_check(t, s.asked == length * n_sequences && s.wrong == 0,
            "%s: %" PRId64 " of %" PRId64 " answers wrong, batch %d", name, s.wrong, s.asked,
            n_batch);
    lrnn_model_free(model);
}

// No better than a guess: the state of the first letters is soon lost.
static void check_fails(struct test * t, const char * name, const char * spec, double chance) {
    struct lrnn_model * model = load_exact(name);
    const struct score  s = probe(t, model, spec, 2000, 4, 512);
    const double        right = 1.0 - (double) s.wrong / (double) s.asked;
    test_check(t, s.asked == 8000 && right < chance + 0.05,
            "%s: %.3f of the answers are right; expected about %.3f, a guess", name, right, chance);
    lrnn_model_free(model);
}

// RWKV-7 cannot reach −1: it is right at first, with a shrinking margin, and guesses in the end.
static void check_decay(struct test * t) {
    struct lrnn_model * model = load_exact("parity-rwkv7");
    const struct score  near = probe(t, model, "parity", 100, 4, 512);
    const struct score  far = probe(t, model, "parity", 20000, 4, 512);
    test_check(t, near.wrong == 0 && near.margin > 0.0 && near.margin < 1e-3,
            "parity-rwkv7: %" PRId64 " wrong of 100, margin %g", near.wrong, near.margin);
    test_check(t, far.wrong > far.asked * 2 / 5,
            "parity-rwkv7: %" PRId64 " wrong of %" PRId64 "; expected half", far.wrong, far.asked);
    lrnn_model_free(model);
}

// Converts the matrices to Q8_0. Tensors that shape the recurrence stay F32.
static struct lrnn_model * load_q8(struct test * t, const char * name, const char * path) {
    static const char * const MATRICES[] = { "attn_q", "attn_k", "attn_v", "attn_output",
        "ffn_gate", "ffn_up", "ffn_down" };
    char                      from[512], tensor[64];
    struct model_edit         e;
    snprintf(from, sizeof(from), "%s/exact/%s.gguf", LRNN_MODELS, name);
    bool ok = test_check(t, model_edit_open(&e, from), "cannot open %s", from);
    if (!ok) {
        return NULL;
    }
    model_edit_convert(&e, "token_embd.weight", GGML_TYPE_Q8_0);
    model_edit_convert(&e, "output.weight", GGML_TYPE_Q8_0);
    for (size_t i = 0; i < sizeof(MATRICES) / sizeof(MATRICES[0]); ++i) {
        snprintf(tensor, sizeof(tensor), "blk.0.%s.weight", MATRICES[i]);
        const struct ggml_tensor * x = model_edit_find(&e, tensor);
        if (x != NULL && x->ne[0] % 32 == 0) {
            model_edit_convert(&e, tensor, GGML_TYPE_Q8_0);
        }
    }
    ok = test_check(t, model_edit_write(&e, path), "cannot write %s", path);
    model_edit_close(&e);
    return ok ? test_load_model(path, NULL) : NULL;
}

static void check_q8(struct test * t, const char * name, const char * spec, int64_t length) {
    char path[512];
    snprintf(path, sizeof(path), "test-state-tracking-%d-%s-q8_0.gguf", (int) getpid(), name);
    struct lrnn_model * model = load_q8(t, name, path);
    const struct score  s = probe(t, model, spec, length, 1, 512);
    test_check(t, s.asked == length && s.wrong == 0,
            "%s in Q8_0: %" PRId64 " of %" PRId64 " answers wrong", name, s.wrong, s.asked);
    lrnn_model_free(model);
    remove(path);
}

// Saves the state after half of the letters and loads it into another session: the answers to the
// second half are right.
static void check_saved(struct test * t, const char * name, const char * spec, int64_t length) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    char                path[64];
    struct lrnn_model * model = load_exact(name);
    struct task *       task = make_task(t, spec);
    int32_t *           tokens = NULL;
    int64_t             n = 0;
    int64_t             wrong = 0;
    if (model == NULL || task == NULL ||
            !test_check(
                    t, probe_tokens(model, task, 9, length, &tokens, &n, &err), "%s", err.text)) {
        lrnn_model_free(model);
        task_free(task);
        return;
    }
    test_own_path(path, sizeof(path), "test-state-tracking.state");
    const struct lrnn_session_params params = { .n_threads = 1 };
    const int64_t                    prefix = n - length, half = prefix + length / 2;
    struct lrnn_session *            a = test_session(model, &params);
    struct lrnn_session *            b = test_session(model, &params);
    test_eval(a, 0, tokens, half, 0);
    bool ok = test_check(t,
            lrnn_seq_save(a, 0, NULL, path, &err) && lrnn_seq_load(b, 0, NULL, path, &err), "%s",
            err.text);
    // the same stream gives the answers
    struct task_stream * stream = task_stream_new(task, 9, length);
    for (int64_t i = prefix; i < n && ok; ++i) {
        int32_t symbol, answer;
        task_stream_next(stream, &symbol, &answer);
        if (i < half || !ok) {
            continue;
        }
        test_eval(b, 0, tokens + i, 1, 1);
        const float * logits = lrnn_logits(b, 0);
        int32_t       best = 0;
        for (int32_t v = 1; v < lrnn_model_get_info(model).n_vocab; ++v) {
            best = logits[v] > logits[best] ? v : best;
        }
        size_t       size = 0;
        const char * said = ok ? lrnn_token_bytes(model, best, &size) : NULL;
        wrong += ok && (size != strlen(task_symbol(task, answer)) ||
                               memcmp(said, task_symbol(task, answer), size) != 0);
    }
    test_check(t, ok && wrong == 0,
            "%s: %" PRId64 " answers wrong after saving and loading the state", name, wrong);
    task_stream_free(stream);
    lrnn_session_free(a);
    lrnn_session_free(b);
    lrnn_model_free(model);
    task_free(task);
    free(tokens);
    remove(path);
}

// The families whose parity model has a twin in [0,1]: models/exact/parity-FAMILY-01.gguf.
static void check_parity(struct test * t) {
    static const char * const SUFFIX = "-01.gguf";
    glob_t                    found;
    const int                 failed = glob(LRNN_MODELS "/exact/parity-*-01.gguf", 0, NULL, &found);
    test_check(
            t, failed == 0 && found.gl_pathc >= 8, "%s/exact: too few parity models", LRNN_MODELS);
    for (size_t i = 0; failed == 0 && i < found.gl_pathc; ++i) {
        char         name[64];
        const char * file = strrchr(found.gl_pathv[i], '/') + 1;
        snprintf(name, sizeof(name), "%.*s", (int) (strlen(file) - strlen(SUFFIX)), file);
        check_exact(t, name, "parity", LONG / 4, 3, 512);
        check_exact(t, name, "parity", 2000, 1, 1);
        strcat(name, "-01");
        check_fails(t, name, "parity", 0.5);
    }
    globfree(&found);
}

int main(void) {
    struct test t = { 0 };

    check_parity(&t);
    check_exact(&t, "parity-delta-net", "parity", LONGER, 1, 4096);
    check_decay(&t);

    static const int MODULI[] = { 3, 5, 7, 12, 60 };
    for (size_t i = 0; i < sizeof(MODULI) / sizeof(MODULI[0]); ++i) {
        char name[16], spec[16];
        snprintf(spec, sizeof(spec), "mod:%d", MODULI[i]);
        snprintf(name, sizeof(name), "z%d", MODULI[i]);
        check_exact(&t, name, spec, LONG / 4, 1, 512);
        snprintf(name, sizeof(name), "z%d-01", MODULI[i]);
        check_fails(&t, name, spec, 1.0 / MODULI[i]);
    }

    check_exact(&t, "s5", "S5", LONG, 1, 512);     // chunk path
    check_exact(&t, "s5", "S5", LONG / 10, 1, 1);  // step path
    check_exact(&t, "s5", "S5", LONG / 4, 2, 514); // two sequences at once
    check_q8(&t, "s5", "S5", LONG);
    check_saved(&t, "s5", "S5", LONG / 10);
    check_exact(&t, "s3", "S3", LONG / 10, 2, 512);
    check_exact(&t, "a5", "A5", LONG / 10, 2, 512);
    check_exact(&t, "a5-nh2", "A5:2", LONG / 10, 2, 512);
    check_exact(&t, "s5-swaps", "S5:swaps", LONG / 10, 2, 512);
    check_fails(&t, "s5-01", "S5", 1.0 / 120.0);
    check_fails(&t, "s5-nh3", "S5", 1.0 / 120.0);
    check_fails(&t, "s3-01", "S3", 1.0 / 6.0);
    check_fails(&t, "a5-01", "A5", 1.0 / 60.0);
    check_fails(&t, "a5-nh2-01", "A5:2", 1.0 / 60.0);
    check_fails(&t, "s5-swaps-01", "S5:swaps", 1.0 / 120.0);
    return test_end(&t, "state tracking");
}
