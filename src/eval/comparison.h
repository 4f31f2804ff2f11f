#pragma once

// Two runs on the same text, window by window. Windows differ far more than models do, so only
// paired differences tell.
//
// Runs are comparable if data, tokenizer and protocol are the same: a window then is the same
// tokens. Runs with different tokenizers are comparable in bits per byte, over the stretches of
// text that both scored.
//
// A difference is other − base throughout: negative where the other is better.

#include "eval/summary.h"

struct paired {
    struct stats_estimate difference; // nats a token, or bits a byte
    int64_t               won;        // windows in which the other is better; of difference.n
};

// True if two runs may be compared token by token. Otherwise err names the key that differs, with
// both values, and *bytes_only says whether they may be compared in bits per byte.
bool comparison_allowed(const struct score_meta * base, const struct score_meta * other,
        bool * bytes_only, char * err, size_t err_size);

// Pairs every range of two groups of figures with equal ranges. Windows that only one run has, or
// that diverged in one, are left out.
// - unit: LOSS_BPB for bits a byte, otherwise nats
bool paired_losses(const struct summary * base, const struct losses * base_losses,
        const struct summary * other, const struct losses * other_losses, enum loss_unit unit,
        struct paired * out);

// The comparison as a whole, from the buckets.
struct comparison {
    const struct summary * base;
    const struct summary * other;
    int                    n_buckets; // looked at
    struct paired *        buckets;   // nats
    struct paired          all;
    int64_t                trained_length; // T, the larger of the two; 0: unknown
    struct paired
            beyond; // all targets in buckets that begin beyond T: the one overall test; n = 0 without any
    int64_t n_left_out; // windows that only one of them has
};

bool comparison_make(const struct summary * base, const struct summary * other,
        struct comparison * c, char * err, size_t err_size);
void comparison_free(struct comparison * c);

// The same for different tokenizers. A stretch is a run of bytes of one document that begins and
// ends between tokens of both and was scored by both throughout; the unit of resampling is the
// window of `base` that it lies in.
struct byte_comparison {
    int64_t               bytes;                   // compared
    int64_t               base_bytes, other_bytes; // scored
    struct stats_estimate base, other;             // bits a byte over these stretches
    struct paired         all;
    int64_t               base_trained, other_trained; // training lengths
    struct paired         beyond; // stretches beyond the training lengths of both
};

bool byte_comparison_make(const struct scores * base, const struct scores * other,
        int64_t base_trained, int64_t other_trained, struct byte_comparison * c, char * err,
        size_t err_size);
