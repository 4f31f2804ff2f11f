// Sequences of a session: state files, invalid calls, non-finite values, the attention cache, two
// threads. test-golden checks the logits.

#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "lrnn.h"

#include <limits.h>
#include <pthread.h>
#include <unistd.h>

static struct test        t;
static struct golden_list golden;

// Models whose first layer begins with an RMSNorm.
static const char * const PRE_NORM[] = { "delta_net_neg", "mamba_neg", "transformer",
    "delta_net_hybrid" };

enum { PROMPT = 11, AFTER = 16 };

// A check with a fixed description; `detail` is an error message or "".
static bool check(bool ok, const char * what, const char * detail) {
    return test_check(&t, ok, "%s: %s", what, detail);
}

static struct lrnn_session * new_session(struct lrnn_model * model, int n_seqs, int n_rewind) {
    const struct lrnn_session_params p = {
        .n_threads = 1, .n_seqs = n_seqs, .n_rewind = n_rewind, .n_cache = 128
    };
    return test_session(model, &p);
}

static bool eval(
        struct lrnn_session * s, int seq, const int32_t * tokens, int n, struct lrnn_error * err) {
    const struct lrnn_input in = { .seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = 1 };
    return lrnn_eval(s, &in, 1, err);
}

// Samples AFTER tokens, starting from `token`.
static void generate(struct lrnn_session * s, int seq, struct lrnn_sampler * sampler,
        int64_t n_vocab, int32_t token, int32_t out[AFTER]) {
    struct lrnn_error err;
    for (int i = 0; i < AFTER; ++i) {
        check(eval(s, seq, &token, 1, &err), "eval", err.text);
        token = out[i] = lrnn_sampler_sample(sampler, lrnn_logits(s, 0), n_vocab, NULL, NULL);
    }
}

static void make_prompt(const struct lrnn_model * model, int32_t tokens[PROMPT]) {
    for (int i = 0; i < PROMPT; ++i) {
        tokens[i] = (int32_t) ((i * 13 + 5) % lrnn_model_get_info(model).n_vocab);
    }
}

// A state is saved and loaded into another session and another sequence. The tokens that follow are
// those of the uninterrupted run.
static void test_state_file(const char * name, const char * path) {
    struct lrnn_model *        model = golden_load_model(name);
    const int64_t              V = lrnn_model_get_info(model).n_vocab;
    struct lrnn_session *      a = new_session(model, 1, 0);
    struct lrnn_session *      b = new_session(model, 3, 2);
    struct lrnn_sampler_params p = {
        .temperature = 0.8f, .top_k = 40, .drop_p = 0.05f, .min_p = 0.05f
    };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    int32_t           tokens[PROMPT], unbroken[AFTER], resumed[AFTER];
    make_prompt(model, tokens);
    p.seed = 5;
    p.repeat_penalty = 1.2f;
    struct lrnn_sampler * sa = lrnn_sampler_new(&p, &err);
    p.seed = 6; // must be replaced by the state file
    struct lrnn_sampler * sb = lrnn_sampler_new(&p, &err);

    check(eval(a, 0, tokens, PROMPT, &err), name, err.text);
    float * logits = malloc((size_t) V * sizeof(float));
    memcpy(logits, lrnn_logits(a, 0), (size_t) V * sizeof(float));
    const int32_t first = lrnn_sampler_sample(sa, lrnn_logits(a, 0), V, NULL, NULL);
    check(lrnn_seq_save(a, 0, sa, path, &err), name, err.text);
    generate(a, 0, sa, V, first, unbroken);

    check(lrnn_seq_load(b, 2, sb, path, &err), name, err.text);
    check(lrnn_seq_length(b, 2) == PROMPT, name, "the length is not saved");
    check(lrnn_seq_rewindable(b, 2) == 0, name, "tokens before the state file can be rewound");
    check(lrnn_logits(b, 0) != NULL && lrnn_logits(b, 1) == NULL, name,
            "expected the logits of the last token");
    check(memcmp(logits, lrnn_logits(b, 0), (size_t) V * sizeof(float)) == 0, name,
            "the loaded logits differ");
    free(logits);
    generate(b, 2, sb, V, first, resumed);
    check(memcmp(unbroken, resumed, sizeof(unbroken)) == 0, name,
            "the tokens differ from those of the uninterrupted run");

    lrnn_sampler_free(sa);
    lrnn_sampler_free(sb);
    lrnn_session_free(a);
    lrnn_session_free(b);
    lrnn_model_free(model);
}

// A sequence as bytes, set in another session and sequence: the logits that follow are those of the
// original. Bytes of another size are rejected.
static void test_bytes(const char * name) {
    struct lrnn_model *   model = golden_load_model(name);
    const size_t          row = (size_t) lrnn_model_get_info(model).n_vocab * sizeof(float);
    struct lrnn_session * a = new_session(model, 1, 0);
    struct lrnn_session * b = new_session(model, 3, 2);
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    int32_t               tokens[PROMPT];
    make_prompt(model, tokens);

    check(lrnn_seq_size(a, 0) == 0 && lrnn_seq_size(a, 1) == 0, name,
            "an empty sequence has bytes");
    check(eval(a, 0, tokens, PROMPT - 1, &err), name, err.text);
    const size_t size = lrnn_seq_size(a, 0);
    char *       data = malloc(size);
    check(lrnn_seq_get(a, 0, data, size, &err), name, err.text);
    check(eval(b, 2, tokens, 3, &err), name, err.text); // is replaced
    check(lrnn_seq_set(b, 2, PROMPT - 1, data, size, &err), name, err.text);
    check(lrnn_seq_length(b, 2) == PROMPT - 1 && lrnn_seq_rewindable(b, 2) == 0, name,
            "the length is wrong");
    check(eval(a, 0, tokens + PROMPT - 1, 1, &err) && eval(b, 2, tokens + PROMPT - 1, 1, &err),
            name, err.text);
    check(memcmp(lrnn_logits(a, 0), lrnn_logits(b, 0), row) == 0, name, "the logits differ");

    check(!lrnn_seq_get(b, 2, data, size + 1, &err) &&
                    !lrnn_seq_set(b, 2, PROMPT, data, size + 1, &err) &&
                    !lrnn_seq_set(b, 2, -1, data, size, &err) &&
                    !lrnn_seq_set(b, 3, PROMPT, data, size, &err),
            name, "wrong bytes are accepted");
    check(lrnn_seq_length(b, 2) == PROMPT, name, "a rejected call changed the sequence");
    free(data);
    lrnn_session_free(a);
    lrnn_session_free(b);
    lrnn_model_free(model);
}

// A damaged file is rejected and the sequence is unchanged.
static void test_damage(const char * path) {
    struct lrnn_model *   model = golden_load_model("delta_net_neg");
    struct lrnn_model *   other = golden_load_model("xlstm");
    struct lrnn_session * s = new_session(model, 2, 0);
    struct lrnn_session * so = new_session(other, 1, 0);
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    int32_t               tokens[PROMPT];
    size_t                size;
    make_prompt(model, tokens);
    check(eval(s, 0, tokens, PROMPT, &err) && lrnn_seq_save(s, 0, NULL, path, &err), "save",
            err.text);
    check(eval(s, 1, tokens, 3, &err), "eval", err.text);
    uint8_t * data = test_read_file(path, &size);

    check(!lrnn_seq_load(so, 0, NULL, path, &err) && strstr(err.text, "another model") != NULL,
            "a state of another model is loaded", err.text);
    check(!lrnn_seq_load(s, 1, NULL, "no-such-file", &err) &&
                    strstr(err.text, "no-such-file") != NULL,
            "expected an error that names the missing file", err.text);
    check(!lrnn_seq_load(s, 7, NULL, path, &err), "a state is loaded into a missing sequence",
            err.text);

    int n_damaged = 0;
    for (size_t cut = 0; cut < size; cut += cut < 64 ? 1 : 997) {
        test_write_file(path, data, cut);
        n_damaged++;
        check(!lrnn_seq_load(s, 1, NULL, path, &err), "a truncated file is loaded", err.text);
    }
    for (size_t at = 0; at < size; at += at < 64 ? 1 : 1009) {
        data[at] ^= 0x10;
        test_write_file(path, data, size);
        n_damaged++;
        check(!lrnn_seq_load(s, 1, NULL, path, &err), "a file with a flipped bit is loaded",
                err.text);
        data[at] ^= 0x10;
    }
    uint8_t * longer = malloc(size + 1);
    memcpy(longer, data, size);
    longer[size] = 0;
    test_write_file(path, longer, size + 1);
    check(!lrnn_seq_load(s, 1, NULL, path, &err), "a file with an extra byte is loaded", err.text);
    check(lrnn_seq_length(s, 1) == 3, "a rejected file changes the sequence", "");
    printf("state file: %d damaged copies rejected\n", n_damaged + 1);

    free(longer);
    free(data);
    lrnn_session_free(s);
    lrnn_session_free(so);
    lrnn_model_free(model);
    lrnn_model_free(other);
}

static void test_misuse(void) {
    struct lrnn_model *   model = golden_load_model("olmo_hybrid");
    struct lrnn_session * s = new_session(model, 2, 1);
    const int64_t         V = lrnn_model_get_info(model).n_vocab;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    const int32_t         good[2] = { 1, 2 };
    const int32_t         high[1] = { (int32_t) V };
    const int32_t         low[1] = { -1 };
    static int32_t        many[200];

    const struct lrnn_input inputs[][2] = {
        { { .seq = 2, .tokens = good, .n_tokens = 2 } },
        { { .seq = -1, .tokens = good, .n_tokens = 2 } },
        { { .seq = 0, .tokens = high, .n_tokens = 1 } },
        { { .seq = 0, .tokens = low, .n_tokens = 1 } },
        { { .seq = 0, .tokens = good, .n_tokens = 0 } },
        { { .seq = 0, .tokens = good, .n_tokens = 2, .n_logits = 3 } },
        { { .seq = 0, .tokens = good, .n_tokens = 2, .n_logits = -1 } },
        { { .seq = 0, .tokens = many, .n_tokens = 200 } }, // more than the cache of 128
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); ++i) {
        err.text[0] = '\0';
        check(!lrnn_eval(s, inputs[i], 1, &err) && err.text[0] != '\0',
                "an invalid call is accepted, or rejected without a message", err.text);
    }
    const struct lrnn_input twice[2] = { { .seq = 0, .tokens = good, .n_tokens = 2 },
        { .seq = 0, .tokens = good, .n_tokens = 2 } };
    check(!lrnn_eval(s, twice, 2, &err) && strstr(err.text, "appears twice") != NULL,
            "a call with a sequence twice is accepted", err.text);
    check(!lrnn_eval(s, twice, 0, &err) && !lrnn_eval(s, twice, 3, &err),
            "a call with no or too many sequences is accepted", err.text);
    check(lrnn_seq_length(s, 0) == 0, "a rejected call changes the length", "");
    check(eval(s, 0, good, 2, &err), "a valid call after rejected ones fails", err.text);
    check(lrnn_logits(s, 0) != NULL && lrnn_logits(s, 1) == NULL && lrnn_logits(s, -1) == NULL,
            "expected NULL for logits that were not requested", "");
    check(!lrnn_seq_rewind(s, 0, 2, &err) && lrnn_seq_rewind(s, 0, 1, &err),
            "expected to rewind 1 token and not 2", err.text);
    check(!lrnn_seq_rewind(s, 0, -1, &err), "expected not to rewind -1 tokens", err.text);
    check(!lrnn_seq_fork(s, 0, 5, &err) && !lrnn_seq_reset(s, 5, &err),
            "a missing sequence is accepted", err.text);
    check(lrnn_seq_length(s, 5) == -1 && lrnn_seq_rewindable(s, -1) == -1,
            "a missing sequence has a length", "");

    const struct lrnn_session_params bad[] = { { .n_threads = -1 }, { .n_seqs = -1 },
        { .n_rewind = -1 }, { .n_batch = -1 }, { .n_cache = -1 },
        { .cache_type = (enum lrnn_cache_type) 3 } };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        check(lrnn_session_new(model, &bad[i], &err) == NULL,
                "a session with an invalid parameter is created", err.text);
    }
    check(lrnn_model_load("no-such-model.gguf", NULL, &err) == NULL &&
                    strstr(err.text, "no-such-model") != NULL,
            "expected an error that names the missing model", err.text);
    lrnn_session_free(s);
    lrnn_model_free(model);
}

// Only token `bad` uses channel 0, and it uses no other: √D after the norm. The weight of the norm
// makes it overflow.
static void overflow_at(struct model_edit * e, int bad) {
    struct ggml_tensor * embd = model_edit_find(e, "token_embd.weight");
    struct ggml_tensor * norm = model_edit_find(e, "blk.0.attn_norm.weight");
    float *              x = embd->data;
    for (int64_t id = 0; id < embd->ne[1]; ++id) {
        x[id * embd->ne[0]] = id == bad ? 1.0f : 0.0f;
    }
    memset(x + bad * embd->ne[0] + 1, 0, (size_t) (embd->ne[0] - 1) * sizeof(float));
    ((float *) norm->data)[0] = 3e38f;
}

// A token whose values overflow leaves no trace after a rewind or a reset, and never affects
// another sequence. Attention reads rows of its cache after the end of a sequence; they must not
// contain values of removed tokens.
static void test_not_finite(const char * name, const char * path) {
    enum { BAD = 9, N = 5 };
    const int32_t     good[N] = { 3, 1, 4, 1, 5 }, bad[N] = { 3, 1, BAD, BAD, BAD };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct model_edit e;
    if (!check(model_edit_open(&e, golden_find(&golden, name)->path), name, "cannot be read")) {
        return;
    }
    overflow_at(&e, BAD);
    check(model_edit_write(&e, path), name, "cannot be written");
    model_edit_close(&e);
    struct lrnn_model *   model = test_load_model(path, NULL);
    const int64_t         V = lrnn_model_get_info(model).n_vocab;
    const size_t          row = (size_t) V * sizeof(float);
    struct lrnn_session * s = new_session(model, 2, N);
    float *               expected = malloc(4 * row); // of two long prompts, then of two short ones

    // sequence, tokens, number of tokens, logits of the last one
    const struct lrnn_input both[2] = { { 0, good, N, 1 }, { 1, good, N, 1 } };
    const struct lrnn_input half[2] = { { 0, bad, N, 1 }, { 1, good, N, 1 } };
    const struct lrnn_input less[2] = { { 0, good, 2, 1 }, { 1, good, 2, 1 } };
    check(lrnn_eval(s, less, 2, &err), name, err.text);
    memcpy(expected + 2 * V, lrnn_logits(s, 0), 2 * row);
    check(lrnn_seq_reset(s, 0, &err) && lrnn_seq_reset(s, 1, &err), name, err.text);
    check(lrnn_eval(s, both, 2, &err), name, err.text);
    memcpy(expected, lrnn_logits(s, 0), 2 * row);
    for (int how = 0; how < 2; ++how) { // rewound, then reset
        for (int i = 0; i < 2; ++i) {
            check(how == 0 ? lrnn_seq_rewind(s, i, lrnn_seq_length(s, i), &err)
                           : lrnn_seq_reset(s, i, &err),
                    name, err.text);
        }
        check(lrnn_eval(s, half, 2, &err), name, err.text);
        check(!isfinite(lrnn_logits(s, 0)[0]), name, "the logits of an overflow are finite");
        check(memcmp(lrnn_logits(s, 1), expected + V, row) == 0, name,
                "an overflow affects the other sequence");
        for (int i = 0; i < 2; ++i) {
            check(how == 0 ? lrnn_seq_rewind(s, i, N, &err) : lrnn_seq_reset(s, i, &err), name,
                    err.text);
        }
        check(lrnn_eval(s, less, 2, &err), name, err.text);
        check(memcmp(lrnn_logits(s, 0), expected + 2 * V, 2 * row) == 0, name,
                "an overflow affects the tokens that follow");
    }
    // a fork that replaces a longer sequence
    check(lrnn_seq_reset(s, 0, &err) && eval(s, 0, bad, N, &err), name, err.text);
    check(lrnn_seq_reset(s, 1, &err) && eval(s, 1, good, 2, &err) && lrnn_seq_fork(s, 1, 0, &err),
            name, err.text);
    check(eval(s, 0, good + 2, 1, &err) && isfinite(lrnn_logits(s, 0)[0]), name,
            "an overflow affects a fork that replaces it");
    free(expected);
    lrnn_session_free(s);
    lrnn_model_free(model);
}

// Attention up to the last row of a cache of several steps: in one call, token by token, and in
// uneven calls.
static void test_cache(const char * name) {
    enum { N = 600 }; // more than two steps of 256, not a multiple
    static const int           cuts[] = { 1, 160, 120, 1, 1, 240 };
    struct lrnn_model *        model = golden_load_model(name);
    const int64_t              V = lrnn_model_get_info(model).n_vocab;
    struct lrnn_session_params p = {
        .n_threads = 1, .n_seqs = 2, .n_cache = N, .cache_type = LRNN_CACHE_F32
    };
    float *           whole = malloc((size_t) (N * V) * sizeof(float));
    double            worst = 0.0;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    int32_t           tokens[N];
    for (int i = 0; i < N; ++i) {
        tokens[i] = (int32_t) ((i * i + 3 * i + 1) % V);
    }
    for (int how = 0; how < 3; ++how) {
        struct lrnn_session * s = test_session(model, &p);
        for (int at = 0, call = 0; at < N; ++call) {
            const int               cut = cuts[(size_t) call % (sizeof(cuts) / sizeof(cuts[0]))];
            const int               want = how == 0 ? N : how == 1 ? 1 : cut;
            const int               n = want < N - at ? want : N - at;
            const struct lrnn_input in = {
                .seq = 1, .tokens = tokens + at, .n_tokens = n, .n_logits = n
            };
            check(lrnn_eval(s, &in, 1, &err), name, err.text);
            for (int64_t i = 0; i < n * V; ++i) {
                float * x = &whole[at * V + i];
                if (how == 0) {
                    *x = lrnn_logits(s, 0)[i];
                }
                const double d = fabs((double) *x - (double) lrnn_logits(s, 0)[i]);
                worst = d > worst || isnan(d) ? d : worst;
            }
            at += n;
        }
        check(!eval(s, 1, tokens, 1, &err), name, "a full cache accepts another token");
        lrnn_session_free(s);
    }
    printf("%s: %d tokens in the cache; logits of different cuts differ by %.1e\n", name, N, worst);
    check(worst < 1e-4, name, "the logits depend on the cut");
    free(whole);
    lrnn_model_free(model);
}

// Two sessions of one model, run at once by two threads, give the bits of each alone.
struct job {
    struct lrnn_model * model;
    int                 stride; // between token ids
    float *             logits; // [AFTER][V]
};

static void * work(void * user) {
    struct job *          job = user;
    struct lrnn_session * s = new_session(job->model, 1, 0);
    const int64_t         V = lrnn_model_get_info(job->model).n_vocab;
    struct lrnn_error     err;
    for (int i = 0; i < AFTER; ++i) {
        const int32_t token = (int32_t) ((i * job->stride) % V);
        if (!eval(s, 0, &token, 1, &err)) {
            break;
        }
        memcpy(job->logits + i * V, lrnn_logits(s, 0), (size_t) V * sizeof(float));
    }
    lrnn_session_free(s);
    return NULL;
}

static void test_threads(const char * name) {
    struct lrnn_model * model = golden_load_model(name);
    const size_t        size =
            (size_t) AFTER * (size_t) lrnn_model_get_info(model).n_vocab * sizeof(float);
    struct job jobs[4];
    for (int i = 0; i < 4; ++i) {
        jobs[i] = (struct job) { model, i % 2 == 0 ? 7 : 11, calloc(1, size) };
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        pthread_create(&threads[i], NULL, work, &jobs[i]);
    }
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
    }
    work(&jobs[2]);
    work(&jobs[3]);
    check(memcmp(jobs[0].logits, jobs[2].logits, size) == 0 &&
                    memcmp(jobs[1].logits, jobs[3].logits, size) == 0,
            name, "two threads give other logits than one");
    for (int i = 0; i < 4; ++i) {
        free(jobs[i].logits);
    }
    lrnn_model_free(model);
}

// A callback that makes the second batch of a call fail.
static bool fail_in_second_batch(const struct lrnn_trace_event * event, void * user) {
    int * n_left = user;
    return event->layer >= 0 || --*n_left > 0; // -1: the output layer, once per batch
}

// A call that fails after some of its batches resets all of its sequences, and no other.
static void test_failed_call(const char * name) {
    enum { N = 4 };
    const int32_t       tokens[N] = { 3, 1, 4, 1 };
    int                 n_left = INT_MAX;
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct lrnn_model * model = golden_load_model(name);

    const struct lrnn_session_params params = { .n_threads = 1,
        .n_seqs = 4,
        .n_batch = N,
        .trace_kinds = LRNN_TRACE_MATRICES,
        .trace = fail_in_second_batch,
        .trace_user = &n_left };
    const struct lrnn_input          three[] = {
        { 0, tokens, N, N },
        { 1, tokens, N, N },
        { 2, tokens, N, N },
    };
    struct lrnn_session * s = test_session(model, &params);
    check(eval(s, 0, tokens, 1, &err) && eval(s, 2, tokens, 1, &err) && eval(s, 3, tokens, N, &err),
            name, err.text);
    n_left = 2;
    check(!lrnn_eval(s, three, 3, &err), name, "the callback does not stop the call");
    for (int32_t q = 0; q < 3; ++q) {
        check(lrnn_seq_length(s, q) == 0, name, "a failed call leaves tokens in a sequence");
    }
    check(lrnn_seq_length(s, 3) == N && lrnn_logits(s, 0) == NULL, name,
            "a failed call resets another sequence, or has logits");

    // empty sequences continue as new ones do
    struct lrnn_session * fresh = test_session(model, &params);
    n_left = INT_MAX;
    check(eval(s, 0, tokens, N, &err) && eval(fresh, 0, tokens, N, &err), name, err.text);
    check(memcmp(lrnn_logits(s, 0), lrnn_logits(fresh, 0),
                  (size_t) lrnn_model_get_info(model).n_vocab * sizeof(float)) == 0,
            name, "a failed call affects the tokens that follow");
    lrnn_session_free(fresh);
    lrnn_session_free(s);
    lrnn_model_free(model);
}

int main(void) {
    char path[64];
    golden_list_load(&golden);
    test_own_path(path, sizeof(path), "test-session.state");
    for (int i = 0; i < golden.n; ++i) {
        test_state_file(golden.models[i].name, path);
        test_bytes(golden.models[i].name);
        test_threads(golden.models[i].name);
    }
    test_damage(path);
    test_misuse();
    test_failed_call("delta_net_neg");
    test_failed_call("delta_net_hybrid");
    test_cache("transformer");
    test_cache("delta_net_hybrid"); // has a sliding window
    test_cache("olmo_hybrid");
    for (size_t i = 0; i < sizeof(PRE_NORM) / sizeof(PRE_NORM[0]); ++i) {
        test_not_finite(PRE_NORM[i], path);
    }
    remove(path);
    golden_list_free(&golden);
    return test_end(&t, "test-session");
}
