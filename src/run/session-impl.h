#pragma once

// A session from the inside, shared by session.c, session-eval.c and sequence.c.

#include "lrnn.h"
#include "run/forward.h"
#include "run/session.h"
#include "run/threads.h"
#include "run/trace.h"

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
