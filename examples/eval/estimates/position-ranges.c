#include "eval/estimates/position-ranges.h"

#include <math.h>

int64_t ranges_default_bucket(int64_t window, int64_t trained_length) {
    int64_t b = 2048;
    while (b > 1 && (b * 8 > window || (trained_length > 0 && b > trained_length))) {
        b /= 2;
    }
    return b;
}

int ranges_of_buckets(int64_t length, int64_t bucket, struct position_range * ranges) {
    int n = 0;
    for (int64_t from = 1; from <= length; ++n) {
        const int64_t to = bucket > 0 ? from + bucket - 1 : from == 1 ? 2 : 2 * (from - 1);
        if (n == RANGES_MAX_BUCKETS) {
            return -1;
        }
        ranges[n] = (struct position_range) { from, to < length ? to : length };
        from      = to + 1;
    }
    return n;
}

int ranges_of_prefixes(
        int64_t length, const int64_t * lengths, int n_lengths, struct position_range * ranges) {
    const int64_t whole = length + 1;
    int64_t       L     = 512;
    int           n     = 0;
    while (L > 2 && L * 8 > whole) {
        L /= 2;
    }
    for (int64_t last = 1; last < whole;) {
        int64_t next = L < whole ? L : whole;
        for (int i = 0; i < n_lengths; ++i) {
            next = lengths[i] > last && lengths[i] < next ? lengths[i] : next;
        }
        L *= next == L ? 2 : 1;
        ranges[n++] = (struct position_range) { 1, next - 1 };
        last        = next;
    }
    return n;
}

// Where curves begin.
static int64_t curve_start(int64_t length) {
    int64_t start = 64;
    while (start > 1 && start * 64 > length + 1) {
        start /= 2;
    }
    return start;
}

int ranges_of_octaves(int64_t length, struct position_range * ranges) {
    const double start = (double) curve_start(length);
    int64_t      from  = (int64_t) start + 1;
    int          n     = 0;
    for (int k = 1; from <= length && n < RANGES_MAX_CURVE; ++k) {
        const int64_t end = (int64_t) floor(start * exp2(0.25 * k) + 1e-9); // exact powers of two
        if (end >= from) {
            ranges[n++] = (struct position_range) { from, end < length ? end : length };
            from        = end + 1;
        }
    }
    // merge a short last range, of a window that is not a power of two
    if (n > 1 &&
            ranges[n - 1].to - ranges[n - 1].from < (ranges[n - 2].to - ranges[n - 2].from) / 2) {
        ranges[n - 2].to = ranges[n - 1].to;
        n--;
    }
    return n;
}

int ranges_of_average(
        int64_t length, int64_t smooth, bool is_log2, struct position_range * ranges) {
    const int64_t half = smooth / 2;
    int           n    = 0;
    int64_t       last = -1;
    for (int k = 0; n < RANGES_MAX_CURVE; ++k) {
        const double  at     = is_log2 ? (double) curve_start(length) * exp2(k / 16.0)
                                       : 1.0 + (double) k * (double) length / 256.0;
        const int64_t center = (int64_t) at;
        if (center > length) {
            break;
        }
        if (center > half && center + half <= length && center > last) { // only complete ranges
            ranges[n++] = (struct position_range) { center - half, center + half };
            last        = center;
        }
    }
    return n;
}
