#include "eval/nll.h"

#include <math.h>
#include <string.h>

// exp(x) for −87 ≤ x ≤ 0, within two units in the last place: x = n ln 2 + r with |r| ≤ ln 2 / 2,
// and exp(r) by its series. Without branches and calls, so that compilers vectorize the loop over
// the vocabulary.
static inline float exp_of(float x) {
    const float magic = 12582912.0f; // 1.5 · 2²³: adding it rounds to an integer
    const float n     = (x * 1.44269504f + magic) - magic;
    // ln 2 in two parts; the first has few bits, so that its product with n is exact
    const float r      = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float       p      = 1.0f / 5040.0f;
    p                  = p * r + 1.0f / 720.0f;
    p                  = p * r + 1.0f / 120.0f;
    p                  = p * r + 1.0f / 24.0f;
    p                  = p * r + 1.0f / 6.0f;
    p                  = p * r + 0.5f;
    p                  = p * r + 1.0f;
    p                  = p * r + 1.0f;
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
        max[j]  = z[0];
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
    int64_t i          = 0;
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

struct nll nll_of(const float * logits, int64_t n_vocab, int32_t target) {
    const float max = largest(logits, n_vocab);
    if (isnan(max)) {
        return (struct nll) { .nats = NAN };
    }
    bool top1 = logits[target] == max;
    for (int32_t v = 0; v < target && top1; ++v) {
        top1 = logits[v] < max;
    }
    const double nats =
            log(sum_of_exp(logits, n_vocab, max)) - ((double) logits[target] - (double) max);
    return (struct nll) { .nats = (float) nats, .top1 = top1 };
}
