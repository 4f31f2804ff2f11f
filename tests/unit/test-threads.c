// The choice of the number of threads, on a simulated machine: quiet, busy, quiet again.

#include "base/random.h"
#include "kit/check.h"
#include "run/threads.h"

static uint64_t seed = 1;

// Seconds per batch. On a busy machine, several threads wait for each other now and then.
static double simulate(int32_t n, bool busy) {
    const double seconds = n == 1 ? 1.8e-3 : 1.0e-3;
    const double noise = 1.0 + 0.05 * random_unit(splitmix64(&seed));
    const bool   waits = busy && n > 1 && random_unit(splitmix64(&seed)) < 0.4;
    return seconds * noise * (busy ? 2.0 : 1.0) + (waits ? 20e-3 : 0.0);
}

// Runs batches of 1 token. Returns the fraction that used one thread.
static double run(struct threads * t, int n, bool busy) {
    int n_one = 0;
    for (int i = 0; i < n; ++i) {
        const int32_t threads = threads_choose(t, 1);
        n_one += threads == 1;
        threads_measure(t, simulate(threads, busy));
    }
    return (double) n_one / n;
}

int main(void) {
    struct test    t = { 0 };
    struct threads large = { .n_max = 4, .work_per_token = 1e8 };
    struct threads small = { .n_max = 4, .work_per_token = 1e6 };
    struct threads single = { .n_max = 1, .work_per_token = 1e8 };

    double one = run(&large, 1000, false);
    test_check(&t, one > 0.0 && one <= 0.002, "quiet: %g of the batches used one thread", one);
    one = run(&large, 1000, true);
    test_check(&t, one >= 0.95, "busy: %g of the batches used one thread; expected 0.95", one);
    one = run(&large, 20000, false);
    test_check(&t, one <= 0.3, "quiet again: %g of the batches used one thread", one);
    one = run(&large, 1000, false);
    test_check(&t, one == 0.0, "back to many threads: %g of the batches used one", one);

    test_check(&t, run(&small, 100, false) == 1.0, "a small model uses one thread");
    test_check(&t, threads_choose(&small, 32) == 1, "also for a short prompt");
    test_check(&t, threads_choose(&small, 512) == 4, "but not for a long one");
    test_check(&t, threads_choose(&single, 512) == 1, "one thread at most");
    for (int64_t n = 1; n <= 100; n += 33) {
        threads_choose(&large, n); // every batch size has its own measurements
        threads_measure(&large, 1.0);
    }
    return test_end(&t, "test-threads");
}
