// The loss of a target: vocabularies of every size against a softmax in double precision, the most
// likely token of several equal ones, logits that are not finite.

#include "log-softmax.h"
#include "kit/check.h"
#include "kit/rng.h"

enum { N_MOST = 100 };

static void check(struct test * t, const float * z, int64_t n) {
    double  sum = 0.0;
    int64_t best = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += exp((double) z[i]);
        best = z[i] > z[best] ? i : best; // the first of equal ones
    }
    for (int32_t target = 0; target < n; ++target) {
        const struct nll found = nll_of(z, n, target);
        const double     expected = log(sum) - (double) z[target];
        test_check(t, fabs((double) found.nats - expected) < 2e-6 * (1.0 + expected),
                "%lld logits, target %d: %g nats, expected %g", (long long) n, target,
                (double) found.nats, expected);
        test_check(t, found.top1 == (target == best), "%lld logits, target %d: top-1 is %d",
                (long long) n, target, found.top1);
    }
}

// Rows on several threads: the bits of each row alone.
static void check_rows(struct test * t, struct test_rng * rng) {
    enum { ROWS = 100, VOCAB = 20000 };
    float *          z = malloc(sizeof(*z) * ROWS * VOCAB);
    struct nll_row * r = calloc(ROWS, sizeof(*r));
    for (int64_t i = 0; i < ROWS * VOCAB; ++i) {
        z[i] = (float) test_normal(rng);
    }
    for (int32_t n_threads = 0; n_threads <= 5; ++n_threads) {
        bool same = true;
        for (int64_t i = 0; i < ROWS; ++i) {
            r[i] = (struct nll_row) { z + i * VOCAB, (int32_t) test_below(rng, VOCAB),
                { NAN, false } };
        }
        nll_of_rows(r, ROWS, VOCAB, n_threads);
        for (int64_t i = 0; i < ROWS; ++i) {
            const struct nll one = nll_of(r[i].logits, VOCAB, r[i].target);
            same = same && one.nats == r[i].nll.nats && one.top1 == r[i].nll.top1;
        }
        test_check(t, same, "%d threads: other bits than row by row", n_threads);
    }
    free(z);
    free(r);
}

int main(void) {
    struct test     t = { 0 };
    struct test_rng rng = { 1 };
    float           z[N_MOST];
    for (int64_t n = 1; n <= N_MOST; ++n) {
        for (int64_t i = 0; i < n; ++i) {
            z[i] = (float) (3.0 * test_normal(&rng));
        }
        check(&t, z, n);
        for (int64_t i = 0; i < n; ++i) { // ties
            z[i] = (float) test_below(&rng, 3);
        }
        check(&t, z, n);
        const float bad[] = { NAN, INFINITY, -INFINITY };
        for (int k = 0; k < 3; ++k) {
            const int64_t at = test_below(&rng, n);
            const float   x = z[at];
            z[at] = bad[k];
            test_check(&t, isnan(nll_of(z, n, 0).nats), "%lld logits, one is %g: a number",
                    (long long) n, (double) bad[k]);
            z[at] = x;
        }
    }
    check_rows(&t, &rng);
    return test_end(&t, "test-log-softmax");
}
