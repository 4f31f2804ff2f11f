// Sequences of a session: state files, misuse, numbers that are not finite, two threads. That the
// numbers are right is test-golden's business.

#include "kit/golden.h"
#include "kit/model-edit.h"
#include "lrnn.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int n_checks, n_failed;

static bool check(bool ok, const char * what, const char * detail) {
    n_checks++;
    if (!ok) {
        n_failed++;
        printf("FAILED: %s: %s\n", what, detail);
    }
    return ok;
}

// one of each kind of state: matrix with convolutions, per element, with normaliser, token shifts,
// attention cache
static const char * const MODELS[] = { "delta_net_neg", "mamba_neg", "xlstm", "rwkv7",
    "olmo_hybrid" };

// those whose first layer begins with an RMSNorm
static const char * const PRE_NORM[] = { "delta_net_neg", "mamba_neg", "transformer",
    "delta_net_hybrid" };

enum { N_MODELS = sizeof(MODELS) / sizeof(MODELS[0]), PROMPT = 11, AFTER = 16 };

static struct golden_list golden;

static struct lrnn_model * load(const char * name) {
    char err[512] = "no such model in the golden folder";
    for (int i = 0; i < golden.n; ++i) {
        if (strcmp(golden.models[i].name, name) == 0) {
            struct lrnn_model * model =
                    lrnn_model_load(golden.models[i].path, NULL, err, sizeof(err));
            if (model != NULL) {
                return model;
            }
        }
    }
    printf("FAILED: %s: %s\n", name, err);
    exit(1);
}

static struct lrnn_session * session_of(struct lrnn_model * model, int n_seqs, int n_rewind) {
    char                       err[512];
    struct lrnn_session_params p = {
        .n_threads = 1, .n_seqs = n_seqs, .n_rewind = n_rewind, .n_cache = 128
    };
    struct lrnn_session * s = lrnn_session_new(model, &p, err, sizeof(err));
    if (s == NULL) {
        printf("FAILED: %s\n", err);
        exit(1);
    }
    return s;
}

static bool eval(struct lrnn_session * s, int seq, const int32_t * tokens, int n, char * err) {
    const struct lrnn_input in = { .seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = 1 };
    return lrnn_eval(s, &in, 1, err, 512);
}

// Samples AFTER tokens, beginning with `token`.
static void generate(struct lrnn_session * s, int seq, struct lrnn_sampler * sampler,
        int64_t n_vocab, int32_t token, int32_t out[AFTER]) {
    char err[512];
    for (int i = 0; i < AFTER; ++i) {
        check(eval(s, seq, &token, 1, err), "eval", err);
        token = out[i] = lrnn_sampler_sample(sampler, lrnn_logits(s, 0), n_vocab, NULL, NULL, 0);
    }
}

static void prompt_of(const struct lrnn_model * model, int32_t tokens[PROMPT]) {
    for (int i = 0; i < PROMPT; ++i) {
        tokens[i] = (int32_t) ((i * 13 + 5) % lrnn_model_get_info(model).n_vocab);
    }
}

// The text after a state was saved and loaded, into another session and another sequence, is that
// of the unbroken run.
static void test_state_file(const char * name, const char * path) {
    struct lrnn_model *        model = load(name);
    const int64_t              V     = lrnn_model_get_info(model).n_vocab;
    struct lrnn_session *      a     = session_of(model, 1, 0);
    struct lrnn_session *      b     = session_of(model, 3, 2);
    struct lrnn_sampler_params p     = {
            .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f
    };
    char    err[512] = "";
    int32_t tokens[PROMPT], unbroken[AFTER], resumed[AFTER];
    prompt_of(model, tokens);
    p.seed                   = 5;
    p.repeat_penalty         = 1.2f;
    struct lrnn_sampler * sa = lrnn_sampler_new(&p, err, sizeof(err));
    p.seed                   = 6; // what is loaded must replace it
    struct lrnn_sampler * sb = lrnn_sampler_new(&p, err, sizeof(err));

    check(eval(a, 0, tokens, PROMPT, err), name, err);
    float * logits = malloc((size_t) V * sizeof(float));
    memcpy(logits, lrnn_logits(a, 0), (size_t) V * sizeof(float));
    const int32_t first = lrnn_sampler_sample(sa, lrnn_logits(a, 0), V, NULL, NULL, 0);
    check(lrnn_seq_save(a, 0, sa, path, err, sizeof(err)), name, err);
    generate(a, 0, sa, V, first, unbroken);

    check(lrnn_seq_load(b, 2, sb, path, err, sizeof(err)), name, err);
    check(lrnn_seq_length(b, 2) == PROMPT, name, "the length is saved");
    check(lrnn_seq_rewindable(b, 2) == 0, name, "what was before cannot be rewound");
    check(lrnn_logits(b, 0) != NULL && lrnn_logits(b, 1) == NULL, name,
            "the logits of the last token are saved");
    check(memcmp(logits, lrnn_logits(b, 0), (size_t) V * sizeof(float)) == 0, name, "to the bit");
    free(logits);
    generate(b, 2, sb, V, first, resumed);
    check(memcmp(unbroken, resumed, sizeof(unbroken)) == 0, name,
            "the tokens after loading are those of the unbroken run");

    lrnn_sampler_free(sa);
    lrnn_sampler_free(sb);
    lrnn_session_free(a);
    lrnn_session_free(b);
    lrnn_model_free(model);
}

static unsigned char * slurp(const char * path, size_t * size) {
    FILE * f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    *size = (size_t) ftell(f);
    rewind(f);
    unsigned char * data = malloc(*size);
    if (fread(data, 1, *size, f) != *size) {
        printf("FAILED: %s cannot be read\n", path);
        exit(1);
    }
    fclose(f);
    return data;
}

static void spit(const char * path, const unsigned char * data, size_t size) {
    FILE * f = fopen(path, "wb");
    fwrite(data, 1, size, f);
    fclose(f);
}

// A damaged file is refused and the sequence stays as it was.
static void test_damage(const char * path) {
    struct lrnn_model *   model    = load("delta_net_neg");
    struct lrnn_model *   other    = load("xlstm");
    struct lrnn_session * s        = session_of(model, 2, 0);
    struct lrnn_session * so       = session_of(other, 1, 0);
    char                  err[512] = "";
    int32_t               tokens[PROMPT];
    size_t                size;
    prompt_of(model, tokens);
    check(eval(s, 0, tokens, PROMPT, err) && lrnn_seq_save(s, 0, NULL, path, err, sizeof(err)),
            "save", err);
    check(eval(s, 1, tokens, 3, err), "eval", err);
    unsigned char * data = slurp(path, &size);

    check(!lrnn_seq_load(so, 0, NULL, path, err, sizeof(err)) &&
                    strstr(err, "another model") != NULL,
            "another model is refused", err);
    check(!lrnn_seq_load(s, 1, NULL, "no-such-file", err, sizeof(err)) &&
                    strstr(err, "no-such-file") != NULL,
            "a missing file is named", err);
    check(!lrnn_seq_load(s, 7, NULL, path, err, sizeof(err)), "a missing sequence is refused", err);

    int n_damaged = 0;
    for (size_t cut = 0; cut < size; cut += cut < 64 ? 1 : 997) {
        spit(path, data, cut);
        n_damaged++;
        check(!lrnn_seq_load(s, 1, NULL, path, err, sizeof(err)), "a truncated file is refused",
                err);
    }
    for (size_t at = 0; at < size; at += at < 64 ? 1 : 1009) {
        data[at] ^= 0x10;
        spit(path, data, size);
        n_damaged++;
        check(!lrnn_seq_load(s, 1, NULL, path, err, sizeof(err)), "a flipped bit is noticed", err);
        data[at] ^= 0x10;
    }
    unsigned char * longer = malloc(size + 1);
    memcpy(longer, data, size);
    longer[size] = 0;
    spit(path, longer, size + 1);
    check(!lrnn_seq_load(s, 1, NULL, path, err, sizeof(err)), "extra bytes are refused", err);
    check(lrnn_seq_length(s, 1) == 3, "a sequence that was not loaded is as it was", "");
    printf("state file: %d damaged copies refused\n", n_damaged + 1);

    free(longer);
    free(data);
    lrnn_session_free(s);
    lrnn_session_free(so);
    lrnn_model_free(model);
    lrnn_model_free(other);
}

static void test_misuse(void) {
    struct lrnn_model *   model    = load("olmo_hybrid");
    struct lrnn_session * s        = session_of(model, 2, 1);
    const int64_t         V        = lrnn_model_get_info(model).n_vocab;
    char                  err[512] = "";
    const int32_t         good[2]  = { 1, 2 };
    const int32_t         high[1]  = { (int32_t) V };
    const int32_t         low[1]   = { -1 };
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
        err[0] = '\0';
        check(!lrnn_eval(s, inputs[i], 1, err, sizeof(err)) && err[0] != '\0',
                "a call that makes no sense is refused with a sentence", err);
    }
    const struct lrnn_input twice[2] = { { .seq = 0, .tokens = good, .n_tokens = 2 },
        { .seq = 0, .tokens = good, .n_tokens = 2 } };
    check(!lrnn_eval(s, twice, 2, err, sizeof(err)), "a sequence named twice is refused", err);
    check(!lrnn_eval(s, twice, 0, err, sizeof(err)) && !lrnn_eval(s, twice, 3, err, sizeof(err)),
            "no sequence, or too many, are refused", err);
    check(lrnn_seq_length(s, 0) == 0, "a refused call advances nothing", "");
    check(eval(s, 0, good, 2, err), "and the session works on", err);
    check(lrnn_logits(s, 0) != NULL && lrnn_logits(s, 1) == NULL && lrnn_logits(s, -1) == NULL,
            "logits that were not asked for are NULL", "");
    check(!lrnn_seq_rewind(s, 0, 2, err, sizeof(err)) && lrnn_seq_rewind(s, 0, 1, err, sizeof(err)),
            "a rewind beyond what is remembered is refused", err);
    check(!lrnn_seq_fork(s, 0, 5, err, sizeof(err)) && !lrnn_seq_reset(s, 5, err, sizeof(err)),
            "missing sequences are refused", err);
    check(lrnn_seq_length(s, 5) == -1 && lrnn_seq_rewindable(s, -1) == -1, "and have no length",
            "");

    const struct lrnn_session_params bad[] = { { .n_threads = -1 }, { .n_seqs = -1 },
        { .n_rewind = -1 }, { .n_batch = -1 }, { .n_cache = -1 } };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        check(lrnn_session_new(model, &bad[i], err, sizeof(err)) == NULL,
                "a session of negative size is refused", err);
    }
    check(lrnn_model_load("no-such-model.gguf", NULL, err, sizeof(err)) == NULL &&
                    strstr(err, "no-such-model") != NULL,
            "a missing model is named", err);
    lrnn_session_free(s);
    lrnn_model_free(model);
}

// Channel 0 belongs to token `bad` alone, which has nothing else: √D after the norm. The weight of
// the norm takes it beyond what a float can hold.
static void overflow_at(struct model_edit * e, int bad) {
    struct ggml_tensor * embd = model_edit_find(e, "token_embd.weight");
    struct ggml_tensor * norm = model_edit_find(e, "blk.0.attn_norm.weight");
    float *              x    = embd->data;
    for (int64_t id = 0; id < embd->ne[1]; ++id) {
        x[id * embd->ne[0]] = id == bad ? 1.0f : 0.0f;
    }
    memset(x + bad * embd->ne[0] + 1, 0, (size_t) (embd->ne[0] - 1) * sizeof(float));
    ((float *) norm->data)[0] = 3e38f;
}

// A token that gives numbers which are not finite: nothing of it is left after a rewind or a reset,
// and it never touches another sequence. Attention looks at rows of its cache behind a sequence's
// end, where what was forgotten must not be.
static void test_not_finite(const char * name, const char * path) {
    enum { BAD = 9, N = 5 };
    const int32_t     good[N] = { 3, 1, 4, 1, 5 }, bad[N] = { 3, 1, BAD, BAD, BAD };
    char              err[512] = "no such model in the golden folder";
    struct model_edit e;
    for (int i = 0; i < golden.n; ++i) {
        if (strcmp(golden.models[i].name, name) == 0 &&
                model_edit_open(&e, golden.models[i].path)) {
            overflow_at(&e, BAD);
            check(model_edit_write(&e, path), name, "the model can be written");
            model_edit_close(&e);
        }
    }
    struct lrnn_model * model = lrnn_model_load(path, NULL, err, sizeof(err));
    if (!check(model != NULL, name, err)) {
        return;
    }
    const int64_t         V        = lrnn_model_get_info(model).n_vocab;
    const size_t          row      = (size_t) V * sizeof(float);
    struct lrnn_session * s        = session_of(model, 2, N);
    float *               expected = malloc(4 * row); // of the long prompts, then of the short ones

    const struct lrnn_input both[2] = { { 0, good, N, 1 },
        { 1, good, N, 1 } }; // sequence, tokens, their number, logits of the last
    const struct lrnn_input half[2] = { { 0, bad, N, 1 }, { 1, good, N, 1 } };
    const struct lrnn_input less[2] = { { 0, good, 2, 1 }, { 1, good, 2, 1 } };
    check(lrnn_eval(s, less, 2, err, sizeof(err)), name, err);
    memcpy(expected + 2 * V, lrnn_logits(s, 0), 2 * row);
    check(lrnn_seq_reset(s, 0, err, sizeof(err)) && lrnn_seq_reset(s, 1, err, sizeof(err)), name,
            err);
    check(lrnn_eval(s, both, 2, err, sizeof(err)), name, err);
    memcpy(expected, lrnn_logits(s, 0), 2 * row);
    for (int how = 0; how < 2; ++how) { // rewound, then reset
        for (int i = 0; i < 2; ++i) {
            check(how == 0 ? lrnn_seq_rewind(s, i, lrnn_seq_length(s, i), err, sizeof(err))
                           : lrnn_seq_reset(s, i, err, sizeof(err)),
                    name, err);
        }
        check(lrnn_eval(s, half, 2, err, sizeof(err)), name, err);
        check(!isfinite(lrnn_logits(s, 0)[0]), name, "the logits of an overflow are not finite");
        check(memcmp(lrnn_logits(s, 1), expected + V, row) == 0, name,
                "the sequence beside it does not notice");
        for (int i = 0; i < 2; ++i) {
            check(how == 0 ? lrnn_seq_rewind(s, i, N, err, sizeof(err))
                           : lrnn_seq_reset(s, i, err, sizeof(err)),
                    name, err);
        }
        check(lrnn_eval(s, less, 2, err, sizeof(err)), name, err);
        check(memcmp(lrnn_logits(s, 0), expected + 2 * V, 2 * row) == 0, name,
                "nor does who comes after it");
    }
    // a fork over a sequence that was longer
    check(lrnn_seq_reset(s, 0, err, sizeof(err)) && eval(s, 0, bad, N, err), name, err);
    check(lrnn_seq_reset(s, 1, err, sizeof(err)) && eval(s, 1, good, 2, err) &&
                    lrnn_seq_fork(s, 1, 0, err, sizeof(err)),
            name, err);
    check(eval(s, 0, good + 2, 1, err) && isfinite(lrnn_logits(s, 0)[0]), name,
            "nor does a fork in its place");
    free(expected);
    lrnn_session_free(s);
    lrnn_model_free(model);
}

// Attention over more rows than one step of its cache, up to the last row there is: token by token,
// in uneven calls, and at once.
static void test_cache(const char * name) {
    enum { N = 150 }; // more than two steps of 64, and not a whole number of them
    static const int           cuts[]   = { 1, 40, 30, 1, 1, 60 };
    struct lrnn_model *        model    = load(name);
    const int64_t              V        = lrnn_model_get_info(model).n_vocab;
    struct lrnn_session_params p        = { .n_threads = 1, .n_seqs = 2, .n_cache = N };
    float *                    whole    = malloc((size_t) (N * V) * sizeof(float));
    double                     worst    = 0.0;
    char                       err[512] = "";
    int32_t                    tokens[N];
    for (int i = 0; i < N; ++i) {
        tokens[i] = (int32_t) ((i * i + 3 * i + 1) % V);
    }
    for (int how = 0; how < 3; ++how) {
        struct lrnn_session * s = lrnn_session_new(model, &p, err, sizeof(err));
        check(s != NULL, name, err);
        for (int at = 0, call = 0; at < N; ++call) {
            const int               want = how == 0   ? N
                                           : how == 1 ? 1
                                                      : cuts[(size_t) call % (sizeof(cuts) / sizeof(cuts[0]))];
            const int               n    = want < N - at ? want : N - at;
            const struct lrnn_input in   = {
                  .seq = 1, .tokens = tokens + at, .n_tokens = n, .n_logits = n
            };
            check(lrnn_eval(s, &in, 1, err, sizeof(err)), name, err);
            for (int64_t i = 0; i < n * V; ++i) {
                float * x = &whole[at * V + i];
                if (how == 0) {
                    *x = lrnn_logits(s, 0)[i];
                }
                const double d = fabs((double) *x - (double) lrnn_logits(s, 0)[i]);
                worst          = d > worst || isnan(d) ? d : worst;
            }
            at += n;
        }
        check(!eval(s, 1, tokens, 1, err), name, "a full cache takes no more");
        lrnn_session_free(s);
    }
    printf("%s: %d tokens in the cache, logits of different cuts differ by %.1e\n", name, N, worst);
    check(worst < 1e-4, name, "the logits do not depend on the cut");
    free(whole);
    lrnn_model_free(model);
}

// Two sessions of one model on two threads at once give what each gives alone, to the bit.
struct job {
    struct lrnn_model * model;
    int                 stride; // of the tokens
    float *             logits; // [AFTER][V]
};

static void * work(void * user) {
    struct job *          job = user;
    struct lrnn_session * s   = session_of(job->model, 1, 0);
    const int64_t         V   = lrnn_model_get_info(job->model).n_vocab;
    char                  err[512];
    for (int i = 0; i < AFTER; ++i) {
        const int32_t token = (int32_t) ((i * job->stride) % V);
        if (!eval(s, 0, &token, 1, err)) {
            break;
        }
        memcpy(job->logits + i * V, lrnn_logits(s, 0), (size_t) V * sizeof(float));
    }
    lrnn_session_free(s);
    return NULL;
}

static void test_threads(const char * name) {
    struct lrnn_model * model = load(name);
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
            name, "two sessions on two threads give what each gives alone");
    for (int i = 0; i < 4; ++i) {
        free(jobs[i].logits);
    }
    lrnn_model_free(model);
}

int main(void) {
    char path[64], err[512];
    if (!golden_list_load(&golden, err, sizeof(err))) {
        printf("FAILED: %s\n", err);
        return 1;
    }
    snprintf(path, sizeof(path), "test-session-%ld.state", (long) getpid());
    for (int i = 0; i < N_MODELS; ++i) {
        test_state_file(MODELS[i], path);
        test_threads(MODELS[i]);
    }
    test_damage(path);
    test_misuse();
    test_cache("transformer");
    test_cache("delta_net_hybrid"); // with a window
    test_cache("olmo_hybrid");
    for (size_t i = 0; i < sizeof(PRE_NORM) / sizeof(PRE_NORM[0]); ++i) {
        test_not_finite(PRE_NORM[i], path);
    }
    remove(path);
    golden_list_free(&golden);
    printf("test-session: %d models, %d checks, %d failed\n", (int) N_MODELS, n_checks, n_failed);
    return n_failed > 0;
}
