#pragma once

// Handing over what a graph computes with: the watching of lrnn.h, on top of the scheduler's
// callback.

#include "run/model.h"

struct trace;

// NULL: out of memory. What and whom to tell is in the session's parameters.
struct trace * trace_new(const struct lrnn_session_params * params);
void trace_free(struct trace * w);

// Notes which nodes of a graph are watched. Before the graph is allocated: the scheduler puts
// copies in the place of sources, and a copy no longer tells which weight it is.
// - states: of each layer; the first is that of its recurrence
bool trace_graph(struct trace * w, const struct lrnn_model *                   model,
        struct ggml_tensor * (*states)[LAYER_STATES_MAX], struct ggml_cgraph * graph, char * err,
        size_t err_size);

// Room for the sequences of the call that is about to be computed; the caller fills it. NULL: out
// of memory.
struct lrnn_trace_seq * trace_seqs(struct trace * w, int32_t n_seqs);

// For ggml_backend_sched_set_eval_callback, with the watch as its user data.
bool trace_node(struct ggml_tensor * node, bool ask, void * user);

// After computing: false if something was not handed over, or if whoever watches wanted to stop.
bool trace_ok(const struct trace * w, char * err, size_t err_size);
