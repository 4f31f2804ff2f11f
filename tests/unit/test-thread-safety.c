// Two threads, each with a session of the same model, give the bits of each session alone: prompts,
// single tokens, two sequences per call, forks, rewinds, sampling. Sessions only read the model,
// and the library has no other shared data.

#include "kit/check.h"
#include "kit/golden.h"
#include "kit/rng.h"
#include "lrnn.h"

#include <pthread.h>

enum { N_JOBS = 2, N_ROUNDS = 3, N_STEPS = 10, N_PROMPT = 13 };

struct job {
    struct lrnn_model * model;
    pthread_barrier_t * start; // NULL: alone
    uint64_t            seed;
    int32_t             n_threads;
    float *             logits; // [N_ROUNDS][N_STEPS][2][V]
    struct lrnn_error   err;
    bool                done;
};

// Creates a session, runs it and frees it.
static bool run_round(struct job * job, struct test_rng * rng, float * out) {
    const int64_t                    V = lrnn_model_get_info(job->model).n_vocab;
    const struct lrnn_session_params params = {
        .n_threads = job->n_threads, .n_seqs = 2, .n_rewind = 2, .n_cache = 64
    };
    const struct lrnn_sampler_params sample = {
        .temperature = 1.0f, .repeat_penalty = 1.0f, .seed = job->seed
    };
    struct lrnn_session * s = lrnn_session_new(job->model, &params, &job->err);
    struct lrnn_sampler * r = lrnn_sampler_new(&sample, &job->err);
    int32_t               prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; ++i) {
        prompt[i] = (int32_t) test_below(rng, V);
    }
    const struct lrnn_input first = {
        .seq = 0, .tokens = prompt, .n_tokens = N_PROMPT, .n_logits = 1
    };
    bool ok = s != NULL && r != NULL && lrnn_eval(s, &first, 1, &job->err) &&
              lrnn_seq_fork(s, 0, 1, &job->err);

    int32_t token = ok ? lrnn_sampler_sample(r, lrnn_logits(s, 0), V, NULL, &job->err) : -1;
    for (int i = 0; ok && i < N_STEPS; ++i) {
        const int32_t           other = (int32_t) test_below(rng, V);
        const struct lrnn_input both[] = {
            { .seq = 0, .tokens = &token, .n_tokens = 1, .n_logits = 1 },
            { .seq = 1, .tokens = prompt, .n_tokens = 1 + i % 3, .n_logits = 1 },
        };
        ok = token >= 0 && lrnn_eval(s, both, 2, &job->err);
        for (int k = 0; ok && k < 2; ++k) {
            memcpy(out + (2 * i + k) * V, lrnn_logits(s, k), (size_t) V * sizeof(float));
        }
        token = ok ? lrnn_sampler_sample(r, lrnn_logits(s, 0), V, NULL, &job->err) : -1;
        const struct lrnn_input wrong = { .seq = 1, .tokens = &other, .n_tokens = 1 };
        ok = ok && lrnn_eval(s, &wrong, 1, &job->err) && lrnn_seq_rewind(s, 1, 1, &job->err);
    }
    lrnn_sampler_free(r);
    lrnn_session_free(s);
    return ok;
}

static void * work(void * user) {
    struct job *    job = user;
    struct test_rng rng = { job->seed };
    const int64_t   n = N_STEPS * 2 * lrnn_model_get_info(job->model).n_vocab;
    if (job->start != NULL) {
        pthread_barrier_wait(job->start);
    }
    job->done = true;
    for (int i = 0; job->done && i < N_ROUNDS; ++i) {
        job->done = run_round(job, &rng, job->logits + i * n);
    }
    return NULL;
}

static void test_model(struct test * t, const struct golden * g, int32_t n_threads) {
    struct lrnn_model * model = test_load_model(g->path, NULL);
    const size_t        n = (size_t) (N_ROUNDS * N_STEPS * 2 * lrnn_model_get_info(model).n_vocab);
    pthread_barrier_t   start;
    pthread_t           threads[N_JOBS];
    struct job          together[N_JOBS], alone[N_JOBS];
    pthread_barrier_init(&start, NULL, N_JOBS);
    for (int i = 0; i < N_JOBS; ++i) {
        together[i] = (struct job) { .model = model,
            .start = &start,
            .seed = (uint64_t) (7 + i),
            .n_threads = n_threads,
            .logits = calloc(n, sizeof(float)) };
        alone[i] = (struct job) { .model = model,
            .seed = (uint64_t) (7 + i),
            .n_threads = n_threads,
            .logits = calloc(n, sizeof(float)) };
        pthread_create(&threads[i], NULL, work, &together[i]);
    }
    for (int i = 0; i < N_JOBS; ++i) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < N_JOBS; ++i) {
        work(&alone[i]);
        test_check(t, together[i].done, "%s: %s", g->name, together[i].err.text);
        test_check(t, alone[i].done, "%s: %s", g->name, alone[i].err.text);
        test_check(t, memcmp(together[i].logits, alone[i].logits, n * sizeof(float)) == 0,
                "%s, %d threads per session: a concurrent session changes the logits", g->name,
                n_threads);
    }
    test_check(t, memcmp(alone[0].logits, alone[1].logits, n * sizeof(float)) != 0,
            "%s: both threads computed the same logits", g->name);
    for (int i = 0; i < N_JOBS; ++i) {
        free(together[i].logits);
        free(alone[i].logits);
    }
    pthread_barrier_destroy(&start);
    lrnn_model_free(model);
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list list;
    golden_list_load(&list);
    for (int i = 0; i < list.n; ++i) {
        test_model(&t, &list.models[i], 1 + i % 2);
    }
    printf("%d models, two concurrent sessions each\n", list.n);
    golden_list_free(&list);
    return test_end(&t, "test-thread-safety");
}
