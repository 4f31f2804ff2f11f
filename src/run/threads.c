#include "run/threads.h"

// Estimates for one thread: to read a weight, and to multiply it with a token. A batch that takes
// less than SMALL gains less from a second thread than a busy machine can make it lose.
static const double READ = 1e-10; // seconds
static const double MULTIPLY = 1.5e-11;
static const double SMALL = 1.6e-3;

enum {
    FIRST_PROBE = 8, // batches before one thread is tried for the first time
    HOLD_MIN = 64,   // batches between two tries of many threads
    HOLD_MAX = 4096, // each failed try doubles the distance, up to this
    N_GOOD = 3,      // successful tries before many threads are used again
};

static const double MUCH_SLOWER = 1.25; // many threads are given up if they take this much longer
static const double FASTER = 0.9;       // a try of many threads succeeds if it is this much faster

static bool is_small(const struct threads * t, int64_t n_tokens) {
    const double multiply = MULTIPLY * (double) n_tokens;
    return t->work_per_token * (multiply > READ ? multiply : READ) < SMALL;
}

int32_t threads_choose(struct threads * t, int64_t n_tokens) {
    t->n_tokens = n_tokens;
    t->n = t->n_max;
    if (t->n_max == 1 || is_small(t, n_tokens)) {
        t->n = 1;
    } else if (n_tokens <= THREADS_MEASURED_MAX) {
        const struct threads_stats * s = &t->stats[n_tokens];
        const bool probe_one = !s->use_one && s->one == 0.0 && s->n_batches >= FIRST_PROBE;
        const bool probe_many = s->use_one && s->n_batches >= s->hold;
        t->n = (s->use_one && !probe_many) || probe_one ? 1 : t->n_max;
    }
    return t->n;
}

static void average(double * mean, double seconds) {
    *mean = *mean == 0.0 ? seconds : *mean + (seconds - *mean) / 8.0;
}

// While many threads are in use.
static void measure_many(struct threads_stats * s, double seconds, bool was_one) {
    average(was_one ? &s->one : &s->many, seconds);
    if (s->one > 0.0 && s->many > MUCH_SLOWER * s->one) {
        s->use_one = true;
        s->n_batches = 0;
        s->hold = s->hold < HOLD_MIN ? HOLD_MIN : s->hold;
        s->n_good = 0;
    }
}

// While one thread is in use.
static void measure_one(struct threads_stats * s, double seconds, bool was_one) {
    if (was_one) {
        average(&s->one, seconds);
    } else if (seconds > FASTER * s->one) { // the try failed
        s->hold = 2 * s->hold < HOLD_MAX ? 2 * s->hold : HOLD_MAX;
        s->n_batches = 0;
        s->n_good = 0;
    } else if (++s->n_good == N_GOOD) {
        s->use_one = false;
        s->many = seconds;
        s->hold = HOLD_MIN;
        s->n_batches = 0;
    }
}

void threads_measure(struct threads * t, double seconds) {
    if (t->n_max == 1 || t->n_tokens > THREADS_MEASURED_MAX || is_small(t, t->n_tokens)) {
        return;
    }
    struct threads_stats * s = &t->stats[t->n_tokens];
    const bool             was_one = t->n == 1;
    s->n_batches++;
    if (s->use_one) {
        measure_one(s, seconds, was_one);
    } else {
        measure_many(s, seconds, was_one);
    }
}
