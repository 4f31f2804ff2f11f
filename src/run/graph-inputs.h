#pragma once

// The inputs of a graph: each is declared and filled here. Everything that varies from call to call
// is an input, so that one graph serves all calls of the same shape.

#include "run/states.h"

struct graph_seq { // the tokens of one sequence in a batch
    int32_t         seq;
    int64_t         first;     // of its tokens in the batch
    int64_t         count;     // number of its tokens
    int64_t         position;  // of the first one in the sequence
    int64_t         visible;   // cache rows that attention reads; the mask hides those past the end
    int64_t         n_outputs; // logits are computed for this many tokens at the end
    const int32_t * tokens;    // [count]
};

struct batch { // tokens computed together, one sequence after the other
    struct graph_seq * seqs;
    int32_t            n_seqs;
    int64_t            n_tokens;  // T
    int64_t            n_outputs; // over all sequences
};

struct graph_inputs {
    struct ggml_tensor *  tokens;    // I32 [T]
    struct ggml_tensor *  positions; // I32 [T]
    struct ggml_tensor *  rows;      // I64 [T], the cache row of each token
    struct ggml_tensor *  ids;       // I32 [4 + n_rewind, n_seqs], the slots of each sequence
    struct ggml_tensor *  outputs;   // I32 [n_outputs], tokens with logits; NULL: none
    struct ggml_tensor ** masks;     // [n_seqs], F16 [visible, count]; NULL: no attention layer
};

// Returns false if memory is short.
bool graph_inputs_declare(struct graph_inputs * in, struct ggml_context * ctx,
        const struct lrnn_model * model, const struct batch * batch, int32_t n_rewind);
void graph_inputs_free(struct graph_inputs * in);

// Fills the inputs of an allocated graph. Fails if a position needs more than 32 bits or if slots
// collide.
bool graph_inputs_fill(const struct graph_inputs * in, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, char * err, size_t err_size);
