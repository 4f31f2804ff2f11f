#pragma once

// The graph of a call: tokens → embedding → layers → logits.

#include "run/graph.h"
#include "run/states.h"

struct forward_call { // what a graph is built for
    const struct graph_seq * seqs;
    int32_t                  n_seqs;
    int64_t                  n_tokens;  // of all sequences
    int64_t                  n_outputs; // tokens whose logits are wanted
    int32_t                  n_rewind;
    enum ggml_scan_path      path;
};

struct forward {
    struct ggml_context * ctx;
    struct ggml_cgraph *  graph;
    struct ggml_tensor *  tokens;    // I32 [T]
    struct ggml_tensor *  positions; // I32 [T]
    struct ggml_tensor *  rows;      // I64 [T], where k and v of each token go in the caches
    struct ggml_tensor *  ids;       // I32 [4 + n_rewind, sequences]
    struct ggml_tensor *  out_ids;   // I32 [outputs], NULL: none
    struct ggml_tensor ** masks;     // [sequences] of attention; NULL: none
    int64_t               window;    // of the masks, 0: none
    struct ggml_tensor *  logits;    // [V, outputs], NULL: none
};

// Nodes that the graph of a call has at most.
size_t forward_max_nodes(const struct lrnn_model * model, int32_t n_seqs);

// Builds it; nothing is allocated. What was in *f before is freed.
bool forward_build(struct forward * f, const struct lrnn_model * model,
        const struct memory * memory, const struct forward_call * call, char * err,
        size_t err_size);
void forward_free(struct forward * f);
