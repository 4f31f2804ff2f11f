// The loss of a target: vocabularies of every size against a softmax in double precision, the most
// likely token of several equal ones, logits that are not finite.

#include "eval/nll.h"
#include "kit/check.h"
#include "kit/rng.h"

#include <math.h>

enum { N_MOST = 100 };

static void check(struct test * t, const float * z, int64_t n) {
    double  sum  = 0.0;
    int64_t best = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += exp((double) z[i]);
        best = z[i] > z[best] ? i : best; // the first of equal ones
    }
    for (int32_t target = 0; target < n; ++target) {
        const struct nll found    = nll_of(z, n, target);
        const double     expected = log(sum) - (double) z[target];
        test_check(t, fabs((double) found.nats - expected) < 2e-6 * (1.0 + expected),
                "%lld logits, target %d: %g nats, expected %g", (long long) n, target,
                (double) found.nats, expected);
        test_check(t, found.top1 == (target == best), "%lld logits, target %d: top-1 is %d",
                (long long) n, target, found.top1);
    }
}

int main(void) {
    struct test     t   = { 0 };
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
            const float   x  = z[at];
            z[at]            = bad[k];
            test_check(&t, isnan(nll_of(z, n, 0).nats), "%lld logits, one is %g: a number",
                    (long long) n, (double) bad[k]);
            z[at] = x;
        }
    }
    return test_end(&t, "test-nll");
}
