// The sampler does what its parameters say: argmax, frequencies, truncation, penalties, seeds.

#include "kit/check.h"
#include "kit/rng.h"
#include "lrnn.h"

static struct test t;

enum { V = 6 };

// from the most likely token to the least: 1, 5, 2, 0, 4, 3
static const float LOGITS[V] = { 1.0f, 3.0f, 2.0f, -1.0f, 0.5f, 2.5f };

static struct lrnn_sampler * make(struct lrnn_sampler_params p) {
    struct lrnn_error     err;
    struct lrnn_sampler * s = lrnn_sampler_new(&p, &err);
    if (s == NULL) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    return s;
}

static struct lrnn_sampler_params plain(uint64_t seed) {
    return (struct lrnn_sampler_params) {
        .temperature = 1.0f, .repeat_penalty = 1.0f, .repeat_last = 64, .seed = seed
    };
}

// Counts how often each token is sampled in n draws.
static void draw(struct lrnn_sampler_params p, int n, int counts[V]) {
    struct lrnn_sampler * s = make(p);
    memset(counts, 0, V * sizeof(int));
    for (int i = 0; i < n; ++i) {
        const int32_t token = lrnn_sampler_sample(s, LOGITS, V, NULL, NULL);
        if (token >= 0 && token < V) {
            counts[token]++;
        }
    }
    lrnn_sampler_free(s);
}

static void test_greedy(void) {
    struct lrnn_sampler_params p = plain(0);
    p.temperature = 0.0f;
    struct lrnn_sampler * s = make(p);
    float                 lp;
    test_check(&t, lrnn_sampler_sample(s, LOGITS, V, &lp, NULL) == 1,
            "temperature 0 does not choose the most likely token");
    double sum = 0.0;
    for (int i = 0; i < V; ++i) {
        sum += exp((double) LOGITS[i]);
    }
    test_check(&t, fabs((double) lp - (3.0 - log(sum))) < 1e-6,
            "log-probability %g; expected that of the softmax, %g", (double) lp, 3.0 - log(sum));
    const float tie[3] = { 0.0f, 1.0f, 1.0f };
    test_check(&t, lrnn_sampler_sample(s, tie, 3, NULL, NULL) == 1,
            "a tie does not choose the lower id");
    lrnn_sampler_free(s);
}

// Chi-squared of the frequencies against softmax(logits / temperature), 5 degrees of freedom. It
// exceeds 25.7 once in 10,000.
static void test_frequencies(void) {
    enum { DRAWS = 60000 };
    const float temperatures[] = { 0.5f, 1.0f, 2.0f };
    for (int k = 0; k < 3; ++k) {
        struct lrnn_sampler_params p = plain(11 + (uint64_t) k);
        p.temperature = temperatures[k];
        int    counts[V];
        double sum = 0.0, chi = 0.0;
        draw(p, DRAWS, counts);
        for (int i = 0; i < V; ++i) {
            sum += exp((double) (LOGITS[i] / p.temperature));
        }
        for (int i = 0; i < V; ++i) {
            const double expected = DRAWS * exp((double) (LOGITS[i] / p.temperature)) / sum;
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
    p.top_k = 3;
    draw(p, 5000, counts);
    test_check(&t,
            counts[1] > 0 && counts[5] > 0 && counts[2] > 0 &&
                    counts[0] + counts[3] + counts[4] == 0,
            "top_k 3 does not keep the 3 most likely tokens");

    // probabilities 0.415 0.252 0.153 …: two tokens reach 0.6
    p = plain(4);
    p.drop_p = 0.4f;
    draw(p, 5000, counts);
    test_check(&t,
            counts[1] > 0 && counts[5] > 0 && counts[0] + counts[2] + counts[3] + counts[4] == 0,
            "drop_p 0.4 does not keep the 2 most likely tokens");

    // exp(−0.5) = 0.607, exp(−1) = 0.368
    p = plain(5);
    p.min_p = 0.5f;
    draw(p, 5000, counts);
    test_check(&t,
            counts[1] > 0 && counts[5] > 0 && counts[0] + counts[2] + counts[3] + counts[4] == 0,
            "min_p 0.5 does not keep the 2 most likely tokens");
}

static void test_penalty(void) {
    struct lrnn_sampler_params p = plain(0);
    p.temperature = 0.0f;
    p.repeat_penalty = 2.0f;
    p.repeat_last = 2;
    struct lrnn_sampler * s = make(p);
    // 1 drops from 3.0 to 1.5, so 5 (2.5) follows, then 2 (2.0); then 1 is no longer recent
    const int32_t expected[] = { 1, 5, 2, 1 };
    for (int i = 0; i < 4; ++i) {
        test_check(&t, lrnn_sampler_sample(s, LOGITS, V, NULL, NULL) == expected[i],
                "token %d is not %d: a penalty lasts for repeat_last tokens", i, expected[i]);
    }
    lrnn_sampler_free(s);
    s = make(p);
    lrnn_sampler_accept(s, 1);
    test_check(&t, lrnn_sampler_sample(s, LOGITS, V, NULL, NULL) == 5,
            "an accepted token is not penalized");
    lrnn_sampler_free(s);
}

// A recent token has its logit lowered once, in either half of the number line.
static void test_penalty_values(void) {
    const struct {
        const char * what;
        float        logits[2];
        int          n_recent; // times that token 0 was accepted
        int32_t      expected;
    } cases[] = {
        { "a positive logit is divided: 3 / 2 < 2", { 3.0f, 2.0f }, 1, 1 },
        { "a positive logit is divided by no more: 3 / 2 > 1.25", { 3.0f, 1.25f }, 1, 0 },
        { "a negative logit is multiplied: -1 * 2 < -1.5", { -1.0f, -1.5f }, 1, 1 },
        { "a negative logit is multiplied by no more: -1 * 2 > -2.5", { -1.0f, -2.5f }, 1, 0 },
        { "a token is penalized once: 8 / 2 > 3", { 8.0f, 3.0f }, 2, 0 },
        { "a token is penalized once: -1 * 2 > -3", { -1.0f, -3.0f }, 3, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct lrnn_sampler_params p = plain(0);
        p.temperature = 0.0f;
        p.repeat_penalty = 2.0f;
        struct lrnn_sampler * s = make(p);
        for (int k = 0; k < cases[i].n_recent; ++k) {
            lrnn_sampler_accept(s, 0);
        }
        test_check(&t, lrnn_sampler_sample(s, cases[i].logits, 2, NULL, NULL) == cases[i].expected,
                "not true: %s", cases[i].what);
        lrnn_sampler_free(s);
    }
}

// Four equal logits have probabilities of exactly 1/4, so that drop_p can be reached exactly, and
// min_p as well.
static void test_boundaries(void) {
    static const float logits[4] = { 0.0f };
    for (int keep = 1; keep <= 4; ++keep) {
        struct lrnn_sampler_params p = plain(9);
        p.drop_p = 1.0f - 0.25f * (float) keep;
        p.min_p = 1.0f;
        struct lrnn_sampler * s = make(p);
        bool                  seen[4] = { false };
        for (int i = 0; i < 1000; ++i) {
            const int32_t token = lrnn_sampler_sample(s, logits, 4, NULL, NULL);
            seen[token >= 0 && token < 4 ? token : 0] = true;
        }
        for (int i = 0; i < 4; ++i) {
            test_check(&t, seen[i] == (i < keep), "drop_p %g of four equal tokens: token %d is %s",
                    (double) p.drop_p, i, seen[i] ? "sampled" : "never sampled");
        }
        lrnn_sampler_free(s);
    }
}

//
// Random parameters, against the definitions
//

enum { N = 12 }; // tokens of the vocabulary

// xoroshiro128+, seeded by splitmix64, as published
struct generator {
    uint64_t a, b;
};

static uint64_t splitmix(uint64_t * x) {
    uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double generator_next(struct generator * g) {
    const uint64_t sum = g->a + g->b, x = g->a ^ g->b;
    g->a = (g->a << 24 | g->a >> 40) ^ x ^ x << 16;
    g->b = x << 37 | x >> 27;
    return ldexp((double) (sum >> 11), -53);
}

// The token that the parameters define for the random number u in [0, 1), or -1 if u is too close
// to the boundary between two tokens.
static int32_t define_token(const struct lrnn_sampler_params * p, const float * logits,
        const int32_t * history, int n_history, double u) {
    double  logit[N], sum = 0.0, before = 0.0, total = 0.0;
    int     order[N], n = N;
    bool    recent[N] = { false };
    int32_t token = -1;
    for (int i = n_history - p->repeat_last; i < n_history; ++i) {
        if (i >= 0) {
            recent[history[i]] = true;
        }
    }
    for (int i = 0; i < N; ++i) {
        const double penalty = recent[i] ? (double) p->repeat_penalty : 1.0;
        logit[i] = logits[i] > 0.0f ? (double) logits[i] / penalty : (double) logits[i] * penalty;
        int at = i;
        for (; at > 0 && logit[order[at - 1]] < logit[i]; --at) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    if (p->temperature == 0.0f) {
        return order[0];
    }
    n = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    for (int i = 0; i < n; ++i) {
        sum += exp(logit[order[i]]);
    }
    int keep = 0; // a token stays if those before it do not reach 1 - drop_p
    for (int i = 0; i < n && before < (double) (float) (1.0 - (double) p->drop_p) * sum; ++i) {
        before += exp(logit[order[i]]);
        keep += exp(logit[order[i]] - logit[order[0]]) >= (double) p->min_p;
    }
    for (int i = 0; i < keep; ++i) {
        total += exp(logit[order[i]] / (double) p->temperature);
    }
    double edge = 0.0;
    for (int i = 0; i < keep && edge < u * total; ++i) {
        token = order[i];
        edge += exp(logit[order[i]] / (double) p->temperature);
        if (fabs(edge - u * total) < 1e-5 * total) {
            return -1;
        }
    }
    return token;
}

static void test_definition(void) {
    struct test_rng rng = { 1 };
    int             n_edge = 0;
    for (int i = 0; i < 400; ++i) {
        struct lrnn_sampler_params p = {
            .temperature = test_below(&rng, 8) == 0 ? 0.0f : (float) test_uniform(&rng, 0.3, 2),
            .top_k = (int32_t) test_below(&rng, N + 2),
            .drop_p = (float) test_uniform(&rng, 0.0, 0.7),
            .min_p = (float) test_uniform(&rng, 0.0, 0.3),
            .repeat_penalty = (float) test_uniform(&rng, 0.7, 2.0),
            .repeat_last = (int32_t) (1 + test_below(&rng, 6)),
            .seed = test_next(&rng),
        };
        uint64_t              seed = p.seed;
        struct generator      g = { splitmix(&seed), splitmix(&seed) };
        struct lrnn_sampler * s = make(p);
        int32_t               history[48];
        for (int k = 0; k < 48; ++k) {
            float logits[N];
            for (int j = 0; j < N; ++j) {
                logits[j] = (float) test_normal(&rng);
            }
            // the generator is used only if there is something to choose
            const double  u = p.temperature == 0.0f ? 0.0 : generator_next(&g);
            const int32_t expected = define_token(&p, logits, history, k, u);
            float         log_prob = NAN;
            const int32_t token = lrnn_sampler_sample(s, logits, N, &log_prob, NULL);
            n_edge += expected < 0;
            if (!test_check(&t, expected < 0 || token == expected,
                        "parameters %d, token %d: %d, by definition %d", i, k, token, expected) ||
                    token < 0 || token >= N) {
                break;
            }
            double sum = 0.0; // the softmax before any of the parameters
            for (int j = 0; j < N; ++j) {
                sum += exp((double) logits[j]);
            }
            test_check(&t, fabs((double) log_prob - ((double) logits[token] - log(sum))) < 1e-5,
                    "parameters %d, token %d: log-probability %g", i, k, (double) log_prob);
            history[k] = token;
        }
        lrnn_sampler_free(s);
    }
    test_check(&t, n_edge < 100, "%d of 19200 numbers are close to a boundary", n_edge);
}

static void test_seeds(void) {
    int32_t               a[64], b[64], c[64];
    struct lrnn_sampler * s[3] = { make(plain(42)), make(plain(42)), make(plain(43)) };
    for (int i = 0; i < 64; ++i) {
        a[i] = lrnn_sampler_sample(s[0], LOGITS, V, NULL, NULL);
        b[i] = lrnn_sampler_sample(s[1], LOGITS, V, NULL, NULL);
        c[i] = lrnn_sampler_sample(s[2], LOGITS, V, NULL, NULL);
    }
    test_check(&t, memcmp(a, b, sizeof(a)) == 0, "equal seeds give different tokens");
    test_check(&t, memcmp(a, c, sizeof(a)) != 0, "different seeds give equal tokens");
    for (int bit = 0; bit < 64; ++bit) {
        struct lrnn_sampler * other = make(plain(42 ^ UINT64_C(1) << bit));
        for (int i = 0; i < 64; ++i) {
            b[i] = lrnn_sampler_sample(other, LOGITS, V, NULL, NULL);
        }
        test_check(&t, memcmp(a, b, sizeof(a)) != 0, "bit %d of the seed changes nothing", bit);
        lrnn_sampler_free(other);
    }
    for (int i = 0; i < 3; ++i) {
        lrnn_sampler_free(s[i]);
    }
}

// The options as users spell them. top_p 0 keeps one token, repeat_last 0 none.
static void test_options(void) {
    static const struct {
        const char *               option;
        double                     value;
        struct lrnn_sampler_params expected;
    } cases[] = {
        { "temperature", 0.5, { .temperature = 0.5f } },
        { "top_k", 7.0, { .top_k = 7 } },
        { "top_p", 1.0, { .drop_p = 0.0f } },
        { "top_p", 0.75, { .drop_p = 0.25f } },
        { "top_p", 0.0, { .drop_p = 1.0f } },
        { "min_p", 0.5, { .min_p = 0.5f } },
        { "repeat_penalty", 2.0, { .repeat_penalty = 2.0f } },
        { "repeat_last", 3.0, { .repeat_last = 3 } },
        { "repeat_last", 0.0, { .repeat_last = -1 } },
    };
    struct lrnn_error          err;
    struct lrnn_sampler_params p;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        p = (struct lrnn_sampler_params) { 0 };
        test_check(&t,
                lrnn_sampler_set(&p, cases[i].option, cases[i].value, &err) &&
                        memcmp(&p, &cases[i].expected, sizeof(p)) == 0,
                "%s %g sets something else", cases[i].option, cases[i].value);
    }
    static const struct {
        const char * option;
        double       value;
    } bad[] = { { "top_p", 1.1 }, { "top_p", -0.1 }, { "temperature", NAN }, { "min_p", 2.0 },
        { "top_k", -1.0 }, { "repeat_last", 5000.0 }, { "repeat_penalty", 0.0 }, { "top", 1.0 } };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        err = (struct lrnn_error) { LRNN_ERROR_NONE, "" };
        test_check(&t,
                !lrnn_sampler_set(&p, bad[i].option, bad[i].value, &err) &&
                        strstr(err.text, bad[i].option) != NULL,
                "%s %g is accepted, or the message does not name it: %s", bad[i].option,
                bad[i].value, err.text);
    }
    p.temperature = 1.0f;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        p.drop_p = 1.0f;
        p.seed = seed;
        struct lrnn_sampler * s = make(p);
        test_check(&t, lrnn_sampler_sample(s, LOGITS, V, NULL, NULL) == 1,
                "top_p 0 does not keep only the most likely token");
        lrnn_sampler_free(s);
    }
}

static void test_invalid(void) {
    struct lrnn_sampler_params bad[8];
    for (int i = 0; i < 8; ++i) {
        bad[i] = plain(0);
    }
    bad[0].temperature = -1.0f;
    bad[1].temperature = NAN;
    bad[2].drop_p = 1.5f;
    bad[3].min_p = -0.1f;
    bad[4].top_k = -1;
    bad[5].repeat_penalty = -1.0f;
    bad[6].repeat_last = -2;
    bad[7].repeat_last = 1 << 20;
    for (int i = 0; i < 8; ++i) {
        struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
        struct lrnn_sampler * s = lrnn_sampler_new(&bad[i], &err);
        test_check(&t, s == NULL && err.text[0] != '\0',
                "invalid parameters %d: accepted, or rejected without a message", i);
        lrnn_sampler_free(s);
    }
    struct lrnn_sampler * s = make(plain(0));
    const float           nan_logits[3] = { 0.0f, NAN, 1.0f };
    const float           no_logits[2] = { -INFINITY, -INFINITY };
    const float           one_logit[2] = { -INFINITY, 0.0f };
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    test_check(&t, lrnn_sampler_sample(s, nan_logits, 3, NULL, &err) == LRNN_SAMPLE_NOT_FINITE,
            "a token is sampled from NaN");
    test_check(&t, strstr(err.text, "NaN") != NULL, "the message does not name NaN: %s", err.text);
    test_check(&t, lrnn_sampler_sample(s, no_logits, 2, NULL, &err) == LRNN_SAMPLE_NOT_FINITE,
            "a token is sampled without a finite logit");
    test_check(
            &t, strstr(err.text, "no logit is finite") != NULL, "unexpected message: %s", err.text);
    test_check(&t, lrnn_sampler_sample(s, one_logit, 2, NULL, NULL) == 1,
            "a token with logit -infinity is sampled");
    lrnn_sampler_free(s);
}

int main(void) {
    test_greedy();
    test_frequencies();
    test_truncation();
    test_penalty();
    test_penalty_values();
    test_boundaries();
    test_definition();
    test_seeds();
    test_options();
    test_invalid();
    return test_end(&t, "test-sampler");
}
