#pragma once

// The inputs of a graph: each is declared and filled here. Everything that varies from call to call
// is an input, so that one graph serves all calls of the same shape.

#include "lrnn.h"
#include "model/graph.h"
#include "run/states.h"

// Returns false if memory is short.
bool graph_inputs_declare(struct graph_inputs * in, struct ggml_context * ctx,
        const struct lrnn_model * model, const struct batch * batch, int32_t n_rewind);
void graph_inputs_free(struct graph_inputs * in);

// Fills the inputs of an allocated graph. Fails if a position needs more than 32 bits or if slots
// collide.
bool graph_inputs_fill(const struct graph_inputs * in, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, struct lrnn_error * err);
