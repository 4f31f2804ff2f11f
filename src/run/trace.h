#pragma once

// Hands the inputs of matrices and scans to a callback of the user (lrnn_trace), through the
// callback of ggml's scheduler.

#include "lrnn.h"
#include "run/graph-inputs.h"

struct trace;

// The kinds of nodes and the callback are in the session's parameters. NULL: out of memory.
struct trace * trace_new(const struct lrnn_session_params * params);
void trace_free(struct trace * t);

// Selects the nodes of a graph to trace. Call it before the graph is allocated: the scheduler then
// replaces sources by copies, which no longer tell their weight.
bool trace_graph(struct trace * t, const struct lrnn_model * model, const struct states * states,
        struct ggml_cgraph * graph, struct lrnn_error * err);

// Starts the trace of a batch. Returns false if memory is short.
bool trace_begin(struct trace * t, const struct batch * batch);

// A ggml_backend_sched_eval_callback with the trace as its user data.
bool trace_node(struct ggml_tensor * node, bool ask, void * user);

// Fails if the callback stopped, memory was short, or a node was not computed.
bool trace_end(const struct trace * t, struct lrnn_error * err);
