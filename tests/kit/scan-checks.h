#pragma once

// The properties of every scan, checked for one case.

#include "kit/scan-case.h"

#ifdef __cplusplus
extern "C" {
#endif

struct test_limits {
    struct test_worst step;  // step and reference; auto if there is no chunk path
    struct test_worst chunk; // chunk; auto if there is a chunk path
};

void test_limits_print(const struct test_limits * l);

// Every path agrees with the oracle. Outputs and states have the same bits for every number of
// threads. Slots that the ids do not name are not touched.
void test_scan_run(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, const int * threads, int n_threads);

// Sequences may be cut into calls anywhere: the step path gives the bits of one call, the others
// stay within their limit. A call takes up to `most` tokens per sequence, from decode (1) to
// prefill in pieces. Returns the number of calls.
int64_t test_scan_cuts(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, int64_t most, struct test_rng * r);

// Snapshot i of a run over n tokens is the state after n − i − 1 tokens, bit by bit on the step
// path. Snapshots do not change the results of any path. A snapshot that is not wanted, or older
// than the state before the first token, is not written. A fork is also tested as a ring: its
// newest snapshot takes the slot of its source.
void test_scan_snapshots(
        struct test * t, struct test_arena * a, struct test_scan * s, struct test_limits * l);

// A NaN in column `column` of x, an input with one element per column of head 0, at a token of the
// first sequence: from that token on it stays a NaN in its column. It changes nothing else on the
// step path, and no other sequence on any path.
void test_scan_nan(struct test * t, struct test_arena * a, struct test_scan * s,
        struct ggml_tensor * x, int64_t factor, int64_t column, int64_t after);

// A sequence with ids out of range gives NaN and touches nothing; its neighbors are computed as
// usual. Returns the number of cases.
int test_scan_out_of_range(struct test * t, struct test_arena * a, struct test_scan * s);

#ifdef __cplusplus
}
#endif
