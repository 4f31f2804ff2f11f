#pragma once

// Building the graph of one call. All tensors of tokens are [width, T] or [width, heads, T]: the
// tokens of all sequences of the call, one sequence after the other. Only the ops that take `ids`
// know where one ends.
//
// Errors are sticky: an op that is refused marks the graph, and building goes on with a tensor of
// the right shape; the caller looks once, at the end.

#include "run/model.h"
#include "ops/lrnn-ops.h"

struct graph_seq { // a sequence of the call
    int32_t seq;
    int64_t first, count; // its tokens in the batch
    int64_t position;     // of its first token
    int64_t visible; // rows of its cache that attention looks at, those behind its last token being masked
};

struct graph {
    struct ggml_context *     ctx;
    struct ggml_cgraph *      gf;
    const struct lrnn_model * model;
    int64_t                   n_tokens;  // T
    struct ggml_tensor *      ids;       // I32 [4 + n_snap, sequences]
    struct ggml_tensor *      positions; // I32 [T]
    struct ggml_tensor *      rows;      // I64 [T], of the caches
    const struct graph_seq *  seqs;
    int32_t                   n_seqs;
    enum ggml_scan_path       path;

    struct ggml_tensor * const * states; // of this layer [n_states], F32 [size, slots]
    struct ggml_tensor *
            cache_k; // of this layer, F32 [cache_size, n_cache, sequences of the session]
    struct ggml_tensor * cache_v;
    struct ggml_tensor *
            carry; // from layer to layer, where a family has such a thing (RWKV-7: v of the first)

    struct ggml_tensor **
            masks;  // [n_seqs] of attention, made by the first layer that needs them; NULL before
    int64_t window; // of the masks: all attention layers of a model have the same

    bool   failed;
    char * err;
    size_t err_size;
};

// y = W x (+ b); W [in, out], b [out] or NULL
struct ggml_tensor * graph_linear(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * b, struct ggml_tensor * x);

// x / sqrt(mean(x²) + eps) · w, over the first dimension; w NULL: 1
struct ggml_tensor * graph_rms_norm(
        struct graph * g, struct ggml_tensor * x, struct ggml_tensor * w, float eps);

// (x − mean) / sqrt(var + eps) · w + b, over the first dimension; w, b NULL: 1, 0
struct ggml_tensor * graph_layer_norm(struct graph * g, struct ggml_tensor * x,
        struct ggml_tensor * w, struct ggml_tensor * b, float eps);

// x / sqrt(Σx² + eps), over the first dimension
struct ggml_tensor * graph_l2_norm(struct graph * g, struct ggml_tensor * x, float eps);

// cap · tanh(x / cap); cap 0: x
struct ggml_tensor * graph_soft_cap(struct graph * g, struct ggml_tensor * x, float cap);

// x [K, heads, T], pairs (d, d + K/2) turned by position · theta^(−2d/K) / factors[d]; factors
// NULL: 1
struct ggml_tensor * graph_rope(
        struct graph * g, struct ggml_tensor * x, float theta, struct ggml_tensor * factors);

// The mask of attention for sequence i of the call, [visible, its tokens]: filled by the session;
// window 0: none
struct ggml_tensor * graph_mask(struct graph * g, int32_t i, int64_t window);

// The short convolution with state number `state` of the layer, x [channels, T]; weight NULL: x
// itself, with the activation
struct ggml_tensor * graph_conv(struct graph * g, int32_t state, struct ggml_tensor * weight,
        struct ggml_tensor * bias, enum ggml_short_conv_activation activation,
        struct ggml_tensor * x);

// x of the token before, [channels, T], zero before the first; state number `state` of the layer
struct ggml_tensor * graph_shift(struct graph * g, int32_t state, struct ggml_tensor * x);

// The recurrences with state number 0 of the layer; state, ids and path are filled in. They return
// [P, H, T].
struct ggml_tensor * graph_householder(struct graph * g, struct ggml_householder_scan_args args);
struct ggml_tensor * graph_signed(struct graph * g, struct ggml_signed_scan_args args);

// [width·heads·factors, T] as [width, heads, factors, T], the shape that the ops want
struct ggml_tensor * graph_heads(
        struct graph * g, struct ggml_tensor * x, int64_t width, int64_t heads, int64_t factors);

// σ(x), doubled where the model has eigenvalues in [-1,1]
struct ggml_tensor * graph_beta(struct graph * g, struct ggml_tensor * x);
