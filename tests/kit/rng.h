#pragma once

// Random numbers that are the same on every machine.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test_rng {
    uint64_t state;
};

uint64_t test_next(struct test_rng * r);            // 64 random bits
int64_t test_below(struct test_rng * r, int64_t n); // 0 .. n − 1
double test_uniform(struct test_rng * r, double lo, double hi);
double test_normal(struct test_rng * r); // mean 0, variance 1

// A divisor of n. Consecutive values of `pick` give all divisors in turn.
int64_t test_divisor(int64_t n, int pick);

#ifdef __cplusplus
}
#endif
