// Sampling: repeat penalty → top-k → top-p → min-p → temperature. llama.cpp's tools use the same
// order by default.

#include "run/sampler.h"

#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float   logit;
    int32_t token;
};

struct lrnn_sampler * lrnn_sampler_new(
        const struct lrnn_sampler_params * params, char * err, size_t err_size) {
    struct lrnn_sampler_params p = params != NULL ? *params : (struct lrnn_sampler_params) { 0 };
    p.top_p                      = p.top_p == 0.0f ? 1.0f : p.top_p;
    p.repeat_penalty             = p.repeat_penalty == 0.0f ? 1.0f : p.repeat_penalty;
    p.repeat_last                = p.repeat_last == 0 ? 64 : p.repeat_last;

    const struct {
        const char * name;
        float        value, min, max;
    } numbers[] = {
        { "temperature", p.temperature, 0.0f, 1e6f },
        { "top_p", p.top_p, 0.0f, 1.0f },
        { "min_p", p.min_p, 0.0f, 1.0f },
        { "repeat_penalty", p.repeat_penalty, 1e-6f, 1e6f },
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        if (!(numbers[i].value >= numbers[i].min && numbers[i].value <= numbers[i].max)) {
            snprintf(err, err_size, "%s is %g; expected %g to %g", numbers[i].name,
                    (double) numbers[i].value, (double) numbers[i].min, (double) numbers[i].max);
            return NULL;
        }
    }
    if (p.top_k < 0) {
        snprintf(err, err_size, "top_k is %d; expected 0 or more", p.top_k);
        return NULL;
    }
    if (p.repeat_last < 0 || p.repeat_last > SAMPLER_RECENT_MAX) {
        snprintf(err, err_size, "repeat_last is %d; expected 0 to %d", p.repeat_last,
                SAMPLER_RECENT_MAX);
        return NULL;
    }
    struct lrnn_sampler * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        snprintf(err, err_size, "out of memory for a sampler");
        return NULL;
    }
    s->params = p;
    xoroshiro128_seed(s->random, p.seed);
    return s;
}

void lrnn_sampler_free(struct lrnn_sampler * s) {
    if (s != NULL) {
        free(s->candidates);
        free(s);
    }
}

void lrnn_sampler_accept(struct lrnn_sampler * s, int32_t token) {
    s->recent[s->n_accepted % SAMPLER_RECENT_MAX] = token;
    s->n_accepted++;
}

//
// Sampling
//

// By falling logit; equal logits by rising id.
static int by_logit(const void * a, const void * b) {
    const struct candidate * x = a;
    const struct candidate * y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->token < y->token ? -1 : 1;
}

// Penalizes each recent token once, however often it occurred.
static void penalize(const struct lrnn_sampler * s, struct candidate * c, int64_t n_vocab) {
    const int64_t known =
            s->n_accepted < s->params.repeat_last ? s->n_accepted : s->params.repeat_last;
    for (int64_t i = 0; i < known; ++i) {
        const int32_t token = s->recent[(s->n_accepted - 1 - i) % SAMPLER_RECENT_MAX];
        bool          again = token < 0 || token >= n_vocab;
        for (int64_t j = 0; j < i && !again; ++j) {
            again = s->recent[(s->n_accepted - 1 - j) % SAMPLER_RECENT_MAX] == token;
        }
        if (!again) {
            float * logit = &c[token].logit;
            *logit        = *logit > 0.0f ? *logit / s->params.repeat_penalty
                                          : *logit * s->params.repeat_penalty;
        }
    }
}

// The number of sorted candidates that remain. Probabilities are taken before the temperature.
static int64_t truncate(
        const struct lrnn_sampler_params * p, const struct candidate * c, int64_t n) {
    if (p->top_k > 0 && n > p->top_k) {
        n = p->top_k;
    }
    double total = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        total += exp((double) (c[i].logit - c[0].logit));
    }
    double  sum  = 0.0;
    int64_t keep = n;
    for (int64_t i = 0; i < n; ++i) {
        sum += exp((double) (c[i].logit - c[0].logit));
        if (sum >= (double) p->top_p * total) {
            keep = i + 1;
            break;
        }
    }
    while (keep > 1 && exp((double) (c[keep - 1].logit - c[0].logit)) < (double) p->min_p) {
        keep--;
    }
    return keep;
}

// log Σ exp(logits); NaN if one is NaN, infinite if none is finite
static double log_sum(const float * logits, int64_t n) {
    float  max = -INFINITY;
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        if (isnan(logits[i])) {
            return (double) NAN;
        }
        max = logits[i] > max ? logits[i] : max;
    }
    for (int64_t i = 0; i < n && isfinite(max); ++i) {
        sum += exp((double) (logits[i] - max));
    }
    return isfinite(max) ? (double) max + log(sum) : (double) max;
}

int32_t lrnn_sampler_sample(struct lrnn_sampler * s, const float * logits, int64_t n_vocab,
        float * log_prob, char * err, size_t err_size) {
    const double norm = log_sum(logits, n_vocab);
    if (!isfinite(norm)) {
        snprintf(err, err_size, "%s", isnan(norm) ? "a logit is NaN" : "no logit is finite");
        return LRNN_SAMPLE_NOT_FINITE;
    }
    if (n_vocab > s->cap_candidates) {
        struct candidate * c = realloc(s->candidates, (size_t) n_vocab * sizeof(*c));
        if (c == NULL) {
            snprintf(err, err_size, "out of memory for %lld candidates", (long long) n_vocab);
            return LRNN_SAMPLE_NO_MEMORY;
        }
        s->candidates     = c;
        s->cap_candidates = n_vocab;
    }
    struct candidate * c = s->candidates;
    for (int64_t i = 0; i < n_vocab; ++i) {
        c[i] = (struct candidate) { logits[i], (int32_t) i };
    }
    if (s->params.repeat_penalty != 1.0f) {
        penalize(s, c, n_vocab);
    }
    int64_t chosen = 0;
    if (s->params.temperature == 0.0f) {
        for (int64_t i = 1; i < n_vocab; ++i) {
            chosen = by_logit(&c[i], &c[chosen]) < 0 ? i : chosen;
        }
    } else {
        qsort(c, (size_t) n_vocab, sizeof(*c), by_logit);
        const int64_t n     = truncate(&s->params, c, n_vocab);
        double        total = 0.0;
        for (int64_t i = 0; i < n; ++i) {
            total += exp((double) ((c[i].logit - c[0].logit) / s->params.temperature));
        }
        double left = random_unit(xoroshiro128(s->random)) * total;
        for (chosen = 0; chosen < n - 1; ++chosen) {
            left -= exp((double) ((c[chosen].logit - c[0].logit) / s->params.temperature));
            if (left < 0.0) {
                break;
            }
        }
    }
    const int32_t token = c[chosen].token;
    if (log_prob != NULL) {
        *log_prob = (float) ((double) logits[token] - norm);
    }
    lrnn_sampler_accept(s, token);
    return token;
}
