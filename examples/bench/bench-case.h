#pragma once

// A case of the op benchmark: a recurrence or a matrix product at one shape, as a graph with our op
// and, where ggml can express it, as a graph of stock ops that computes the same from the same
// inputs.
//
// Rules of the comparison:
// - Both sides read the state from a tensor that outlives the graph and store the new state there:
//   ours in place, stock by a copy of the tail of its result, as llama.cpp does.
// - If the stock op includes a function that ours expects as input (softplus of Δ, exp of a
//   log-gate), our graph computes it in a node of its own, and its time counts.
// - If an input of the stock op needs more preparation than ours (a negated vector, interleaved
//   sub-tokens, zeroed queries), the preparation is free.

#include "lrnn.h"
#include "lrnn-ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct op_shape {
    int64_t d_k; // width of a key, rows of a state; d_state of Mamba; taps of a convolution
    int64_t d_v; // width of a value, columns of a state; d_inner of Mamba; convolution channels
    int64_t heads;
    int64_t n_h;    // Householder factors per token
    int64_t tokens; // per sequence
    int64_t seqs;
    int64_t layers; // states to compute in turn: a single one would stay in the cache
};

enum op_gate { OP_GATE_NONE, OP_GATE_HEAD, OP_GATE_CHANNEL };

// Random contents of an input.
enum op_fill {
    OP_FILL_UNIFORM, // uniform in [lo, hi]
    OP_FILL_UNIT,    // rows of norm 1
    OP_FILL_TIMES,   // the previous input, each element times a number in [lo, hi]
    OP_FILL_FIRST,   // the previous input in the first factor of each token, zeros in the others
    OP_FILL_LAST,    // the same, in the last factor
    OP_FILL_CAUSAL,  // a mask: 0 where a token sees a row, −∞ elsewhere
};

enum { OP_INPUTS_MAX = 12 };

// Inputs of both sides, named as in lrnn-ops.h. Contiguous [width, heads, factors, seqs·tokens];
// a stock op reads the same memory as [width, heads, factors·tokens, seqs].
struct op_inputs {
    struct ggml_context * ctx;
    struct ggml_tensor *  ids;       // of our ops
    struct ggml_tensor *  stock_ids; // of ggml_ssm_scan: the slot of each sequence

    struct ggml_tensor * q, *k, *v, *beta, *gate, *r, *w;            // Householder scan
    struct ggml_tensor * c, *b, *x, *bonus, *dt, *A, *log_f, *log_i; // signed-gate scan
    struct ggml_tensor * weight;                                     // convolution, product
    struct ggml_tensor * weight_f32;                                 // the same weights
    struct ggml_tensor * mask;                                       // attention
    struct ggml_tensor * log_gate;                                   // if a node computes the gate
    struct ggml_tensor * stock_q, *stock_log_gate, *neg_w;           // of stock ops only

    int n;
    struct {
        struct ggml_tensor * tensor;
        enum op_fill         fill;
        float                lo, hi;
    } list[OP_INPUTS_MAX];
};

// Arguments of the functions that build a graph.
struct op_build {
    const struct bench_case * c;
    const struct op_shape *   s;
    const struct op_inputs *  in;
    struct ggml_context *     ctx;
    struct ggml_tensor *      state; // of one layer [values, seqs]
    enum ggml_scan_path       path;  // of our op
    struct lrnn_error *       err;
};

// The output of a layer: the d_v·heads values of token t begin at element first + t·stride.
struct op_output {
    struct ggml_tensor * tensor;
    struct ggml_tensor * store; // node that stores the new state; NULL: the op does it
    int64_t              first;
    int64_t              stride;
};

struct bench_case {
    const char *    name;
    const char *    what;       // one line
    const char *    stock_name; // NULL: no stock ops compute this
    double          goal;       // required speed-up over stock at `shape`; 0: none
    struct op_shape shape;
    enum op_gate    gate;
    bool            negative;   // gates of either sign
    bool            products;   // n_h may exceed 1
    bool            transposed; // the stock op stores states as [d_v][d_k]
    enum ggml_type  type;       // of the weights of a product
    double          nmse_max;   // largest difference of the two sides; 0: NMSE_MAX

    void (*inputs)(const struct bench_case * c, const struct op_shape * s, struct op_inputs * in);
    struct op_output (*ours)(const struct op_build * b);
    struct op_output (*stock)(const struct op_build * b);

    // why the stock ops cannot compute this shape, or NULL; absent: they can compute any
    const char * (*limit)(const struct op_shape * s);

    // values in the state of one sequence; absent: d_k·d_v·heads
    int64_t (*state)(const struct op_shape * s);
    enum ggml_type state_type;  // F32 or F16
    bool           keeps_state; // the op only reads it

    // operations per token, all heads
    double (*flops)(const struct bench_case * c, const struct op_shape * s);
};

// A case without a name is after the last.
extern const struct bench_case cases_householder[], cases_signed_gate[], cases_short_conv[],
        cases_attention[], cases_mul_mat[];

// Declares an input [ne0, ne1, ne2, ne3] for op_inputs_fill.
struct ggml_tensor * op_input(struct op_inputs * in, enum op_fill fill, float lo, float hi,
        int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);

// The same for a tensor of another type.
struct ggml_tensor * op_input_of(struct op_inputs * in, enum ggml_type type, enum op_fill fill,
        float lo, float hi, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);

// Fills all inputs. Sequence i gets slot i and `tokens` adjacent tokens.
void op_inputs_fill(struct op_inputs * in, const struct op_shape * s);

// n values of a tensor in F32 or F16, from byte `offset` on; and all of them, to be freed.
void op_floats_set(struct ggml_tensor * t, const float * data, size_t offset, int64_t n);
float * op_floats_get(const struct ggml_tensor * t);

// Values in the state of one sequence.
int64_t op_state_size(const struct bench_case * c, const struct op_shape * s);

// True if stock ops compute this case at this shape; otherwise *why is the reason.
bool op_has_stock(const struct bench_case * c, const struct op_shape * s, const char ** why);

// A uniform number in [lo, hi].
float op_random(uint64_t * seed, float lo, float hi);

// The output of a stock op. Its result is the outputs of all factors, followed by the new state,
// which is copied to `state`.
struct op_output op_stock_output(const struct op_build * b, struct ggml_tensor * result);
