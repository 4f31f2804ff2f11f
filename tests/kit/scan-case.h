#pragma once

// One case of a scan or a short convolution: an op with its inputs, and its error against the
// oracle.

#include "kit/check.h"
#include "kit/tensors.h"
#include "lrnn-ops.h"

#ifdef __cplusplus
extern "C" {
#endif

//
// Ragged batches of sequences and the ids that describe them to a scan.
//

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

//
// The oracle: the ops of src/ops/lrnn-ops.h as plain loops in double precision, written from the
// equations alone. No tiles, chunks or vectors, and no running maximum in the mLSTM state. The
// tests compare the kernels with it.
//

struct oracle {
    int64_t n_tokens;
    int64_t n_heads;
    int64_t d_out; // width of the output per head
    int64_t n_slots;
    int64_t slot_size; // numbers per slot

    double * out;     // [n_tokens][n_heads][d_out]   NaN for a token of no valid sequence
    double * weight;  // [n_tokens][n_heads]          weight of the output in the error; 1, except
                      //                              for quotients of mLSTM (oracle.c)
    double * state;   // [n_slots][slot_size]         after the op; mLSTM: S / exp(m), n / exp(m), m
    bool *   written; // [n_slots]                    false: the op must not touch the slot
};

// Compute the result of an op from the tensors of `args`, with the state from before the op. Free
// it with oracle_free.
struct oracle oracle_householder(const struct ggml_householder_scan_args * args);
struct oracle oracle_signed(const struct ggml_signed_scan_args * args);
struct oracle oracle_lstm(const struct ggml_lstm_scan_args * args);
struct oracle oracle_short_conv(const struct ggml_short_conv_args * args);

void oracle_free(struct oracle * o);

//
// Cases
//

struct test_scan {
    enum test_scan_op { TEST_HOUSEHOLDER, TEST_SIGNED, TEST_LSTM, TEST_CONV } op;
    union {
        struct ggml_householder_scan_args householder;
        struct ggml_signed_scan_args      sign;
        struct ggml_lstm_scan_args        lstm;
        struct ggml_short_conv_args       conv;
    };
    struct test_batch batch;
    char              text[200]; // describes the case in messages
};

extern const char * const test_path_names[4];

struct ggml_tensor ** test_scan_state(struct test_scan * s);
struct ggml_tensor ** test_scan_ids(struct test_scan * s);
struct oracle test_scan_oracle(const struct test_scan * s);

bool test_scan_has_path(const struct test_scan * s, enum ggml_scan_path path);

// True if the path gives equal bits for every cut into calls.
bool test_scan_is_step(const struct test_scan * s, enum ggml_scan_path path);

// Builds the op. Ends the program if the builder rejects it.
struct ggml_tensor * test_scan_build(struct test * t, struct test_arena * a,
        const struct test_scan * s, enum ggml_scan_path path);

// The same op on copies of the tokens idx[0 .. n − 1]. The caller sets the ids.
struct test_scan test_scan_gather(
        struct test_arena * a, const struct test_scan * s, const int64_t * idx, int64_t n);

// The error of the outputs, weighted, and of the slots that the op writes. mLSTM compares
// S · exp(m) and n · exp(m); heads differ by powers of e, so the error is that of the worst head.
double test_scan_nmse_out(const struct oracle * o, const struct ggml_tensor * op);
double test_scan_nmse_state(const struct oracle * o, const struct test_scan * s);

#ifdef __cplusplus
}
#endif
