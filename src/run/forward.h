#pragma once

// The graph of a batch: tokens → embedding → layers → logits. That of the draft block: tokens and h
// → its layer → logits.

#include "lrnn.h"
#include "model/graph.h"
#include "run/states.h"

//
// The inputs of a graph: each is declared and filled here. Everything that varies from call to call
// is an input, so that one graph serves all calls of the same shape.
//

// Returns false if memory is short.
bool graph_inputs_declare(struct graph_inputs * in, struct ggml_context * ctx,
        const struct lrnn_model * model, const struct batch * batch, int32_t n_rewind);
void graph_inputs_free(struct graph_inputs * in);

// Fills the inputs of an allocated graph. Fails if a position needs more than 32 bits or if slots
// collide.
bool graph_inputs_fill(const struct graph_inputs * in, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, struct lrnn_error * err);

// ---- The graph ----------------------------------------------------------------------------------

struct forward {
    struct ggml_context * ctx;
    struct ggml_cgraph *  graph;
    struct graph_inputs   inputs;
    struct ggml_tensor *  logits; // [V, outputs], NULL: none
    struct ggml_tensor *  hidden; // of a draft: h' [D, T]
};

// An upper bound for the number of nodes of a graph.
size_t forward_max_nodes(const struct lrnn_model * model, int32_t n_seqs, bool draft);

// Builds the graph of a batch without allocating it. Frees the previous graph in *f.
bool forward_build(struct forward * f, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, enum ggml_scan_path path,
        struct lrnn_error * err);
void forward_free(struct forward * f);
