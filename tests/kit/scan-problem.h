#pragma once

// Scans and short convolutions of every mode and shape, with random inputs.

#include "kit/scan-case.h"

#ifdef __cplusplus
extern "C" {
#endif

// The modes of the Householder scan: {beta, r and w} × {no gate, gate per head, gate per channel}
enum { TEST_RW = 3, TEST_HOUSEHOLDER_MODES = 6 };

enum test_signed_mode {
    MODE_NONE,       // A = 1
    MODE_HEAD,       // gate per head, any sign
    MODE_CHANNEL,    // gate per key channel, any sign
    MODE_CONST_HEAD, // the same gate for all tokens
    MODE_CONST_CHANNEL,
    MODE_BONUS, // RWKV-6: gate per channel, read before the update
    MODE_BONUS_HEAD,
    MODE_BONUS_NONE,
    MODE_MAMBA,
    MODE_MAMBA_SIGNED,
    MODE_MAMBA2,
    MODE_MAMBA2_SIGNED,
    MODE_MLSTM,      // gates as in a trained model
    MODE_MLSTM_HARD, // log_i and the argument of log_f from −hard to hard
    TEST_SIGNED_MODES,
};

// The modes of the short convolution: token shift, then {activation} × {no bias, bias}
enum { TEST_CONV_MODES = 1 + 2 * GGML_SHORT_CONV_ACTIVATIONS };

extern const char * const test_householder_names[TEST_HOUSEHOLDER_MODES];
extern const char * const test_signed_names[TEST_SIGNED_MODES];

// With an eps this large the denominator of mLSTM is eps, and the output shows the numerator Sᵀ c.
// The numerator is relative to exp(m), so m must be small: F32 rounds an m of 100 by 4e-6.
#define TEST_EPS_NUMERATOR 0x1p100f

struct test_problem {
    int               mode;
    int               d_k, d_v; // convolution: width − 1, channels; LSTM: any, length of a head
    int               H, n_h;
    int               heads; // selects the head counts of the inputs
    enum test_layout  layout;
    bool              state_gaps; // gaps between slots
    struct test_batch batch;

    double mean;             // of the keys
    double beta_lo, beta_hi; // a beta_hi of 0 means 2
    double gate_lo;          // smallest magnitude of the gates; the largest is 1. 0 means 0.8, with
                             // r and w 0.55
    float  eps;              // mLSTM; 0 means 1e-6
    double hard;  // mLSTM with hard gates; 0 means 100. LSTM: size of the gates; 0 means 1
    bool   faint; // mLSTM: log_i far below the m of the zero state
};

typedef struct test_scan test_make(
        struct test_arena * a, const struct test_problem * p, struct test_rng * rng);

// The mode of the LSTM scan is its form.
test_make test_make_householder, test_make_signed, test_make_conv, test_make_lstm;

// A Householder scan without random inputs: dense tensors of zeros; one head reads all others,
// except that q has H heads. Without a gate if its width is 0.
struct test_scan test_zero_householder(struct test_arena * a, const struct test_batch * batch,
        int64_t d_k, int64_t d_v, int64_t H, int64_t n_h, int64_t gate_width);

#ifdef __cplusplus
}
#endif
