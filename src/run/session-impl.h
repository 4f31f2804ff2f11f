#pragma once

// A session from the inside, shared by session*.c, sequence.c and trace.c.

#include "lrnn.h"
#include "run/forward.h"
#include "run/session.h"
#include "run/threads.h"

struct seq {
    int64_t length;     // in tokens
    int64_t rewindable; // number of tokens it can be rewound
    int64_t logits;     // 1 + the row of the session's logits for its last token; 0: none
};

struct lrnn_session {
    struct lrnn_model *        model;
    struct lrnn_session_params params;

    ggml_backend_t       backends[DEVICES_MAX]; // one per device, the CPU last
    int                  n_backends;
    ggml_backend_sched_t sched;
    struct threads       threads;
    struct states        states;
    struct seq *         seqs; // [n_seqs]

    struct forward forward;     // the allocated graph
    struct batch   built;       // the batch it was built for
    bool           can_compute; // the graph is complete

    struct trace * trace; // NULL: none

    float * logits; // [n_logits, V]
    int64_t n_logits;
    int64_t cap_logits;
};

// Makes room for n rows of logits.
bool session_reserve_logits(struct lrnn_session * s, int64_t n, struct lrnn_error * err);

// Drops all logits.
void session_forget_logits(struct lrnn_session * s);

//
// trace.c: hands the inputs of matrices and scans to a callback of the user (lrnn_trace), through
// the callback of ggml's scheduler
//
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
