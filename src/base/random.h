#pragma once

// Random numbers. A seed gives the same numbers on every machine. Sampled tokens, the words of a
// task, the order of shuffled documents and bootstrap intervals all depend on the exact numbers:
// none of these functions may change its results.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// splitmix64 (Steele, Lea, Flood 2014). The state is the seed; any value will do.
uint64_t splitmix64(uint64_t * state);

// xoroshiro128+ (Blackman, Vigna 2018), seeded by splitmix64. Its state must not be all zero.
void xoroshiro128_seed(uint64_t state[2], uint64_t seed);
uint64_t xoroshiro128(uint64_t state[2]);

// The upper 53 bits of a random number as a number in [0, 1).
double random_unit(uint64_t bits);

// A number from 0 to n − 1, all equally likely, drawn with splitmix64; n > 0. The two functions
// give different numbers for the same state.
uint64_t random_below(uint64_t * state, uint64_t n);
uint32_t random_below_u32(uint64_t * state, uint32_t n);

#ifdef __cplusplus
}
#endif
