#pragma once

// A session from the inside.

#include "lrnn.h"
#include "run/forward.h"
#include "run/threads.h"

struct seq {
    int64_t length;     // in tokens
    int64_t rewindable; // number of tokens it can be rewound
    int64_t logits;     // 1 + the row of the session's logits for its last token; 0: none
    int64_t unseen;     // its first tokens, which the draft block has not seen
};

// A graph that is computed again and again: of the model, or of its draft block.
struct pass {
    ggml_backend_sched_t sched;
    struct threads       threads;
    struct forward       forward;     // the allocated graph
    struct batch         built;       // the batch it was built for
    bool                 can_compute; // the graph is complete
};

struct lrnn_session {
    struct lrnn_model *        model;
    struct lrnn_session_params params;

    ggml_backend_t backends[DEVICES_MAX]; // one per device, the CPU last
    int            n_backends;
    struct states  states;
    struct seq *   seqs; // [n_seqs]
    struct pass    main;
    struct pass    draft; // empty without draft_block

    struct trace * trace; // NULL: none; of main

    float * logits; // [n_logits, V]
    int64_t n_logits;
    int64_t cap_logits;
};

// Builds the graph of a batch, unless the last one has the same shape, and fills its inputs.
bool pass_prepare(struct lrnn_session * s, struct pass * pass, const struct batch * batch,
        struct lrnn_error * err);
bool pass_compute(struct lrnn_session * s, struct pass * pass, const struct batch * batch,
        struct lrnn_error * err);

// Makes room for n rows of logits.
bool session_reserve_logits(struct lrnn_session * s, int64_t n, struct lrnn_error * err);

// Drops all logits.
void session_forget_logits(struct lrnn_session * s);

// Fails if there is no such sequence.
bool session_check_seq(const struct lrnn_session * session, int32_t seq, struct lrnn_error * err);

// The largest possible length of a sequence; INT64_MAX without attention layers.
int64_t session_max_length(const struct lrnn_session * session);

// The bytes of lrnn_seq_get for a sequence of `length` tokens. *n_draft of them, at the end, belong
// to the draft block; lrnn_seq_set does not need these.
size_t session_bytes_of(const struct lrnn_session * session, int64_t length, size_t * n_draft);

// The logits [V] of the last token of a sequence; NULL: none.
const float * session_seq_logits(const struct lrnn_session * session, int32_t seq);

// Makes `logits` [V] those of the last token of a sequence, and row 0 of lrnn_logits. Cannot fail
// after session_reserve_logits.
bool session_set_logits(
        struct lrnn_session * session, int32_t seq, const float * logits, struct lrnn_error * err);

//
// draft.c: guesses of the draft block
//

// Whether it can guess what follows a sequence: it must know h of the last token.
bool session_may_draft(const struct lrnn_session * session, int32_t seq);

struct session_draft {
    int32_t   seq;    // each at most once
    int32_t   n;      // tokens to guess; with the one before them they must fit the cache
    int32_t * tokens; // [1 + n], the next token of the sequence, and the guesses
    int32_t   row;    // for session_draft
};

// Guesses tokens after sequences that may draft.
bool session_draft(struct lrnn_session * session, struct session_draft * drafts, int32_t n,
        struct lrnn_error * err);

// The recurrent state of layer il. Sets *offset to the slot of the sequence. NULL: an attention
// layer or an empty sequence.
struct ggml_tensor * session_seq_state(
        const struct lrnn_session * session, int32_t seq, int32_t il, size_t * offset);

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
