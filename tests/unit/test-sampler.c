// The sampler does what its parameters say: argmax, frequencies, truncation, penalties, seeds.

#include "kit/check.h"
#include "lrnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct test t;

enum { V = 6 };

// from the most likely token to the least: 1, 5, 2, 0, 4, 3
static const float LOGITS[V] = { 1.0f, 3.0f, 2.0f, -1.0f, 0.5f, 2.5f };

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

// Counts how often each token is sampled in n draws.
static void draw(struct lrnn_sampler_params p, int n, int counts[V]) {
    struct lrnn_sampler * s = make(p);
    memset(counts, 0, V * sizeof(int));
    for (int i = 0; i < n; ++i) {
        const int32_t token = lrnn_sampler_sample(s, LOGITS, V, NULL, NULL, 0);
        if (token >= 0 && token < V) {
            counts[token]++;
        }
    }
    lrnn_sampler_free(s);
}

static void test_greedy(void) {
    struct lrnn_sampler_params p = plain(0);
    p.temperature                = 0.0f;
    struct lrnn_sampler * s      = make(p);
    float                 lp;
    test_check(&t, lrnn_sampler_sample(s, LOGITS, V, &lp, NULL, 0) == 1,
            "temperature 0 does not choose the most likely token");
    double sum = 0.0;
    for (int i = 0; i < V; ++i) {
        sum += exp((double) LOGITS[i]);
    }
    test_check(&t, fabs((double) lp - (3.0 - log(sum))) < 1e-6,
            "log-probability %g; expected that of the softmax, %g", (double) lp, 3.0 - log(sum));
    const float tie[3] = { 0.0f, 1.0f, 1.0f };
    test_check(&t, lrnn_sampler_sample(s, tie, 3, NULL, NULL, 0) == 1,
            "a tie does not choose the lower id");
    lrnn_sampler_free(s);
}

// Chi-squared of the frequencies against softmax(logits / temperature), 5 degrees of freedom. It
// exceeds 25.7 once in 10,000.
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
        test_check(&t, chi < 25.7, "temperature %.1f: the frequencies are not those of the softmax",
                (double) p.temperature);
    }
}

static void test_truncation(void) {
    int                        counts[V];
    struct lrnn_sampler_params p = plain(3);
    p.top_k                      = 3;
    draw(p, 5000, counts);
    test_check(&t,
            counts[1] > 0 && counts[5] > 0 && counts[2] > 0 &&
                    counts[0] + counts[3] + counts[4] == 0,
            "top_k 3 does not keep the 3 most likely tokens");

    // probabilities 0.415 0.252 0.153 …: two tokens reach 0.6
    p       = plain(4);
    p.top_p = 0.6f;
    draw(p, 5000, counts);
    test_check(&t,
            counts[1] > 0 && counts[5] > 0 && counts[0] + counts[2] + counts[3] + counts[4] == 0,
            "top_p 0.6 does not keep the 2 most likely tokens");

    // exp(−0.5) = 0.607, exp(−1) = 0.368
    p       = plain(5);
    p.min_p = 0.5f;
    draw(p, 5000, counts);
    test_check(&t,
            counts[1] > 0 && counts[5] > 0 && counts[0] + counts[2] + counts[3] + counts[4] == 0,
            "min_p 0.5 does not keep the 2 most likely tokens");
}

static void test_penalty(void) {
    struct lrnn_sampler_params p = plain(0);
    p.temperature                = 0.0f;
    p.repeat_penalty             = 2.0f;
    p.repeat_last                = 2;
    struct lrnn_sampler * s      = make(p);
    // 1 drops from 3.0 to 1.5, so 5 (2.5) follows, then 2 (2.0); then 1 is no longer recent
    const int32_t expected[] = { 1, 5, 2, 1 };
    for (int i = 0; i < 4; ++i) {
        test_check(&t, lrnn_sampler_sample(s, LOGITS, V, NULL, NULL, 0) == expected[i],
                "token %d is not %d: a penalty lasts for repeat_last tokens", i, expected[i]);
    }
    lrnn_sampler_free(s);
    s = make(p);
    lrnn_sampler_accept(s, 1);
    test_check(&t, lrnn_sampler_sample(s, LOGITS, V, NULL, NULL, 0) == 5,
            "an accepted token is not penalized");
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
    test_check(&t, memcmp(a, b, sizeof(a)) == 0, "equal seeds give different tokens");
    test_check(&t, memcmp(a, c, sizeof(a)) != 0, "different seeds give equal tokens");
    for (int i = 0; i < 3; ++i) {
        lrnn_sampler_free(s[i]);
    }
}

static void test_invalid(void) {
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
        test_check(&t, s == NULL && err[0] != '\0',
                "invalid parameters %d: accepted, or rejected without a message", i);
        lrnn_sampler_free(s);
    }
    struct lrnn_sampler * s             = make(plain(0));
    const float           nan_logits[3] = { 0.0f, NAN, 1.0f };
    const float           no_logits[2]  = { -INFINITY, -INFINITY };
    const float           one_logit[2]  = { -INFINITY, 0.0f };
    char                  err[256]      = "";
    test_check(&t,
            lrnn_sampler_sample(s, nan_logits, 3, NULL, err, sizeof(err)) == LRNN_SAMPLE_NOT_FINITE,
            "a token is sampled from NaN");
    test_check(&t, strstr(err, "NaN") != NULL, "the message does not name NaN: %s", err);
    test_check(&t,
            lrnn_sampler_sample(s, no_logits, 2, NULL, err, sizeof(err)) == LRNN_SAMPLE_NOT_FINITE,
            "a token is sampled without a finite logit");
    test_check(&t, strstr(err, "no logit is finite") != NULL, "unexpected message: %s", err);
    test_check(&t, lrnn_sampler_sample(s, one_logit, 2, NULL, NULL, 0) == 1,
            "a token with logit -infinity is sampled");
    lrnn_sampler_free(s);
}

int main(void) {
    test_greedy();
    test_frequencies();
    test_truncation();
    test_penalty();
    test_seeds();
    test_invalid();
    return test_end(&t, "test-sampler");
}
