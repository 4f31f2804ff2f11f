#include "kit/rng.h"

#include "base/random.h"

uint64_t test_next(struct test_rng * r) {
    return splitmix64(&r->state);
}

int64_t test_below(struct test_rng * r, int64_t n) {
    return (int64_t) (test_next(r) % (uint64_t) n);
}

double test_uniform(struct test_rng * r, double lo, double hi) {
    return lo + (hi - lo) * random_unit(test_next(r));
}

// The sum of twelve uniform numbers. It needs no libm, so every machine gets the same bits.
double test_normal(struct test_rng * r) {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) {
        sum += test_uniform(r, 0.0, 1.0);
    }
    return sum;
}

int64_t test_divisor(int64_t n, int pick) {
    int64_t found[16];
    int     n_found = 0;
    for (int64_t d = 1; d <= n && n_found < 16; ++d) {
        if (n % d == 0) {
            found[n_found++] = d;
        }
    }
    return found[pick % n_found];
}
