#pragma once

// What the tests of the ops share: numbers that are the same on every machine, tensors with gaps in
// them, graphs of one op, ragged batches, and the measure of error.

#include "oracle.h"

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

//
// Checks
//

struct test {
    int64_t n_checks;
    int64_t n_failed;
};

// Counts a check; prints the sentence if it failed. Returns `ok`.
bool test_check(struct test * t, bool ok, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 3, 4)))
#endif
        ;

// true if the text has this word, not as a part of a longer one
bool test_has_word(const char * text, const char * word);

// Prints how many checks were made and how many failed; returns the exit code of main.
int test_end(const struct test * t, const char * name);

// The worst error seen among many cases that share a limit.
struct test_worst {
    const char * what;
    double       limit;
    double       value;
    int64_t      n;
    char         where[256];
};

// Checks value ≤ limit and keeps the worst. A NaN fails.
void test_bound(struct test * t, struct test_worst * w, double value, const char * where);
void test_worst_print(const struct test_worst * w);

//
// Random numbers
//

struct test_rng {
    uint64_t state;
};

uint64_t test_next(struct test_rng * r);            // 64 random bits
int64_t test_below(struct test_rng * r, int64_t n); // 0 .. n − 1
double test_uniform(struct test_rng * r, double lo, double hi);
double test_normal(struct test_rng * r); // mean 0, variance 1

// a divisor of n: with pick counting up, all of them in turn
int64_t test_divisor(int64_t n, int pick);

//
// Tensors
//

// Every tensor has a block of memory of its own that ends with its last byte, so that the address
// sanitizer sees the first read or write beyond it; whatever lies between the rows of a strided
// tensor is NaN, so that a kernel that ignores a stride is seen without it.
struct test_arena {
    struct ggml_context *   ctx;
    ggml_backend_t          backend;
    int                     n_blocks;
    int                     cap_blocks;
    void **                 blocks;
    ggml_backend_buffer_t * buffers;
};

void test_arena_init(struct test_arena * a);
void test_arena_free(struct test_arena * a);

enum test_layout {
    TEST_DENSE, // contiguous
    TEST_FUSED, // the rows of a token stand together, as in a view of a fused projection; gaps between tokens
    TEST_GAPS,        // gaps after every row, factor and token
    TEST_FACTORS_OUT, // a plane of all tokens for each factor
    TEST_HEADS_OUT,   // a plane of all tokens for each head
    TEST_REVERSED,    // dimension 0 is the outermost
    TEST_LAYOUTS,
};

// a tensor with data (uninitialised where it is dense); ne of trailing dimensions may be 1
struct ggml_tensor * test_tensor(struct test_arena * a, enum ggml_type type,
        enum test_layout layout, const char * name, int64_t ne0, int64_t ne1, int64_t ne2,
        int64_t ne3);

// gives a block to a tensor that has none
void test_alloc(struct test_arena * a, struct ggml_tensor * x);

// dense copy of x at the indices idx[0 .. n − 1] of dimension `dim`, which is its last
struct ggml_tensor * test_gather(struct test_arena * a, const struct ggml_tensor * x, int dim,
        const int64_t * idx, int64_t n);

float test_get(const struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
void test_set(struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3, float value);

void test_fill(struct ggml_tensor * x, float value);
void test_fill_normal(struct ggml_tensor * x, struct test_rng * r, double scale);
void test_fill_uniform(struct ggml_tensor * x, struct test_rng * r, double lo, double hi);
// rows of length 1 in double, rounded to F32: normalize(mean · e + noise), where e is one direction
// common to all rows
void test_fill_unit(struct ggml_tensor * x, struct test_rng * r, double mean);

//
// Batches
//

enum { TEST_MAX_SEQS = 4 };

struct test_batch {
    int     n_seqs;
    int64_t len[TEST_MAX_SEQS];
    int     n_snap;
    int     turn; // which sequence is updated in place, which is forked, which starts from zero
};

int64_t test_batch_tokens(const struct test_batch * b);
int64_t test_batch_slots(
        const struct test_batch * b); // enough for the ids below, and some that no sequence names

// ids where sequence s of the batch, by (s + turn) % 3, is updated in place, forked, or starts from
// zero; slots are interleaved, the sequences stand in the batch in reverse order, each wants its
// snapshots
struct ggml_tensor * test_batch_ids(struct test_arena * a, const struct test_batch * b);

// fills the slots that a sequence starts from with numbers in −1.5 .. 1.5 and all others with NaN:
// no result may come from those
void test_fill_slots(
        struct ggml_tensor * state, const struct ggml_tensor * ids, struct test_rng * r);

//
// Running
//

// Computes the graph that ends in `op` on the CPU backend. The output holds no NaN before, so that
// every NaN in it was written.
bool test_compute(struct test_arena * a, struct ggml_tensor * op, int n_threads);

// a copy of the data of a contiguous tensor; the caller frees
float * test_copy(const struct ggml_tensor * x);
void test_restore(struct ggml_tensor * x, const float * data);

// Σ (a − b)² / Σ b². NaN must meet NaN.
double test_nmse(const float * a, const float * b, int64_t n);

//
// What every op promises
//

// An op with its inputs.
struct test_scan {
    enum test_scan_op { TEST_HOUSEHOLDER, TEST_SIGNED, TEST_CONV } op;
    union {
        struct ggml_householder_scan_args householder;
        struct ggml_signed_scan_args      sign;
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
bool test_scan_is_step(
        const struct test_scan * s, enum ggml_scan_path path); // promises equal bits for any cut
struct ggml_tensor * test_scan_build(struct test * t, struct test_arena * a,
        const struct test_scan * s, enum ggml_scan_path path);

// the same op on the tokens idx[0 .. n − 1], copied; ids are the caller's to set
struct test_scan test_scan_gather(
        struct test_arena * a, const struct test_scan * s, const int64_t * idx, int64_t n);

// Error against the oracle: over the outputs, by weight, and over the slots that the op writes. For
// mLSTM S · exp(m) and n · exp(m) are compared; heads differ in size by powers of e there, so the
// worst head counts.
double test_scan_nmse_out(const struct oracle * o, const struct ggml_tensor * op);
double test_scan_nmse_state(const struct oracle * o, const struct test_scan * s);

struct test_limits {
    struct test_worst step;  // step and reference, and auto where there is no chunked path
    struct test_worst chunk; // chunk, and auto where there is a chunked path
};

void test_limits_print(const struct test_limits * l);

// Every path against the oracle; outputs and states the same to the bit for every number of
// threads; slots that ids do not name are not touched.
void test_scan_run(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, const int * threads, int n_threads);

// Any cut of the sequences into calls gives the bits of one call on the step path, and stays within
// the limit on the others. Each call takes up to `most` tokens of each sequence, so decoding in a
// batch (1), prefill in pieces and everything between are covered. Returns the number of calls.
int64_t test_scan_cuts(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, int64_t most, struct test_rng * r);

// Snapshot i of a run over n tokens is the state of a run over n − i − 1 tokens, to the bit on the
// step path; one that is not wanted, or older than the state before the first token, is not
// written. A sequence that is forked is tested also as a ring, where the newest snapshot takes the
// slot that the sequence came from.
void test_scan_snapshots(
        struct test * t, struct test_arena * a, struct test_scan * s, struct test_limits * l);

// A sequence whose ids are out of range gives NaN and touches nothing; its neighbours are computed
// as if it were not there. Returns the number of cases.
int test_scan_out_of_range(struct test * t, struct test_arena * a, struct test_scan * s);

#ifdef __cplusplus
}
#endif
