#pragma once

// The ops of lrnn: two linear scans, the scan of an LSTM, and a short convolution. They are real
// ggml ops (GGML_OP_HOUSEHOLDER_SCAN, GGML_OP_SIGNED_SCAN, GGML_OP_LSTM_SCAN, GGML_OP_SHORT_CONV):
// every backend dispatches them, ggml-rpc carries them, and profiles name them.
//
// All of them process a batch of tokens that belong to several sequences of different length. The
// memory of a sequence (a matrix state, the tail of a convolution) is one of the numbered slots of
// a persistent tensor, which the op reads and WRITES IN PLACE. ggml assumes that no op writes to
// its sources; src/run/graph-safety.h makes this safe inside a graph.
//
// Every tensor of tokens has the shape [width, heads, factors, tokens]. Width is contiguous. The
// other strides are free, so views of a fused projection need no copy. The head count H_x may be
// any divisor of the H heads of the state: state head h reads head h / (H / H_x). "factors" is 1
// except for Householder products and the gates of an LSTM.
//
// If a shape is not valid, a builder returns NULL and writes one sentence to `err`. Kernels only
// see valid shapes.

#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>

struct lrnn_error; // see lrnn.h

#ifdef __cplusplus
extern "C" {
#endif

// ---- Sequences and slots ------------------------------------------------------------------------

// `ids`, I32 [GGML_SCAN_SNAPS + n_snap, n_seqs], contiguous: how each sequence of the batch uses
// the slots of the state tensor. The ids are data, not parameters of the graph, so one graph (or
// one captured CUDA graph) serves every call of the same shape.
enum ggml_scan_ids {
    GGML_SCAN_SLOT_IN = 0,  // slot with the state before the first token; -1: the zero state
    GGML_SCAN_SLOT_OUT = 1, // slot that receives the state after the last token; may be SLOT_IN
    GGML_SCAN_FIRST = 2,    // index in the batch of the first token; the tokens are adjacent
    GGML_SCAN_COUNT = 3,    // number of tokens, 0 or more
    GGML_SCAN_SNAPS = 4,    // then n_snap snapshot slots, see below
};
// Snapshot slot s receives the state s + 1 tokens before the end; -1: no snapshot. With s + 1 =
// count it receives the state before the first token. Older states are not known here and not
// written.
//
// Reading one slot and writing another is a fork, or a step in a ring of slots that can be rewound.
// It costs the same as an update in place.

// Returns true if the kernels may run on these ids: slots and tokens are in range, every token
// belongs to exactly one sequence, no slot is written twice, and no slot is written by one sequence
// and read by another. Call it on the host, before the ids are uploaded. (If a kernel still meets a
// sequence that is out of range, it writes NaN for its tokens and touches no state.)
GGML_API bool ggml_scan_ids_check(const int32_t * ids, int64_t n_snap, int64_t n_seqs,
        int64_t n_slots, int64_t n_tokens, struct lrnn_error * err);

// The state tensor after `op`: a view of the whole state that depends on the op. Every reader of a
// state in the same graph must use this view; a plain read would see the old or the new state,
// depending on the order of the nodes.
GGML_API struct ggml_tensor * ggml_scan_state_after(
        struct ggml_context * ctx, struct ggml_tensor * op);

// True for the ops declared here, which write src[0].
GGML_API bool ggml_is_scan(const struct ggml_tensor * op);

// Element of the op_params of a GGML_OP_MUL_MAT. 1: a column of the result must not depend on the
// number of columns, so the CPU kernel in F32, for many columns, is not used.
enum { LRNN_OP_PARAM_BATCH_INVARIANT = 2 };

// The kernel that computes a scan.
enum ggml_scan_path {
    // The chunk path where it exists and is faster. On the CPU: always; a single token equals STEP
    // bit for bit. On CUDA: for long calls; there a non-finite value may reach earlier tokens
    // of the same chunk of 64 factors.
    GGML_SCAN_PATH_AUTO,
    GGML_SCAN_PATH_STEP,      // the same bits for any cut of a sequence into calls
    GGML_SCAN_PATH_CHUNK,     // STEP where a backend has no chunk path, as the CPU for r and w
    GGML_SCAN_PATH_REFERENCE, // the equations, line by line, for tests
};

//
// Householder scan: the transition is a gate times n_h generalized Householder matrices
//
//     S ← g_t ∘ S                                           once per token, before the first factor
//     for j = 1 .. n_h:   S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ    = (I − β_j k_j k_jᵀ) S + β_j k_j v_jᵀ
//     o_t = scale · Sᵀ q_t                                  once per token, after the last factor
//
// or, with `r` and `w` instead of β (diagonal plus rank one: RWKV-7), n_h = 1:
//
//     u = Sᵀ r                                              read before the gate
//     S ← g_t ∘ S − w uᵀ + k vᵀ
//     o_t = scale · Sᵀ q_t
//
struct ggml_householder_scan_args {
    struct ggml_tensor * state; // F32 [d_k·d_v·H, slots]     head h: S[i][j] at (h·d_k + i)·d_v + j
    struct ggml_tensor * ids;   // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * q;     // F32 [d_k, H_q, 1,   T]
    struct ggml_tensor * k;     // F32 [d_k, H_k, n_h, T]
    struct ggml_tensor * v;     // F32 [d_v, H_v, n_h, T]
    struct ggml_tensor * beta;  // F32 [1,   H_b, n_h, T]     [0,2] for eigenvalues in [-1,1]
    struct ggml_tensor * gate;  // F32 [1 or d_k, H_g, 1, T]  per head or per key channel; NULL: 1
    struct ggml_tensor * r;     // F32 [d_k, H_r, 1,   T]     with w, instead of beta
    struct ggml_tensor * w;     // F32 [d_k, H_w, 1,   T]
    float                scale;
    enum ggml_scan_path  path;
};

// Returns o, F32 [d_v, H, T].
GGML_API struct ggml_tensor * ggml_householder_scan(struct ggml_context * ctx,
        const struct ggml_householder_scan_args * args, struct lrnn_error * err);

//
// Signed-gate scan: the transition is diagonal, of any sign
//
//     S ← A_t ∘ S + b_t x_tᵀ ,   y_t = scale · Sᵀ c_t
//
// The arguments determine A_t:
//
//   gate            A_t[i][j] = gate[i], or one gate per head; NULL: 1        GLA, HGRN2, RetNet
//
//   gate + bonus    A_t as above, but the output reads S before the update:               RWKV-6
//                       y_t = scale · (S + (bonus ∘ b_t) x_tᵀ)ᵀ c_t
//
//   dt + A          A_t[i][j] = exp(dt[j] · A[i][j]), or 2 exp(…) − 1                      Mamba
//                   and b_t x_tᵀ becomes b_t (dt ∘ x_t)ᵀ
//                   with one dt and one A per head                                       Mamba-2
//
//   log_f + log_i   f = exp(log_f), i = exp(log_i), with a normalizer n;                   mLSTM
//                   a running maximum m keeps both in range:
//                       m' = max(log_f + m, log_i)
//                       f' = exp(log_f + m − m') ,   i' = exp(log_i − m')
//                       S ← f' S + i' b_t x_tᵀ ,     n ← f' n + i' b_t
//                       y_t = scale · Sᵀ c_t / (max(|scale · n·c_t|, exp(−m')) + eps)
//
enum ggml_signed_scan_form {
    GGML_SIGNED_SCAN_EXP,        // A = exp(dt A), in (0, 1]
    GGML_SIGNED_SCAN_TWO_EXP_M1, // A = 2 exp(dt A) − 1, in (−1, 1]
};

struct ggml_signed_scan_args {
    struct ggml_tensor * state; // F32 [d_k·d_v·H, slots]     as above;
                                // mLSTM: [(d_k·d_v + d_k + 1)·H, slots], per head S, then n, then m
    struct ggml_tensor * ids;   // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * c;     // F32 [d_k, H_c, 1, T]       query, r, C
    struct ggml_tensor * b;     // F32 [d_k, H_b, 1, T]       key, B
    struct ggml_tensor * x;     // F32 [d_v, H_x, 1, T]       value, x
    struct ggml_tensor * gate;  // F32 [1 or d_k, H_g, 1, T]  or T = 1 for a constant gate
    struct ggml_tensor * bonus; // F32 [d_k, H_u]
    struct ggml_tensor * dt;    // F32 [d_v, H_d, 1, T]       Mamba-2: [1, H_d, 1, T];
                                //                            after softplus and clamp
    struct ggml_tensor * A;     // F32 [d_v, d_k, H_a]        Mamba-2: [1, 1, H_a]; any strides
    struct ggml_tensor * log_f; // F32 [1, H_f, 1, T]         logarithm of the forget gate
    struct ggml_tensor * log_i; // F32 [1, H_i, 1, T]         logarithm of the input gate

    enum ggml_signed_scan_form form; // of dt + A
    float                      scale;
    float                      eps; // of log_f + log_i
    enum ggml_scan_path        path;
};

// Returns y, F32 [d_v, H, T].
GGML_API struct ggml_tensor * ggml_signed_scan(struct ggml_context * ctx,
        const struct ggml_signed_scan_args * args, struct lrnn_error * err);

//
// LSTM scan: not linear, because the output y of a head enters the gates of its next token
//
//     (i, f, z, o) = x_t + Rᵀ y                    of one head, each [d]
//
//   LSTM    c ← σ(f) c + σ(i) tanh(z) ,            y = σ(o) tanh(c)
//
//   sLSTM   f = exp(log σ(f)), i = exp(i), with a normalizer n and a running maximum m:
//               m' = max(log σ(f) + m, i)          with n = 0: m' = i
//               f' = exp(log σ(f) + m − m') ,      i' = exp(i − m') ,  both at most 1
//               c ← f' c + i' tanh(z) ,            n ← f' n + i' ,     y = σ(o) c / n
//
enum ggml_lstm_scan_form {
    GGML_LSTM_SCAN_LSTM,
    GGML_LSTM_SCAN_SLSTM,
    GGML_LSTM_SCAN_FORMS, // the number of forms
};

struct ggml_lstm_scan_args {
    struct ggml_tensor * state; // F32 [4·d·H, slots]         per head y, c, n, m;
                                // LSTM: [2·d·H, slots], y, c
    struct ggml_tensor * ids;   // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * x;     // F32 [d, H, 4, T]           i, f, z, o, biases included
    struct ggml_tensor * R;     // F32 [4·d, d, H]            contiguous; row k holds what y[k] adds
                                //                            to i, f, z and o

    enum ggml_lstm_scan_form form;
};

// Returns y, F32 [d, H, T].
GGML_API struct ggml_tensor * ggml_lstm_scan(struct ggml_context * ctx,
        const struct ggml_lstm_scan_args * args, struct lrnn_error * err);

//
// Short convolution: causal, depthwise, over the tokens of each sequence; and token shift
//
//     y_t[c] = f( bias[c] + Σ_w weight[w][c] · x_{t − (width − 1) + w}[c] )
//     y_t[c] = x_{t − 1}[c]                            token shift: no weight, width 2
//
// The state is the last width − 1 inputs of a sequence, oldest first.
//
enum ggml_short_conv_activation { // f
    GGML_SHORT_CONV_NONE,         // x
    GGML_SHORT_CONV_SILU,         // x / (1 + exp(−x))
    GGML_SHORT_CONV_ACTIVATIONS,  // the number of activations
};

struct ggml_short_conv_args {
    struct ggml_tensor * state;  // F32 [channels·(width − 1), slots]  input w at w·channels + c
    struct ggml_tensor * ids;    // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * x;      // F32 [channels, T]                  rows contiguous
    struct ggml_tensor * weight; // F32 [width, channels]              contiguous; NULL: token shift
    struct ggml_tensor * bias;   // F32 [channels]                     or NULL

    enum ggml_short_conv_activation activation;
};

// Returns y, F32 [channels, T].
GGML_API struct ggml_tensor * ggml_short_conv(struct ggml_context * ctx,
        const struct ggml_short_conv_args * args, struct lrnn_error * err);

// Checks a node that another process built: it has exactly the type, shape, parameters and sources
// that a builder would give it. The sources must be valid tensors. The ids are not checked.
GGML_API bool ggml_scan_check_node(const struct ggml_tensor * op, struct lrnn_error * err);

// ---- Threads ------------------------------------------------------------------------------------

// Sets the number of threads of a CPU backend. Unlike ggml_backend_cpu_set_n_threads it needs no
// library of ggml-cpu to link: one that suits the CPU may be loaded at run time.
GGML_API void ggml_backend_set_threads(ggml_backend_t backend, int n_threads);

#ifdef __cplusplus
}
#endif
