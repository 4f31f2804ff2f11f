#pragma once

// A case of the op benchmark: a recurrence at one shape, as a graph with our op and, where stock
// ggml can express it, as a graph of stock ops that computes the same from the same inputs.
//
// Rules of the comparison:
//  - both sides find the state in a tensor that outlives the graph and leave the new state there: ours in place, stock by a copy of the
//    tail of its result, as llama.cpp does it;
//  - where the stock op fuses a function that ours takes as done (softplus of Δ, exp of a log-gate), our graph computes it in a node
//    of its own, and pays for it;
//  - where an input of the stock op needs more preparation than ours (a negated vector, interleaved sub-tokens, zeroed queries), it
//    gets that for free.

#include "lrnn-ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct op_shape {
    int64_t d_k; // width of a key; rows of a head's state; d_state of Mamba; taps of a convolution
    int64_t d_v; // width of a value; columns of a head's state; d_inner of Mamba; channels of a convolution
    int64_t heads;
    int64_t n_h;    // Householder factors a token
    int64_t tokens; // of one sequence
    int64_t seqs;
    int64_t layers; // the op is computed for as many states in turn: with one, a state never leaves the cache, unlike in a model
};

enum op_gate {
    OP_GATE_NONE,
    OP_GATE_HEAD,
    OP_GATE_CHANNEL,
};

// How an input is filled with random numbers.
enum op_fill {
    OP_FILL_UNIFORM, // in [lo, hi]
    OP_FILL_UNIT,    // rows of norm 1
    OP_FILL_TIMES,   // the input declared before it, each number times one in [lo, hi]
    OP_FILL_FIRST, // the input declared before it in the first factor of each token, zeros in the others
    OP_FILL_LAST, // the same, in the last factor
};

enum { OP_INPUTS_MAX = 12 };

// The inputs of both sides, named as in lrnn-ops.h. Contiguous [width, heads, factors,
// seqs·tokens], so that a stock op that wants [width, heads, factors·tokens, seqs] reads the same
// memory.
struct op_inputs {
    struct ggml_context * ctx;
    struct ggml_tensor *  ids;       // ours
    struct ggml_tensor *  stock_ids; // ggml_ssm_scan: the slot of each sequence

    struct ggml_tensor * q, *k, *v, *beta, *gate, *r, *w;            // Householder
    struct ggml_tensor * c, *b, *x, *bonus, *dt, *A, *log_f, *log_i; // signed
    struct ggml_tensor * weight;                                     // convolution
    struct ggml_tensor * log_gate; // the logarithm of gate; a gate that is only a node
    struct ggml_tensor * stock_q, *stock_log_gate, *neg_w; // what only a stock op wants

    int n;
    struct {
        struct ggml_tensor * tensor;
        enum op_fill         fill;
        float                lo, hi;
    } list[OP_INPUTS_MAX];
};

// Where a graph leaves the outputs of a layer: those of token t, d_v·heads numbers, begin at
// element first + t·stride of `tensor`.
struct op_output {
    struct ggml_tensor * tensor;
    struct ggml_tensor * store; // the node that brings the new state home; NULL: the op itself does
    int64_t              first;
    int64_t              stride;
};

struct bench_case {
    const char * name;
    const char * what;       // one line
    const char * stock_name; // NULL: no stock ops compute this
    double goal; // how many times faster than stock ours has to be at `shape`; 0: only informative
    struct op_shape shape;
    enum op_gate    gate;
    bool            negative;   // gates of either sign
    bool            products;   // n_h may be more than 1
    bool            transposed; // a head's state is kept [d_v][d_k] by the stock op

    void (*inputs)(const struct bench_case * c, const struct op_shape * s, struct op_inputs * in);
    struct op_output (*ours)(const struct bench_case * c, const struct op_shape * s,
            const struct op_inputs * in, struct ggml_context * ctx, struct ggml_tensor * state,
            enum ggml_scan_path path, char * err, size_t err_size);
    struct op_output (*stock)(const struct bench_case * c, const struct op_shape * s,
            const struct op_inputs * in, struct ggml_context * ctx, struct ggml_tensor * state);
    const char * (*limit)(const struct op_shape *
                    s); // why the stock ops cannot do this shape, or NULL; absent: they can do any
    int64_t (*state)(
            const struct op_shape * s); // numbers of one sequence's state; absent: d_k·d_v·heads
    double (*flops)(
            const struct bench_case * c, const struct op_shape * s); // of one token, all heads
};

extern const struct bench_case cases_householder[];
extern const struct bench_case cases_signed_gate[];
extern const struct bench_case cases_short_conv[];
extern const int               n_cases_householder;
extern const int               n_cases_signed_gate;
extern const int               n_cases_short_conv;

// Declares an input [ne0, ne1, ne2, ne3] that op_inputs_fill will fill.
struct ggml_tensor * op_input(struct op_inputs * in, enum op_fill fill, float lo, float hi,
        int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);

// Fills all of them, and ids: sequence i owns slot i and `tokens` adjacent tokens.
bool op_inputs_fill(struct op_inputs * in, const struct op_shape * s, char * err, size_t err_size);

// Numbers of the state of one sequence.
int64_t op_state_size(const struct bench_case * c, const struct op_shape * s);

// True if stock ops compute this case at this shape; else *why says why not.
bool op_has_stock(const struct bench_case * c, const struct op_shape * s, const char ** why);

// A uniform number in [lo, hi], and the state of the generator, which must not be 0.
float op_random(uint64_t * seed, float lo, float hi);

// Copies the tail of `result`, from number `first` on, over the whole of `state`: how a stock graph
// keeps its state.
struct ggml_tensor * op_store_tail(struct ggml_context * ctx, struct ggml_tensor * result,
        int64_t first, struct ggml_tensor * state);
