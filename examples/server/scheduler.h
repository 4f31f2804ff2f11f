#pragma once

// One thread owns the session and runs the jobs of all clients side by side. Every call holds one
// token of each running generation, with its draft, and at most n_batch tokens of prompts, so a
// generation waits for at most one such call per token. Prompts are computed in order of arrival,
// cut at multiples of n_batch and where a state is stored.

#include "lrnn.h"
#include "draft-options.h"
#include "job.h"
#include "generate/prefix-tree.h"

struct choice;
struct choice_tools;
struct scheduler;

struct scheduler_params {
    struct lrnn_model *        model;
    struct lrnn_session_params session; // threads and cache type; the rest follows from these:
    int32_t                    n_seqs;  // choices that run at the same time
    int32_t                    n_batch; // tokens of prompts per call
    struct draft_options       draft;
    int32_t                    n_cache;      // tokens per sequence in attention layers
    int64_t                    n_queue;      // choices that wait
    size_t                     state_memory; // bytes of stored states
    int64_t                    state_every;  // store the state of a prompt every N tokens; 0: never
};

// NULL: error. Starts the thread.
struct scheduler * scheduler_new(const struct scheduler_params * params, struct lrnn_error * err);

enum submit_status {
    SUBMIT_OK,
    SUBMIT_FULL, // the queue has no room
    SUBMIT_STOPPING,
};

// Queues all choices of a job, or none.
enum submit_status scheduler_submit(struct scheduler * s, struct job * job);

// Cancels what is left of a job and waits until the scheduler has let go of it.
void scheduler_abandon(struct scheduler * s, struct job * job);

// The session, to ask what states it can hold. Only the thread may change it.
struct lrnn_session * scheduler_session(const struct scheduler * s);

// Makes a state available to prompts that begin with its tokens.
bool scheduler_add_state(struct scheduler * s, const struct state_file * state);

// Refuses further jobs. Those that were accepted still run.
void scheduler_drain(struct scheduler * s);

// Waits for the jobs and ends the thread.
void scheduler_free(struct scheduler * s);

struct slot_info {
    bool    is_busy;
    int64_t n_prompt, n_fed, n_new;
};

struct scheduler_stats {
    struct prefix_tree_stats states;
    int64_t                  n_waiting; // choices
    int64_t                  n_running;
    int64_t                  n_prompt_tokens; // computed, since the start
    int64_t                  n_cached_tokens; // not computed, thanks to a stored state
    int64_t                  n_new_tokens;
    int64_t                  n_calls;
    int64_t                  n_decoded; // generations in these calls
    double                   seconds;   // in lrnn_eval
};

struct scheduler_stats scheduler_get_stats(struct scheduler * s);

// The sequences of the session, [n_seqs].
void scheduler_get_slots(struct scheduler * s, struct slot_info * slots);

// ---- snapshot.c ---------------------------------------------------------------------------------
//
// What the prefix tree holds for a sequence of tokens: the state after them. If they were scored,
// also their scores, and the logits after the last, which score whatever token comes next. So a
// scored prompt, too, continues from a stored state.

// A snapshot of the first c->n_fed tokens of a choice, made by malloc. NULL: out of memory.
// - logits: after the last of them [n_vocab], of a choice whose tokens are scored; NULL: only the
//   state
void * snapshot_new(struct lrnn_session * session, const struct choice * c, const float * logits,
        int64_t n_vocab, size_t * size);

// How much a snapshot for a choice holds, for prefix_tree_find: more is more.
int32_t snapshot_rank(const struct choice * c);

// Continues a choice from the snapshot of its first n tokens.
bool snapshot_restore(const void * snapshot, struct lrnn_session * session, struct choice_tools * t,
        struct choice * c, int64_t n, struct lrnn_error * err);
