#pragma once

// Functions that build graphs. Activations are [width, T] or [width, heads, T]: the tokens of all
// sequences of a batch, one sequence after the other. Only ops that take `ids` see the boundaries.
//
// Errors are sticky: a rejected op marks the graph as failed and becomes a tensor of its shape. The
// caller checks once, at the end.

#include "lrnn.h"
#include "ops/lrnn-ops.h"
#include "ops/product-limits.h"
#include "model/model.h"

// In a batch of at most this many tokens every token is bit-identical to the same token computed
// alone, if matrices are Q8_0, Q4_0, Q4_K or Q6_K: sequences decoded together, drafts.
enum { GRAPH_FEW_TOKENS = 32 };

_Static_assert(
        1 + (int) LRNN_DRAFT_MAX <= GRAPH_FEW_TOKENS, "a token and its draft are a small batch");
_Static_assert((int) GRAPH_FEW_TOKENS < PRODUCT_MANY_COLUMNS,
        "products of a small batch do not change their kernel with the number of tokens");

struct graph_seq { // the tokens of one sequence in a batch
    int32_t         seq;
    int64_t         first;     // of its tokens in the batch
    int64_t         count;     // number of its tokens
    int64_t         position;  // of the first one in the sequence
    int64_t         visible;   // cache rows that attention reads; the mask hides those past the end
    int64_t         n_outputs; // logits are computed for this many tokens at the end
    const int32_t * tokens;    // [count]
    int64_t         hidden;    // attention does not see this many first rows; drafts only
};

struct batch { // tokens computed together, one sequence after the other
    struct graph_seq * seqs;
    int32_t            n_seqs;
    int64_t            n_tokens;  // T
    int64_t            n_outputs; // over all sequences

    // A batch of the draft block: h [D, T] of the tokens before. NULL: of the model
    const float * hidden;
};

struct graph_inputs {
    struct ggml_tensor *  tokens;    // I32 [T]
    struct ggml_tensor *  positions; // I32 [T]
    struct ggml_tensor *  rows;      // I64 [T], the cache row of each token
    struct ggml_tensor *  ids;       // I32 [4 + n_rewind, n_seqs], the slots of each sequence
    struct ggml_tensor *  outputs;   // I32 [n_outputs], tokens with logits; NULL: none
    struct ggml_tensor ** masks;     // [n_seqs], F16 [visible, count]; NULL: no attention layer
    struct ggml_tensor *  hidden;    // F32 [D, T], of the tokens before; NULL: not a draft
};

struct graph {
    struct ggml_context *       ctx;
    struct ggml_cgraph *        gf;
    const struct lrnn_model *   model;
    const struct graph_inputs * inputs;
    const struct graph_seq *    seqs; // [n_seqs]
    int32_t                     n_seqs;
    int64_t                     n_tokens; // T
    enum ggml_scan_path         path;

    // of the current layer
    struct ggml_tensor * const * states;  // [n_states], F32 [state_size, slots]
    struct ggml_tensor *         cache_k; // [values of a token, rows, sequences of the session]
    struct ggml_tensor *         cache_v; // NULL: k contains v

    struct ggml_tensor * carry; // handed from layer to layer (RWKV-7: v of the first layer)

    bool                failed;
    struct lrnn_error * err;
};

// y = W x; W [in, out]
struct ggml_tensor * graph_product(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * x);

// y = W x (+ b); W [in, out], b [out] or NULL
struct ggml_tensor * graph_linear(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * b, struct ggml_tensor * x);

// The same for every head: W [in, out, H], x [in, H, T], a view → [out, H, T]
struct ggml_tensor * graph_product_heads(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * x);

// Puts nodes next to each other into the graph, before those that are added later. Threads do not
// wait between nodes that do not depend on each other, which matters if there are few tokens. With
// many tokens a node should be close to its readers instead, so this does nothing.
void graph_group(struct graph * g, int n, struct ggml_tensor * const nodes[]);

// x / sqrt(mean(x²) + eps) · w, over the first dimension; w NULL: 1
struct ggml_tensor * graph_rms_norm(
        struct graph * g, struct ggml_tensor * x, struct ggml_tensor * w, float eps);

// (x − mean) / sqrt(var + eps) · w + b, over the first dimension; w, b NULL: 1, 0
struct ggml_tensor * graph_layer_norm(struct graph * g, struct ggml_tensor * x,
        struct ggml_tensor * w, struct ggml_tensor * b, float eps);

// x / sqrt(Σx² + eps), over the first dimension
struct ggml_tensor * graph_l2_norm(struct graph * g, struct ggml_tensor * x, float eps);

// scale · x; scale 0: x
struct ggml_tensor * graph_scale(struct graph * g, struct ggml_tensor * x, float scale);

// cap · tanh(x / cap); cap 0: x
struct ggml_tensor * graph_soft_cap(struct graph * g, struct ggml_tensor * x, float cap);

// x [K, heads, T], the pairs (d, d + n/2) of the first n entries turned by
// position · theta^(−2d/n) / factors[d]; factors NULL: 1. neighbors: the pairs (2d, 2d + 1)
struct ggml_tensor * graph_rope(struct graph * g, struct ggml_tensor * x, int64_t n, float theta,
        struct ggml_tensor * factors, bool neighbors);

// The short convolution of x [channels, T], with state number `state` of the layer; weight NULL:
// only the activation
struct ggml_tensor * graph_conv(struct graph * g, int32_t state, struct ggml_tensor * weight,
        struct ggml_tensor * bias, enum ggml_short_conv_activation activation,
        struct ggml_tensor * x);

// Token shift: x [channels, T] of the previous token, 0 before the first; state number `state`
struct ggml_tensor * graph_shift(struct graph * g, int32_t state, struct ggml_tensor * x);

// The recurrence of the layer → [P, H, T]. args.state (state number 0), args.ids and args.path are
// set here.
struct ggml_tensor * graph_householder(struct graph * g, struct ggml_householder_scan_args args);
struct ggml_tensor * graph_signed_gate(struct graph * g, struct ggml_signed_scan_args args);
struct ggml_tensor * graph_lstm(struct graph * g, struct ggml_lstm_scan_args args);

// The recurrence of an mLSTM: q, k [H·K, T], v [H·P, T] and the gates before their activations,
// log i and f [H, T] → [P, H, T]. The scale is K^-1/2.
struct ggml_tensor * graph_mlstm(struct graph * g, struct ggml_tensor * q, struct ggml_tensor * k,
        struct ggml_tensor * v, struct ggml_tensor * log_i, struct ggml_tensor * f, float epsilon);

// [width·heads·factors, T] as [width, heads, factors, T], the shape that the scans expect
struct ggml_tensor * graph_heads(
        struct graph * g, struct ggml_tensor * x, int64_t width, int64_t heads, int64_t factors);

// β = σ(x), or 2σ(x) for eigenvalues in [-1,1]
struct ggml_tensor * graph_beta(struct graph * g, struct ggml_tensor * x);
