#pragma once

// The ops of lrnn: two recurrences and a short convolution, as real ggml ops
// (GGML_OP_HOUSEHOLDER_SCAN, GGML_OP_SIGNED_SCAN, GGML_OP_SHORT_CONV) that every backend
// dispatches, ggml-rpc carries and profiles name.
//
// All three work on a batch of tokens that belong to several sequences of different length, and
// keep what a sequence has to remember (a matrix state, a convolution tail) in numbered slots of
// one persistent tensor, which the op reads and WRITES IN PLACE. ggml knows nothing of an op that
// writes one of its sources; src/graph-safety.h is what makes it safe inside a graph.
//
// Every tensor of tokens has the shape [width, heads, factors, tokens]. Width is contiguous; the
// other strides are free, so that views of a fused projection need no copy. A head count H_x may be
// any divisor of the H heads of the state: state head h reads head h / (H / H_x). "factors" is 1
// for all but the Householder products.
//
// A builder returns NULL and fills `err` with one sentence when a shape is illegal; a kernel never
// sees an illegal one.

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

//
// Sequences and slots
//

// `ids`, I32 [GGML_SCAN_SNAPS + n_snap, n_seqs], contiguous: how each sequence of the batch uses
// the slots of the state tensor. It is data, not a parameter of the graph, so that a graph (or a
// captured CUDA graph) serves every step.
enum ggml_scan_ids {
    GGML_SCAN_SLOT_IN = 0, // the slot with the state before the first token; -1: the zero state
    GGML_SCAN_SLOT_OUT =
            1, // the slot that receives the state after the last token; usually the same one
    GGML_SCAN_FIRST =
            2, // index in the batch of the sequence's first token; its tokens are adjacent
    GGML_SCAN_COUNT = 3, // how many tokens it has, 0 included
    GGML_SCAN_SNAPS =
            4, // then n_snap slots: number s receives the state as it was s + 1 tokens before the end; -1: not wanted.
               // s + 1 = count is the state before the first token; older ones are not
               // known here and not written.
};
// Reading one slot and writing another is a fork, or a step in a ring of slots that can be rewound,
// at the price of a step in place.

// True if the kernels may run on these ids: slots and tokens in range, every token in exactly one
// sequence, no slot written twice, and none written by one sequence and read by another. Call it on
// the host, before the ids are uploaded. (A kernel that meets a sequence out of range all the same
// answers NaN for its tokens and touches no state.)
GGML_API bool ggml_scan_ids_check(const int32_t * ids, int64_t n_snap, int64_t n_seqs,
        int64_t n_slots, int64_t n_tokens, char * err, size_t err_size);

// The state tensor as it is after `op` ran: a view of the whole state that depends on the op.
// Whatever reads a state in the same graph reads it through this view; a plain read would see the
// old or the new state, depending on the order of nodes.
GGML_API struct ggml_tensor * ggml_scan_state_after(
        struct ggml_context * ctx, struct ggml_tensor * op);

// True for the ops declared here, the ones that write src[0].
GGML_API bool ggml_is_scan(const struct ggml_tensor * op);

// Which kernel computes a recurrence. AUTO takes the chunked form where it exists and pays: on a
// CPU always, where a single token has the same bits as on STEP; on a card for long calls, where a
// number that is not finite may reach tokens before it, of the same chunk of 64. STEP gives the
// same bits for any cut of a sequence into calls; REFERENCE is the equation, line by line, for
// tests.
enum ggml_scan_path {
    GGML_SCAN_PATH_AUTO,
    GGML_SCAN_PATH_STEP,
    GGML_SCAN_PATH_CHUNK,
    GGML_SCAN_PATH_REFERENCE,
};

//
// Householder scan: the transition is a gate times a product of n_h generalized Householder
// matrices
//
//     S ← g_t ∘ S                                           once a token, before the first factor
//     for j = 1 .. n_h:   S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ    = (I − β_j k_j k_jᵀ) S + β_j k_j v_jᵀ
//     o_t = scale · Sᵀ q_t                                  once a token, after the last factor
//
// or, with `r` and `w` instead of β (diagonal plus rank one: RWKV-7), n_h = 1:
//
//     u = Sᵀ r                                              read before the gate
//     S ← g_t ∘ S − w uᵀ + k vᵀ
//     o_t = scale · Sᵀ q_t
//
struct ggml_householder_scan_args {
    struct ggml_tensor *
            state;            // F32 [d_k·d_v·H, slots]       head h: S[i][j] at (h·d_k + i)·d_v + j
    struct ggml_tensor * ids; // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * q;   // F32 [d_k, H_q, 1,   T]
    struct ggml_tensor * k;   // F32 [d_k, H_k, n_h, T]
    struct ggml_tensor * v;   // F32 [d_v, H_v, n_h, T]
    struct ggml_tensor *
            beta; // F32 [1,   H_b, n_h, T]       in [0,2] for eigenvalues in [-1,1]; taken as it is
    struct ggml_tensor *
            gate; // F32 [1 or d_k, H_g, 1, T]    a plain multiplier of any sign, per head or per key channel; NULL: 1
    struct ggml_tensor * r; // F32 [d_k, H_r, 1,   T]       with w, instead of beta
    struct ggml_tensor * w; // F32 [d_k, H_w, 1,   T]
    float                scale;
    enum ggml_scan_path  path;
};

// Returns o, F32 [d_v, H, T].
GGML_API struct ggml_tensor * ggml_householder_scan(struct ggml_context * ctx,
        const struct ggml_householder_scan_args * args, char * err, size_t err_size);

//
// Signed-gate scan: the transition is diagonal, of any sign
//
//     S ← A_t ∘ S + b_t x_tᵀ ,   y_t = scale · Sᵀ c_t
//
// What A_t is:
//   gate                 A_t[i][j] = gate[i], or one number for the whole head; NULL: 1                GLA, HGRN2, RetNet
//   gate + bonus         the same, but y_t = scale · (S + (bonus ∘ b_t) x_tᵀ)ᵀ c_t with S from before the update        RWKV-6
//   dt + A               A_t[i][j] = exp(dt[j] · A[i][j]), or 2 exp(…) − 1; and b_t x_tᵀ becomes b_t (dt ∘ x_t)ᵀ        Mamba
//                        with dt and A one number a head                                                 Mamba-2
//   log_f + log_i        mLSTM: f = exp(log_f), i = exp(log_i), with a normaliser n and both kept in range by a running maximum m:
//                            m' = max(log_f + m, log_i),  f' = exp(log_f + m − m'),  i' = exp(log_i − m')
//                            S ← f' S + i' b_t x_tᵀ ,   n ← f' n + i' b_t
//                            y_t = scale · Sᵀ c_t / (max(|scale · n·c_t|, exp(−m')) + eps)
//
enum ggml_signed_scan_form {
    GGML_SIGNED_SCAN_EXP,        // A = exp(dt A), in (0, 1]
    GGML_SIGNED_SCAN_TWO_EXP_M1, // A = 2 exp(dt A) − 1, in (−1, 1]
};

struct ggml_signed_scan_args {
    struct ggml_tensor *
            state; // F32 [d_k·d_v·H, slots]       as above; mLSTM: [(d_k·d_v + d_k + 1)·H, slots], a head is S, then n, then m
    struct ggml_tensor * ids;   // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * c;     // F32 [d_k, H_c, 1, T]         query, r, C
    struct ggml_tensor * b;     // F32 [d_k, H_b, 1, T]         key, B
    struct ggml_tensor * x;     // F32 [d_v, H_x, 1, T]         value, x
    struct ggml_tensor * gate;  // F32 [1 or d_k, H_g, 1, T], or T = 1 for a constant gate
    struct ggml_tensor * bonus; // F32 [d_k, H_u]
    struct ggml_tensor *
            dt; // F32 [d_v, H_d, 1, T] for Mamba, [1, H_d, 1, T] for Mamba-2; after softplus and clamp
    struct ggml_tensor * A; // F32 [d_v, d_k, H_a] for Mamba, [1, 1, H_a] for Mamba-2; any strides
    struct ggml_tensor * log_f;      // F32 [1, H_f, 1, T]           logarithm of the forget gate
    struct ggml_tensor * log_i;      // F32 [1, H_i, 1, T]           logarithm of the input gate
    enum ggml_signed_scan_form form; // of dt + A
    float                      scale;
    float                      eps; // of log_f + log_i
    enum ggml_scan_path        path;
};

// Returns y, F32 [d_v, H, T].
GGML_API struct ggml_tensor * ggml_signed_scan(struct ggml_context * ctx,
        const struct ggml_signed_scan_args * args, char * err, size_t err_size);

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
    struct ggml_tensor *
            state; // F32 [channels·(width − 1), slots]   input w of the tail at w·channels + c
    struct ggml_tensor * ids;    // I32 [4 + n_snap, n_seqs]
    struct ggml_tensor * x;      // F32 [channels, T]                   rows contiguous
    struct ggml_tensor * weight; // F32 [width, channels], contiguous; NULL: token shift
    struct ggml_tensor * bias;   // F32 [channels] or NULL

    enum ggml_short_conv_activation activation;
};

// Returns y, F32 [channels, T].
GGML_API struct ggml_tensor * ggml_short_conv(struct ggml_context * ctx,
        const struct ggml_short_conv_args * args, char * err, size_t err_size);

//
// Checks of the caller's choice. The kernels compute with whatever they are given: a NaN stays a
// NaN, β = 3 expands.
//
enum ggml_scan_check {
    GGML_SCAN_CHECK_FINITE = 1 << 0, // every input, the state after and the output are finite
    GGML_SCAN_CHECK_BETA   = 1 << 1, // β in [0, 2]
    GGML_SCAN_CHECK_GATE   = 1 << 2, // gates in [-1, 1]
    GGML_SCAN_CHECK_KEYS =
            1 << 3, // ‖k‖² ≤ 1 + 1e-5: with β in [0, 2] and a gate in [-1, 1] the state cannot grow
};

// Examines the data of a computed op, wherever it lies. Returns false and names the first offending
// tensor, head and token. Inputs that the graph allocator has reused by then are not what the op
// saw: mark them with ggml_set_output.
GGML_API bool ggml_scan_check_values(
        const struct ggml_tensor * op, int checks, char * err, size_t err_size);

#ifdef __cplusplus
}
#endif
