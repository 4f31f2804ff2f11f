#include "model-bench.h"

#include "lrnn.h"
#include "base/random.h"
#include "program.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

//
// Selection: for each thread count and depth, all prompts, then all generations
//

// Test i; false if there are fewer.
static bool test_at(const struct model_bench_params * p, int i, struct model_test * test) {
    for (int t = 0; t < p->threads.n * p->depths.n; ++t) {
        test->threads = (int) p->threads.v[t / p->depths.n];
        test->depth = p->depths.v[t % p->depths.n];
        test->is_generation = false;
        test->n_seqs = 1;
        for (int j = 0; j < p->n_prompt.n; ++j) {
            test->n_tokens = p->n_prompt.v[j];
            if (test->n_tokens > 0 && i-- == 0) {
                return true;
            }
        }
        test->is_generation = true;
        for (int j = 0; j < p->n_gen.n * p->seqs.n; ++j) {
            test->n_tokens = p->n_gen.v[j / p->seqs.n];
            test->n_seqs = (int32_t) p->seqs.v[j % p->seqs.n];
            if (test->n_tokens > 0 && i-- == 0) {
                return true;
            }
        }
    }
    return false;
}

int model_bench_count(const struct model_bench_params * p) {
    struct model_test test;
    int               n = 0;

    while (test_at(p, n, &test)) {
        n++;
    }
    return n;
}

void model_test_name(const struct model_test * test, char * name, size_t name_size) {
    char seqs[16] = "", depth[32] = "";

    if (test->n_seqs > 1) {
        snprintf(seqs, sizeof(seqs), " x%d", test->n_seqs);
    }
    if (test->depth > 0) {
        snprintf(depth, sizeof(depth), " @ d%" PRId64, test->depth);
    }
    snprintf(name, name_size, "%s%" PRId64 "%s%s", test->is_generation ? "tg" : "pp",
            test->n_tokens, seqs, depth);
}

//
// Measurement
//

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double) t.tv_sec + (double) t.tv_nsec;
}

// Random ids, the same in every run. The embedding row of a single id would stay in the cache.
static void fill_random(int32_t * ids, int64_t n, int64_t n_vocab) {
    uint64_t seed = 1;
    for (int64_t i = 0; i < n; ++i) {
        ids[i] = (int32_t) random_below(&seed, (uint64_t) n_vocab);
    }
}

// Feeds ids `first` to `first + n` of every sequence, `step` per call.
// - ids: [n_seqs, depth + n_tokens]
// - inputs: [n_seqs]
static bool advance(struct lrnn_session * session, const struct model_test * test,
        const int32_t * ids, int64_t first, int64_t n, int64_t step, struct lrnn_input * inputs,
        struct lrnn_error * err) {
    for (int64_t i = first; i < first + n; i += step) {
        for (int32_t s = 0; s < test->n_seqs; ++s) {
            inputs[s] = (struct lrnn_input) {
                .seq = s,
                .tokens = ids + s * (test->depth + test->n_tokens) + i,
                .n_tokens = step,
                .n_logits = 1,
            };
        }
        if (!lrnn_eval(session, inputs, test->n_seqs, err)) {
            return false;
        }
    }
    return true;
}

// Moves every sequence to the depth of the test.
static bool start_over(struct lrnn_session * session, const struct model_test * test,
        const int32_t * ids, struct lrnn_input * inputs, struct lrnn_error * err) {
    bool ok = true;
    for (int32_t s = 0; s < test->n_seqs; ++s) {
        ok = ok && lrnn_seq_reset(session, s, err);
    }
    return ok && advance(session, test, ids, 0, test->depth, test->depth, inputs, err);
}

static void mean_and_stddev(const double * x, int64_t n, double * mean, double * stddev) {
    double sum = 0.0, squares = 0.0;

    for (int64_t i = 0; i < n; ++i) {
        sum += x[i];
    }
    *mean = sum / (double) n;
    for (int64_t i = 0; i < n; ++i) {
        squares += (x[i] - *mean) * (x[i] - *mean);
    }
    *stddev = n > 1 ? sqrt(squares / (double) (n - 1)) : 0.0;
}

// - ids: [n_seqs, depth + n_tokens] of the test
// - inputs: [n_seqs]
// - samples: [2][repetitions], times and speeds
static bool run_test(struct lrnn_session * session, const struct model_test * test,
        const int32_t * ids, struct lrnn_input * inputs, int64_t n_batch, int64_t repetitions,
        double * samples, struct model_result * result, struct lrnn_error * err) {
    double *      ns = samples;
    double *      ts = samples + repetitions;
    const int64_t n = test->n_tokens;
    const int64_t step = test->is_generation ? 1 : n;

    // warm-up: load the weights into memory and build the graph; a batch is enough
    const int64_t first = step < n_batch ? step : n_batch;
    if (!advance(session, test, ids, 0, first, first, inputs, err)) {
        return false;
    }
    clock_t running = 0; // of all threads, including those that wait for others
    for (int64_t r = 0; r < repetitions; ++r) {
        if (!start_over(session, test, ids, inputs, err)) {
            return false;
        }
        const clock_t running_before = clock();
        const double  start = now_ns();
        if (!advance(session, test, ids, test->depth, n, step, inputs, err)) {
            return false;
        }
        ns[r] = now_ns() - start;
        running += clock() - running_before;
        ts[r] = 1e9 * (double) (n * test->n_seqs) / ns[r];
    }
    result->n_samples = repetitions;
    result->samples_ns = ns;
    result->samples_ts = ts;
    mean_and_stddev(ns, repetitions, &result->mean_ns, &result->stddev_ns);
    mean_and_stddev(ts, repetitions, &result->mean_ts, &result->stddev_ts);
    result->busy = 1e9 * (double) running / CLOCKS_PER_SEC /
                   (result->mean_ns * (double) repetitions * test->threads);
    return true;
}

bool model_bench_run(struct lrnn_model * model, const struct model_bench_params * params,
        model_bench_progress progress, model_result_callback result, void * user,
        struct lrnn_error * err) {
    const int64_t     n_vocab = lrnn_model_get_info(model).n_vocab;
    struct model_test test;
    bool              ok = true;

    for (int i = 0; ok && test_at(params, i, &test); ++i) {
        const int64_t n_ids = (test.depth + test.n_tokens) * test.n_seqs;
        int32_t *     ids = program_alloc((size_t) n_ids, sizeof(*ids));

        struct lrnn_input * inputs = program_alloc((size_t) test.n_seqs, sizeof(*inputs));
        double * samples = program_alloc((size_t) params->repetitions * 2, sizeof(*samples));
        progress(&test, user);
        fill_random(ids, n_ids, n_vocab);

        struct model_result        r = { .test = test, .n_batch = params->n_batch };
        struct lrnn_session_params session_params = params->session;
        session_params.n_threads = test.threads;
        session_params.n_seqs = test.n_seqs;
        session_params.n_batch = (int32_t) params->n_batch;
        session_params.n_cache = (int32_t) (test.depth + test.n_tokens);
        struct lrnn_session * session = lrnn_session_new(model, &session_params, err);

        ok = session != NULL && run_test(session, &test, ids, inputs, params->n_batch,
                                        params->repetitions, samples, &r, err);
        if (ok) {
            result(&r, user);
        }
        lrnn_session_free(session);
        free(ids);
        free(inputs);
        free(samples);
    }
    return ok;
}
