#pragma once

// Compares two runs on the same text, window by window. Windows differ far more than models do, so
// only paired differences are meaningful.
//
// Runs are comparable if data, tokenizer and protocol are equal, so that windows contain the same
// tokens. Runs with different tokenizers are comparable in bits per byte, over the stretches of
// text that both scored.
//
// A difference is other − base: negative if the other is better.

#include "lrnn.h"
#include "eval/estimates/summary.h"

struct paired {
    struct stats_estimate difference; // nats per token, or bits per byte
    int64_t               won;        // windows in which the other is better, of difference.n
};

// True if two runs can be compared token by token. Otherwise err names the key that differs, with
// both values, and *bytes_only tells whether they can be compared in bits per byte.
bool comparison_allowed(const struct score_meta * base, const struct score_meta * other,
        bool * bytes_only, struct lrnn_error * err);

// Pairs the losses of equal ranges. Windows that only one run has, or that diverged in one, are
// excluded.
// - unit: LOSS_BPB for bits per byte, otherwise nats
void paired_losses(const struct summary * base, const struct losses * base_losses,
        const struct summary * other, const struct losses * other_losses, enum loss_unit unit,
        struct paired * out);

// True if the losses can be paired: their ranges are equal.
bool paired_same_ranges(const struct losses * a, const struct losses * b);

// A comparison token by token, from the buckets.
struct comparison {
    const struct summary * base;
    const struct summary * other;
    int                    n_buckets;
    struct paired *        buckets; // nats
    struct paired          all;
    int64_t                trained_length; // T, the larger of the two; 0: unknown
    struct paired beyond;     // all targets in buckets beyond T: the overall test; may be n = 0
    int64_t       n_left_out; // windows that only one run has
};

bool comparison_make(const struct summary * base, const struct summary * other,
        struct comparison * c, struct lrnn_error * err);
void comparison_free(struct comparison * c);

// A comparison of runs with different tokenizers. A stretch is bytes of one document that both runs
// scored completely, starting and ending between tokens of both. The unit of resampling is the
// window of `base` that contains it.
struct byte_comparison {
    int64_t               bytes;                   // compared
    int64_t               base_bytes, other_bytes; // scored
    struct stats_estimate base, other;             // bits per byte of the stretches
    struct paired         all;
    int64_t               base_trained, other_trained; // trained lengths
    struct paired         beyond;                      // stretches beyond both trained lengths
};

bool byte_comparison_make(const struct scores * base, const struct scores * other,
        int64_t base_trained, int64_t other_trained, struct byte_comparison * c,
        struct lrnn_error * err);
