// Sampling: repeat penalty → top-k → top-p → min-p → temperature. llama.cpp's tools use the same
// order by default.

#include "run/sampler.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float   logit;
    int32_t token;
};

// What users may set, and in which range.
static const struct option {
    const char * name;
    double       min, max;
    bool         is_integer;
} OPTIONS[] = {
    { "temperature", 0.0, 1e6, false },
    { "top_k", 0.0, INT32_MAX, true },
    { "top_p", 0.0, 1.0, false },
    { "min_p", 0.0, 1.0, false },
    { "repeat_penalty", 1e-6, 1e6, false },
    { "repeat_last", 0.0, SAMPLER_RECENT_MAX, true },
};

enum { TEMPERATURE, TOP_K, TOP_P, MIN_P, REPEAT_PENALTY, REPEAT_LAST, N_OPTIONS };

_Static_assert(sizeof(OPTIONS) / sizeof(OPTIONS[0]) == N_OPTIONS, "one row per option");

static bool check_option(int i, double value, struct lrnn_error * err) {
    const struct option * o = &OPTIONS[i];
    return (value >= o->min && value <= o->max && (!o->is_integer || value == floor(value))) ||
           error_bad_input(err, "%s is %g; expected %s%g to %g", o->name, value,
                   o->is_integer ? "an integer from " : "", o->min, o->max);
}

bool lrnn_sampler_set(struct lrnn_sampler_params * p, const char * option, double value,
        struct lrnn_error * err) {
    int i = 0;
    while (i < N_OPTIONS && strcmp(OPTIONS[i].name, option) != 0) {
        i++;
    }
    if (i == N_OPTIONS) {
        return error_bad_input(err, "there is no sampling option '%s'", option);
    }
    if (!check_option(i, value, err)) {
        return false;
    }
    switch (i) {
        case TEMPERATURE: p->temperature = (float) value; break;
        case TOP_K: p->top_k = (int32_t) value; break;
        case TOP_P: p->drop_p = (float) (1.0 - value); break;
        case MIN_P: p->min_p = (float) value; break;
        case REPEAT_PENALTY: p->repeat_penalty = (float) value; break;
        default: p->repeat_last = value >= 1.0 ? (int32_t) value : -1; break;
    }
    return true;
}

struct lrnn_sampler * lrnn_sampler_new(
        const struct lrnn_sampler_params * params, struct lrnn_error * err) {
    struct lrnn_sampler_params p = params != NULL ? *params : (struct lrnn_sampler_params) { 0 };
    p.repeat_penalty = p.repeat_penalty == 0.0f ? 1.0f : p.repeat_penalty;
    p.repeat_last = p.repeat_last == 0 ? 64 : p.repeat_last == -1 ? 0 : p.repeat_last;

    const double values[N_OPTIONS] = {
        [TEMPERATURE] = (double) p.temperature,
        [TOP_K] = p.top_k,
        [TOP_P] = 1.0 - (double) p.drop_p,
        [MIN_P] = (double) p.min_p,
        [REPEAT_PENALTY] = (double) p.repeat_penalty,
        [REPEAT_LAST] = p.repeat_last,
    };
    for (int i = 0; i < N_OPTIONS; ++i) {
        if (!check_option(i, values[i], err)) {
            return NULL;
        }
    }
    struct lrnn_sampler * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        error_no_memory(err, "a sampler");
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

// ---- Sampling -----------------------------------------------------------------------------------

// True if a comes first: it has the larger logit, or the same and the smaller id.
static bool is_before(struct candidate a, struct candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The candidates in order, as far as they are needed: a heap, and after it those that were taken
// from it, c[n - 1 - i] the i-th. Few are needed, so this is much faster than sorting them all.
struct ranking {
    struct candidate * c; // [n]
    int64_t            n;
    int64_t            n_heap;
};

// Moves the candidate at `i` down until none below it comes before it.
static void sift_down(struct candidate * c, int64_t n, int64_t i) {
    const struct candidate moved = c[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && is_before(c[child + 1], c[child]) ? 1 : 0;
        if (!is_before(c[child], moved)) {
            break;
        }
        c[i] = c[child];
    }
    c[i] = moved;
}

static struct ranking rank(struct candidate * c, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; --i) {
        sift_down(c, n, i);
    }
    return (struct ranking) { c, n, n };
}

// The i-th candidate, i < n, 0 the most likely. Takes it from the heap if i is new.
static struct candidate ranked(struct ranking * r, int64_t i) {
    while (r->n - r->n_heap <= i) {
        const struct candidate first = r->c[0];
        r->c[0] = r->c[--r->n_heap];
        sift_down(r->c, r->n_heap, 0);
        r->c[r->n_heap] = first;
    }
    return r->c[r->n - 1 - i];
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
            *logit = *logit > 0.0f ? *logit / s->params.repeat_penalty
                                   : *logit * s->params.repeat_penalty;
        }
    }
}

// Σ exp((logit − max) / temperature) of the n most likely candidates
static double weight_of(struct ranking * r, int64_t n, float temperature) {
    const float max = ranked(r, 0).logit;
    double      sum = 0.0;
    for (int64_t i = 0; i < n; ++i) { // of all: the order does not matter
        const float logit = n < r->n ? ranked(r, i).logit : r->c[i].logit;
        sum += exp((double) ((logit - max) / temperature));
    }
    return sum;
}

// The number of candidates that remain. Probabilities are taken before the temperature.
static int64_t truncate(const struct lrnn_sampler_params * p, struct ranking * r) {
    const float max = ranked(r, 0).logit;
    int64_t     n = p->top_k > 0 && r->n > p->top_k ? p->top_k : r->n;
    if (p->drop_p > 0.0f) {
        const double wanted = (double) (float) (1.0 - (double) p->drop_p) * weight_of(r, n, 1.0f);
        double       sum = 0.0;
        for (int64_t i = 0; i < n; ++i) {
            sum += exp((double) (ranked(r, i).logit - max));
            if (sum >= wanted) {
                n = i + 1;
                break;
            }
        }
    }
    for (int64_t i = 1; i < n && p->min_p > 0.0f; ++i) {
        if (exp((double) (ranked(r, i).logit - max)) < (double) p->min_p) {
            return i;
        }
    }
    return n;
}

// Draws one of the candidates in proportion to exp(logit / temperature).
static int32_t draw(struct lrnn_sampler * s, int64_t n_candidates) {
    struct ranking r = rank(s->candidates, n_candidates);
    const int64_t  n = truncate(&s->params, &r);
    const float    max = ranked(&r, 0).logit;
    double  left = random_unit(xoroshiro128(s->random)) * weight_of(&r, n, s->params.temperature);
    int64_t chosen = 0;
    for (; chosen < n - 1; ++chosen) {
        left -= exp((double) ((ranked(&r, chosen).logit - max) / s->params.temperature));
        if (left < 0.0) {
            break;
        }
    }
    return ranked(&r, chosen).token;
}

static int32_t most_likely(const struct candidate * c, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) {
        best = is_before(c[i], c[best]) ? i : best;
    }
    return c[best].token;
}

// NaN if one is NaN
static float max_of(const float * logits, int64_t n) {
    float max = -INFINITY;
    for (int64_t i = 0; i < n; ++i) {
        if (isnan(logits[i])) {
            return NAN;
        }
        max = logits[i] > max ? logits[i] : max;
    }
    return max;
}

// log softmax(logits)[token]
static float log_prob_of(const float * logits, int64_t n, float max, int32_t token) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        sum += exp((double) (logits[i] - max));
    }
    return (float) ((double) logits[token] - ((double) max + log(sum)));
}

// Keeps the allowed candidates, and returns their number.
static int64_t keep_allowed(struct candidate * c, int64_t n, const uint32_t * allowed) {
    int64_t n_kept = 0;
    for (int64_t i = 0; i < n; ++i) {
        c[n_kept] = c[i];
        n_kept += allowed[i / 32] >> i % 32 & 1;
    }
    return n_kept;
}

int32_t sampler_sample(struct lrnn_sampler * s, const float * logits, int64_t n_vocab,
        const uint32_t * allowed, float * log_prob, struct lrnn_error * err) {
    const float max = max_of(logits, n_vocab);
    if (!isfinite(max)) {
        error_set(err, LRNN_ERROR_NOT_FINITE, "%s",
                isnan(max) ? "a logit is NaN" : "no logit is finite");
        return LRNN_SAMPLE_NOT_FINITE;
    }
    if (!array_grow(&s->candidates, &s->cap_candidates, (size_t) n_vocab, sizeof(*s->candidates))) {
        error_no_memory(err, "%lld candidates", (long long) n_vocab);
        return LRNN_SAMPLE_NO_MEMORY;
    }
    for (int64_t i = 0; i < n_vocab; ++i) {
        s->candidates[i] = (struct candidate) { logits[i], (int32_t) i };
    }
    if (s->params.repeat_penalty != 1.0f) {
        penalize(s, s->candidates, n_vocab);
    }
    const int64_t n = allowed != NULL ? keep_allowed(s->candidates, n_vocab, allowed) : n_vocab;
    const int32_t token =
            s->params.temperature == 0.0f ? most_likely(s->candidates, n) : draw(s, n);
    if (log_prob != NULL) {
        *log_prob = log_prob_of(logits, n_vocab, max, token);
    }
    lrnn_sampler_accept(s, token);
    return token;
}

int32_t lrnn_sampler_sample(struct lrnn_sampler * s, const float * logits, int64_t n_vocab,
        float * log_prob, struct lrnn_error * err) {
    return sampler_sample(s, logits, n_vocab, NULL, log_prob, err);
}
