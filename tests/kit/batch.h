#pragma once

// Ragged batches of sequences and the ids that describe them to a scan.

#include "kit/tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TEST_MAX_SEQS = 64 };

struct test_batch {
    int     n_seqs;
    int64_t len[TEST_MAX_SEQS];
    int     n_snap; // snapshots per sequence
    int     turn;   // chooses which sequences are updated in place, forked, or start from zero
};

int64_t test_batch_tokens(const struct test_batch * b);

// The number of slots: enough for test_batch_ids, and some that no sequence names.
int64_t test_batch_slots(const struct test_batch * b);

// Makes ids. Sequence s is updated in place, forked, or starts from zero if (s + turn) % 3 is 0, 1
// or 2. Slots are interleaved, sequences are stored in reverse order, and all snapshots are wanted.
struct ggml_tensor * test_batch_ids(struct test_arena * a, const struct test_batch * b);

// Fills the slots from which a sequence starts with values in −1.5 .. 1.5 and all others with NaN,
// which must not reach any result.
void test_fill_slots(
        struct ggml_tensor * state, const struct ggml_tensor * ids, struct test_rng * r);

#ifdef __cplusplus
}
#endif
