#include "base/random.h"

#include "base/hash.h"

uint64_t splitmix64(uint64_t * state) {
    return hash_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t rotate(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

void xoroshiro128_seed(uint64_t state[2], uint64_t seed) {
    state[0] = splitmix64(&seed);
    state[1] = splitmix64(&seed);
}

uint64_t xoroshiro128(uint64_t s[2]) {
    const uint64_t sum = s[0] + s[1];
    const uint64_t x = s[0] ^ s[1];
    s[0] = rotate(s[0], 24) ^ x ^ x << 16;
    s[1] = rotate(x, 37);
    return sum;
}

double random_unit(uint64_t bits) {
    return (double) (bits >> 11) * 0x1p-53;
}

// x mod n, where numbers beyond the last multiple of n are drawn again.
uint64_t random_below(uint64_t * state, uint64_t n) {
    const uint64_t excess = (UINT64_MAX % n + 1) % n; // 2⁶⁴ mod n
    uint64_t       x;
    do {
        x = splitmix64(state);
    } while (x > UINT64_MAX - excess);
    return x % n;
}

// The upper half of a 32-bit number times n. Without the rejected products some results would be
// more likely than others (Lemire 2019).
uint32_t random_below_u32(uint64_t * state, uint32_t n) {
    const uint32_t n_rejected = (uint32_t) -n % n; // 2³² mod n
    uint64_t       product;
    do {
        product = (splitmix64(state) >> 32) * n;
    } while ((uint32_t) product < n_rejected);
    return (uint32_t) (product >> 32);
}
