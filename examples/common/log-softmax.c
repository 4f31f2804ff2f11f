#include "log-softmax.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

// exp(x) for −87 ≤ x ≤ 0, within two units in the last place: x = n ln 2 + r with |r| ≤ ln 2 / 2,
// and exp(r) by its series. Without branches and calls, so that compilers vectorize the loop over
// the vocabulary.
static inline float exp_of(float x) {
    const float magic = 12582912.0f; // 1.5 · 2²³: adding it rounds to an integer
    const float n = (x * 1.44269504f + magic) - magic;
    // ln 2 in two parts; the first has few bits, so that its product with n is exact
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float       p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const int32_t bits = ((int32_t) n + 127) * (1 << 23);
    float         power;
    memcpy(&power, &bits, sizeof(power)); // 2ⁿ
    return p * power;
}

enum { LANES = 16 };

// The largest logit; NaN if any logit is not finite.
static float largest(const float * z, int64_t n) {
    float max[LANES];
    float zero[LANES]; // 0 z: stays 0 unless z is infinite or NaN
    for (int j = 0; j < LANES; ++j) {
        max[j] = z[0];
        zero[j] = 0.0f;
    }
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; ++j) {
            max[j] = z[i + j] > max[j] ? z[i + j] : max[j];
            zero[j] += 0.0f * z[i + j];
        }
    }
    for (; i < n; ++i) {
        max[0] = z[i] > max[0] ? z[i] : max[0];
        zero[0] += 0.0f * z[i];
    }
    for (int j = 1; j < LANES; ++j) {
        max[0] = max[j] > max[0] ? max[j] : max[0];
        zero[0] += zero[j];
    }
    return zero[0] == 0.0f ? max[0] : NAN;
}

// Σ exp(z − max)
static double sum_of_exp(const float * z, int64_t n, float max) {
    double  sum[LANES] = { 0.0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; ++j) {
            const float x = z[i + j] - max;
            sum[j] += (double) exp_of(x > -87.0f ? x : -87.0f);
        }
    }
    for (; i < n; ++i) {
        const float x = z[i] - max;
        sum[0] += (double) exp_of(x > -87.0f ? x : -87.0f);
    }
    for (int j = 1; j < LANES; ++j) {
        sum[0] += sum[j];
    }
    return sum[0];
}

struct log_norm log_norm_of(const float * logits, int64_t n_vocab) {
    const float max = largest(logits, n_vocab);
    return (struct log_norm) {
        .max = max,
        .log_sum = isnan(max) ? (double) NAN : log(sum_of_exp(logits, n_vocab, max)),
    };
}

float log_norm_prob(struct log_norm norm, float logit) {
    return -(float) (norm.log_sum - ((double) logit - (double) norm.max));
}

struct nll nll_of(const float * logits, int64_t n_vocab, int32_t target) {
    const struct log_norm norm = log_norm_of(logits, n_vocab);
    if (isnan(norm.max)) {
        return (struct nll) { .nats = NAN };
    }
    bool top1 = logits[target] == norm.max;
    for (int32_t v = 0; v < target && top1; ++v) {
        top1 = logits[v] < norm.max;
    }
    return (struct nll) { .nats = -log_norm_prob(norm, logits[target]), .top1 = top1 };
}

// ---- Rows ---------------------------------------------------------------------------------------

enum { THREADS_MAX = 64, LOGITS_PER_THREAD = 1 << 18 }; // less is not worth starting a thread

struct part { // every n_parts-th row, from `first` on
    struct nll_row * rows;
    int64_t          n_rows, n_vocab, first, n_parts;
};

static void * run_part(void * arg) {
    const struct part * p = arg;
    for (int64_t i = p->first; i < p->n_rows; i += p->n_parts) {
        p->rows[i].nll = nll_of(p->rows[i].logits, p->n_vocab, p->rows[i].target);
    }
    return NULL;
}

void nll_of_rows(struct nll_row * rows, int64_t n_rows, int64_t n_vocab, int32_t n_threads) {
    const long    n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t wanted = n_threads > 0 ? n_threads : n_cores;
    const int64_t useful = 1 + n_rows * n_vocab / LOGITS_PER_THREAD;
    int64_t       n = wanted < useful ? wanted : useful;
    n = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;

    pthread_t   threads[THREADS_MAX];
    struct part parts[THREADS_MAX];
    bool        started[THREADS_MAX];
    for (int64_t i = 0; i < n; ++i) { // part 0 is for this thread
        parts[i] = (struct part) { rows, n_rows, n_vocab, i, n };
        started[i] = i > 0 && pthread_create(&threads[i], NULL, run_part, &parts[i]) == 0;
    }
    for (int64_t i = 0; i < n; ++i) {
        if (!started[i]) {
            run_part(&parts[i]);
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        if (started[i]) {
            pthread_join(threads[i], NULL);
        }
    }
}
