#pragma once

// The graph of a batch: tokens → embedding → layers → logits.

#include "lrnn.h"
#include "run/graph-inputs.h"
#include "model/graph.h"

struct forward {
    struct ggml_context * ctx;
    struct ggml_cgraph *  graph;
    struct graph_inputs   inputs;
    struct ggml_tensor *  logits; // [V, outputs], NULL: none
};

// An upper bound for the number of nodes of a graph.
size_t forward_max_nodes(const struct lrnn_model * model, int32_t n_seqs);

// Builds the graph of a batch without allocating it. Frees the previous graph in *f.
bool forward_build(struct forward * f, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, enum ggml_scan_path path,
        struct lrnn_error * err);
void forward_free(struct forward * f);
