#pragma once

// One case of a scan or a short convolution: an op with its inputs, and its error against the
// oracle.

#include "kit/batch.h"
#include "kit/check.h"
#include "kit/oracle.h"

#ifdef __cplusplus
extern "C" {
#endif

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
