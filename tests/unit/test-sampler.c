// The sampler against what its parameters promise: argmax, exact frequencies, what is cut off,
// reproducible numbers.

#include "lrnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_checks, n_failed;

static void check(bool ok, const char * what) {
    n_checks++;
    if (!ok) {
        n_failed++;
        printf("FAILED: %s\n", what);
    }
}

enum { V = 6 };

static const float LOGITS[V] = { 1.0f, 3.0f, 2.0f, -1.0f, 0.5f,
    2.5f }; // by likelihood: 1, 5, 2, 0, 4, 3

static struct lrnn_sampler * make(struct lrnn_sampler_params p) {
    char                  err[256];
    struct lrnn_sampler * s = lrnn_sampler_new(&p, err, sizeof(err));
    if (s == NULL) {
        printf("FAILED: %s\n", err);
        exit(1);
    }
    return s;
}

static struct lrnn_sampler_params plain(uint64_t seed) {
    return (struct lrnn_sampler_params) {
        .temperature = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f, .repeat_last = 64, .seed = seed
    };
}

// How often each token is drawn in n draws with these parameters.
static void draw(struct lrnn_sampler_params p, int n, int counts[V]) {
    struct lrnn_sampler * s = make(p);
    memset(counts, 0, V * sizeof(int));
    for (int i = 0; i < n; ++i) {
        const int32_t t = lrnn_sampler_sample(s, LOGITS, V, NULL, NULL, 0);
        if (t >= 0 && t < V) {
            counts[t]++;
        }
    }
    lrnn_sampler_free(s);
}

static void test_greedy(void) {
    struct lrnn_sampler_params p = plain(0);
    p.temperature                = 0.0f;
    struct lrnn_sampler * s      = make(p);
    float                 lp;
    check(lrnn_sampler_sample(s, LOGITS, V, &lp, NULL, 0) == 1,
            "temperature 0 takes the most likely token");
    double sum = 0.0;
    for (int i = 0; i < V; ++i) {
        sum += exp((double) LOGITS[i]);
    }
    check(fabs((double) lp - (3.0 - log(sum))) < 1e-6,
            "its log-probability is that of the softmax");
    const float tie[3] = { 0.0f, 1.0f, 1.0f };
    check(lrnn_sampler_sample(s, tie, 3, NULL, NULL, 0) == 1, "of two alike the lower id is taken");
    lrnn_sampler_free(s);
}

// Chi-squared of the frequencies against softmax(logits / temperature); 5 degrees of freedom, 25.7
// is exceeded once in 10,000.
static void test_frequencies(void) {
    const float temperatures[] = { 0.5f, 1.0f, 2.0f };
    for (int k = 0; k < 3; ++k) {
        struct lrnn_sampler_params p = plain(11 + (uint64_t) k);
        p.temperature                = temperatures[k];
        enum { N = 60000 };
        int    counts[V];
        double sum = 0.0, chi = 0.0;
        draw(p, N, counts);
        for (int i = 0; i < V; ++i) {
            sum += exp((double) (LOGITS[i] / p.temperature));
        }
        for (int i = 0; i < V; ++i) {
            const double expected = N * exp((double) (LOGITS[i] / p.temperature)) / sum;
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        printf("temperature %.1f: chi-squared %.1f of 5 degrees of freedom\n",
                (double) p.temperature, chi);
        check(chi < 25.7, "frequencies are those of softmax(logits / temperature)");
    }
}

static void test_truncation(void) {
    int                        counts[V];
    struct lrnn_sampler_params p = plain(3);
    p.top_k                      = 3;
    draw(p, 5000, counts);
    check(counts[1] > 0 && counts[5] > 0 && counts[2] > 0 && counts[0] + counts[3] + counts[4] == 0,
            "top_k keeps the k most likely");

    // probabilities 0.415 0.252 0.153 …: 0.6 is reached with the second
    p       = plain(4);
    p.top_p = 0.6f;
    draw(p, 5000, counts);
    check(counts[1] > 0 && counts[5] > 0 && counts[0] + counts[2] + counts[3] + counts[4] == 0,
            "top_p keeps the fewest that reach it");

    // exp(−0.5) = 0.607, exp(−1) = 0.368
    p       = plain(5);
    p.min_p = 0.5f;
    draw(p, 5000, counts);
    check(counts[1] > 0 && counts[5] > 0 && counts[0] + counts[2] + counts[3] + counts[4] == 0,
            "min_p drops what is less likely than its share");
}

static void test_penalty(void) {
    struct lrnn_sampler_params p = plain(0);
    p.temperature                = 0.0f;
    p.repeat_penalty             = 2.0f;
    p.repeat_last                = 2;
    struct lrnn_sampler * s      = make(p);
    // 3.0 → 1.5 after the first, so 5 (2.5) follows, then 2 (2.0); then 1 is out of the last two
    // again
    const int32_t expected[] = { 1, 5, 2, 1 };
    for (int i = 0; i < 4; ++i) {
        check(lrnn_sampler_sample(s, LOGITS, V, NULL, NULL, 0) == expected[i],
                "a penalty lasts as long as repeat_last");
    }
    lrnn_sampler_free(s);
    s = make(p);
    lrnn_sampler_accept(s, 1);
    check(lrnn_sampler_sample(s, LOGITS, V, NULL, NULL, 0) == 5,
            "accepted tokens are penalised too");
    lrnn_sampler_free(s);
}

static void test_seeds(void) {
    int32_t               a[64], b[64], c[64];
    struct lrnn_sampler * s[3] = { make(plain(42)), make(plain(42)), make(plain(43)) };
    for (int i = 0; i < 64; ++i) {
        a[i] = lrnn_sampler_sample(s[0], LOGITS, V, NULL, NULL, 0);
        b[i] = lrnn_sampler_sample(s[1], LOGITS, V, NULL, NULL, 0);
        c[i] = lrnn_sampler_sample(s[2], LOGITS, V, NULL, NULL, 0);
    }
    check(memcmp(a, b, sizeof(a)) == 0, "a seed gives the same tokens again");
    check(memcmp(a, c, sizeof(a)) != 0, "another seed gives others");
    for (int i = 0; i < 3; ++i) {
        lrnn_sampler_free(s[i]);
    }
}

static void test_refusals(void) {
    struct lrnn_sampler_params bad[8];
    for (int i = 0; i < 8; ++i) {
        bad[i] = plain(0);
    }
    bad[0].temperature    = -1.0f;
    bad[1].temperature    = NAN;
    bad[2].top_p          = 1.5f;
    bad[3].min_p          = -0.1f;
    bad[4].top_k          = -1;
    bad[5].repeat_penalty = -1.0f;
    bad[6].repeat_last    = -1;
    bad[7].repeat_last    = 1 << 20;
    for (int i = 0; i < 8; ++i) {
        char                  err[256] = "";
        struct lrnn_sampler * s        = lrnn_sampler_new(&bad[i], err, sizeof(err));
        check(s == NULL && err[0] != '\0',
                "parameters that make no sense are refused with a sentence");
        lrnn_sampler_free(s);
    }
    struct lrnn_sampler * s             = make(plain(0));
    const float           nan_logits[3] = { 0.0f, NAN, 1.0f };
    const float           no_logits[2]  = { -INFINITY, -INFINITY };
    const float           one_logit[2]  = { -INFINITY, 0.0f };
    char                  err[256]      = "";
    check(lrnn_sampler_sample(s, nan_logits, 3, NULL, err, sizeof(err)) == LRNN_SAMPLE_NOT_FINITE,
            "NaN logits give no token");
    check(strstr(err, "NaN") != NULL, "and a sentence that says so");
    check(lrnn_sampler_sample(s, no_logits, 2, NULL, err, sizeof(err)) == LRNN_SAMPLE_NOT_FINITE,
            "no finite logit gives no token");
    check(strstr(err, "no logit is finite") != NULL, "and a sentence that says so");
    check(lrnn_sampler_sample(s, one_logit, 2, NULL, NULL, 0) == 1,
            "a logit of minus infinity is never drawn");
    lrnn_sampler_free(s);
}

int main(void) {
    test_greedy();
    test_frequencies();
    test_truncation();
    test_penalty();
    test_seeds();
    test_refusals();
    printf("test-sampler: %d checks, %d failed\n", n_checks, n_failed);
    return n_failed > 0;
}
