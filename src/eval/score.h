#pragma once

// Windows through a model: the negative logarithm of the probability of every target, appended to a
// score file.
//
// Windows are evaluated in groups, side by side, and every call of the model is fixed by the
// window's number: which windows, which tokens. So a run that was stopped and continued, and shards
// of it, give the bytes of a run that was not, although matrix products round differently for other
// calls. Checkpoints fall between calls.

#include "eval/score-file.h"

enum score_reset {
    SCORE_RESET_WINDOW,   // the state is empty where a window begins
    SCORE_RESET_DOCUMENT, // also where a document begins inside a window; what predicts its first token is the document before
    SCORE_RESET_NEVER,    // only where the run begins: one endless stream
};

struct score_progress {
    int64_t window;     // the first of the group
    int64_t n_windows;  // in the group
    int64_t at;         // tokens of the longest of them that are done
    int64_t length;     // of its tokens
    int64_t n_tokens;   // evaluated by this call of score_run
    int64_t n_resumed;  // that came out of a checkpoint instead
    bool    not_finite; // a number that is not finite has been met
};

// Called after every call of the model. False: stop here, with a checkpoint.
typedef bool (*score_callback)(const struct score_progress * progress, void * user);

struct score_params {
    int32_t          n_threads; // 0: as many as there are cores
    int64_t          n_batch;   // tokens of one window in a call
    int64_t          group;     // windows side by side
    enum score_reset reset;
    bool             state_norm;       // record how large the state is, now and then (norm_is_due)
    int64_t          first, next, end; // windows of this shard; those before `next` are in the file
    bool             resume;     // a checkpoint that is there is used; otherwise it is removed
    int64_t          max_length; // of a window, tokens
    int64_t          checkpoint_every; // tokens of a window; 0: only where the run is stopped
    const char *   checkpoints;  // folder for them: made when there is one, gone when there is none
    uint8_t        identity[32]; // of the run: a checkpoint of another is not used
    score_callback callback;     // may be NULL
    void *         user;
};

enum score_status {
    SCORE_DONE,
    SCORE_STOPPED, // a checkpoint was saved
    SCORE_FAILED,
};

struct score_result {
    int64_t n_windows;  // appended by this call
    int64_t n_tokens;   // evaluated by it
    int64_t n_resumed;  // tokens that came out of a checkpoint
    int64_t n_diverged; // windows with a number that is not finite, of those appended
    int64_t diverged_window, diverged_at; // the first of them, and the position
    char    warning[512];                 // why a checkpoint was not used, "" if nothing happened
};

enum score_status score_run(struct lrnn_model * model, struct windows * windows,
        struct score_writer * writer, const struct score_params * params,
        struct score_result * result, char * err, size_t err_size);

// Tokens per second, measured for about a second with calls like those of score_run. 0: failed.
double score_speed(struct lrnn_model * model, struct windows * windows, int32_t n_threads,
        int64_t group, int64_t n_batch);
