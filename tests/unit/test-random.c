// The random generators against published numbers, and the ranges of random_below.

#include "base/random.h"
#include "kit/check.h"

#include <inttypes.h>

enum { N_NUMBERS = 5, N_DRAWS = 6000 };

// splitmix64 from the seed 1234567 (Rosetta Code), xoroshiro128+ from the state 1, 2 (the tests of
// the Rust crate rand_xoshiro).
static const uint64_t SPLITMIX[N_NUMBERS] = { UINT64_C(6457827717110365317),
    UINT64_C(3203168211198807973), UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
    UINT64_C(16408922859458223821) };
static const uint64_t XOROSHIRO[N_NUMBERS] = { 3, UINT64_C(412333834243),
    UINT64_C(2360170716294286339), UINT64_C(9295852285959843169), UINT64_C(2797080929874688578) };

static void check_published(struct test * t) {
    uint64_t split = 1234567;
    uint64_t xoro[] = { 1, 2 };
    for (int i = 0; i < N_NUMBERS; ++i) {
        const uint64_t s = splitmix64(&split);
        const uint64_t x = xoroshiro128(xoro);
        test_check(t, s == SPLITMIX[i], "splitmix64, number %d: %" PRIu64, i, s);
        test_check(t, x == XOROSHIRO[i], "xoroshiro128+, number %d: %" PRIu64, i, x);
    }
    xoroshiro128_seed(xoro, 1234567);
    test_check(t, xoro[0] == SPLITMIX[0] && xoro[1] == SPLITMIX[1], "seed of xoroshiro128+");
    test_check(t, random_unit(0) == 0.0 && random_unit(UINT64_MAX) == 1.0 - 0x1p-53,
            "the ends of random_unit");
}

// All numbers below n are drawn, none too often and nothing else.
static void check_below(struct test * t, uint32_t n) {
    int      drawn[2][8] = { { 0 } };
    uint64_t state[2] = { 1, 1 };
    for (int i = 0; i < N_DRAWS; ++i) {
        const uint64_t a = random_below(&state[0], n);
        const uint32_t b = random_below_u32(&state[1], n);
        if (!test_check(t, a < n && b < n, "below %" PRIu32 ": %" PRIu64 ", %" PRIu32, n, a, b)) {
            return;
        }
        drawn[0][a]++;
        drawn[1][b]++;
    }
    const double mean = (double) N_DRAWS / n;
    for (int i = 0; i < 2; ++i) {
        for (uint32_t k = 0; k < n; ++k) {
            test_check(t, drawn[i][k] > 0.8 * mean && drawn[i][k] < 1.2 * mean,
                    "%" PRIu32 " below %" PRIu32 ": %d of %d draws", k, n, drawn[i][k], N_DRAWS);
        }
    }
}

// A third of all numbers is below a third of n, or a multiple of 3. Without the rejected numbers it
// would be half of them, because 2⁶⁴ and 2³² are no multiples of n.
static void check_large(struct test * t) {
    const uint64_t n = UINT64_C(3) << 62;
    const uint32_t n_u32 = UINT32_C(3) << 30;
    uint64_t       state = 1;
    int            n_low = 0, n_multiples = 0;
    for (int i = 0; i < N_DRAWS; ++i) {
        n_low += random_below(&state, n) < n / 3;
        n_multiples += random_below_u32(&state, n_u32) % 3 == 0;
    }
    test_check(t, n_low > 0.3 * N_DRAWS && n_low < 0.37 * N_DRAWS,
            "%d of %d numbers are in the lower third", n_low, N_DRAWS);
    test_check(t, n_multiples > 0.3 * N_DRAWS && n_multiples < 0.37 * N_DRAWS,
            "%d of %d numbers are multiples of 3", n_multiples, N_DRAWS);
}

int main(void) {
    struct test t = { 0 };
    check_published(&t);
    for (uint32_t n = 1; n <= 8; ++n) {
        check_below(&t, n);
    }
    check_large(&t);
    return test_end(&t, "test-random");
}
