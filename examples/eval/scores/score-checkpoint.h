#pragma once

// Checkpoints of a group of windows: the progress of each, its losses so far, and the recurrent
// states.
//
// Files in the folder, for group g (the index of its first window) after c calls: "g.partial", and
// "g.c.s.state" for each window s that has a state. States are written first. The file "partial",
// which contains c, is replaced last and atomically, so there is always one complete checkpoint.

#include "lrnn.h"
#include "eval/scores/score.h"

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
