#pragma once

// Scores windows with a model: appends the negative log-probability of every target to a score
// file.
//
// Windows are evaluated in groups, and every call of the model is fixed by the index of the window:
// which windows, which tokens. Matrix products round differently in other calls; because the calls
// are fixed, resumed runs and shards give the same bytes as an uninterrupted run. Checkpoints fall
// between calls.

#include "lrnn.h"
#include "eval/scores/score-file.h"

// Where the state is emptied.
enum score_reset {
    SCORE_RESET_WINDOW,   // at the start of a window
    SCORE_RESET_DOCUMENT, // also at the start of a document; its first token is still predicted by
                          // the previous document
    SCORE_RESET_NEVER,    // only at the start of the run: one endless sequence
};

// The part of a score file's header that follows from model, session, data and windows. The caller
// sets tool, model, dataset, protocol, same_targets, probe, n_batch, group and shards. Strings
// belong to the arguments.
struct model_facts;
struct score_meta score_meta_of(const struct lrnn_model * model,
        const struct lrnn_session_params * session, const struct model_facts * facts,
        const struct windows * windows, const struct window_params * window,
        enum score_reset reset);

struct score_progress {
    int64_t window;     // first window of the group
    int64_t n_windows;  // in the group
    int64_t at;         // tokens done, of the window that is furthest
    int64_t length;     // tokens of the longest window
    int64_t n_tokens;   // evaluated by this call of score_run
    int64_t n_resumed;  // tokens that came from a checkpoint instead
    bool    not_finite; // a non-finite loss has occurred
};

// Called after every call of the model. Return false to stop with a checkpoint.
typedef bool (*score_callback)(const struct score_progress * progress, void * user);

struct score_params {
    struct lrnn_session_params session; // threads and cache type
    int64_t                    n_batch; // tokens of one window per call
    int64_t                    group;   // windows evaluated together
    enum score_reset           reset;
    bool                       state_norm; // record norms of the states
    int64_t first, next, end; // windows of this shard; those before next are in the file
    bool    resume;           // use an existing checkpoint; otherwise it is removed
    int64_t max_length;       // tokens of the longest window

    int64_t        checkpoint_every; // tokens of a window; 0: only when stopped
    const char *   checkpoints;      // folder, created and removed as needed
    uint8_t        identity[32];     // of the run; checkpoints of other runs are ignored
    score_callback callback;         // may be NULL
    void *         user;
};

struct score_result {
    int64_t n_windows;                    // appended by this call
    int64_t n_tokens;                     // evaluated by it
    int64_t n_resumed;                    // tokens from a checkpoint
    int64_t n_diverged;                   // appended windows with a non-finite loss
    int64_t diverged_window, diverged_at; // the first of them, and the position
    char    warning[1200];                // why a checkpoint was ignored; "": none
};

// If the callback stops it, the error is LRNN_ERROR_CANCELLED, and there is a checkpoint.
bool score_run(struct lrnn_model * model, struct windows * windows, struct score_writer * writer,
        const struct score_params * params, struct score_result * result, struct lrnn_error * err);

// Tokens per second, measured for about a second with calls like those of score_run. 0: failed.
double score_speed(struct lrnn_model * model, struct windows * windows,
        struct lrnn_session_params session, int64_t group, int64_t n_batch);

//
// Checkpoints (score-checkpoint.c)
//

// Checkpoints of a group of windows: the progress of each, its losses so far, and the recurrent
// states.
//
// Files in the folder, for group g (the index of its first window) after c calls: "g.partial", and
// "g.c.s.state" for each window s that has a state. States are written first. The file "partial",
// which contains c, is replaced last and atomically, so there is always one complete checkpoint.

// A window in progress.
struct score_slot {
    struct window       window;
    int64_t             at;  // tokens fed
    float *             nll; // [n_tokens − 1], of targets 1 … at
    uint8_t *           flags;
    struct score_norm * norms; // [max_norms]
    int64_t             n_norms, max_norms;
};

struct score_group {
    int64_t             first; // index of the first window
    int64_t             n;
    int64_t             n_calls;
    struct score_slot * slots; // [n]; slot s is sequence s of the session
};

bool score_checkpoint_save(const struct score_params * params, const struct score_group * group,
        struct lrnn_session * session, struct lrnn_error * err);

enum score_checkpoint {
    CHECKPOINT_NONE,
    CHECKPOINT_LOADED,
    CHECKPOINT_BAD, // unusable; err says why
};

// Fills slots and session from the checkpoint of this group. Without one, or if it is bad, the
// session is empty.
enum score_checkpoint score_checkpoint_load(const struct score_params * params,
        struct score_group * group, struct lrnn_session * session, struct lrnn_error * err);

// Removes all files except the newest checkpoint of group `first`; −1: all files and the folder.
void score_checkpoint_clean(const struct score_params * params, int64_t first);
