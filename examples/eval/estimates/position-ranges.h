#pragma once

// The ranges of positions 1 … length that a report shows.
//
//     bucket b           targets b·B < t ≤ (b + 1)·B, or 1–2, 3–4, 5–8, 9–16 … (log2)
//     prefix of L        targets t ≤ L − 1: what a run with windows of L tokens would score
//     curve              quarters of an octave, or a moving average
//
// Functions fill `ranges` and return the number of ranges.

#include "eval/estimates/losses.h"

enum {
    RANGES_MAX_BUCKETS = 4096,
    RANGES_MAX_CURVE   = 1024,
};

// The bucket that suits windows of `window` tokens: 2,048, or less so that at least eight fit into
// a window and one into the trained length.
int64_t ranges_default_bucket(int64_t window, int64_t trained_length);

// Returns −1 if there are more than RANGES_MAX_BUCKETS.
// - bucket: B; 0: log2
int ranges_of_buckets(int64_t length, int64_t bucket, struct position_range * ranges);

// L = 512, 1,024, …, the given lengths, and the whole window. Short windows start at W/8.
// - ranges: room for 72 + n_lengths
int ranges_of_prefixes(
        int64_t length, const int64_t * lengths, int n_lengths, struct position_range * ranges);

// At most RANGES_MAX_CURVE ranges. The first positions are omitted: their losses are large, and few
// tokens contribute.
int ranges_of_octaves(int64_t length, struct position_range * ranges);

// The same, as windows of `smooth` positions around points on a linear or log2 axis.
int ranges_of_average(int64_t length, int64_t smooth, bool is_log2, struct position_range * ranges);
