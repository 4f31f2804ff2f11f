#pragma once

// A group of windows in the middle: how far each is, what was found so far, and the recurrent
// states.
//
// In the folder, for group g (the number of its first window) after c calls: "g.partial", and
// "g.c.s.state" for the windows s that have a state. The states are written first and `partial`,
// which names c, last and in one step, so that there is always one checkpoint that is whole.

#include "eval/score.h"

// A window in the making.
struct score_slot {
    struct window       window;
    int64_t             at;  // tokens that the model has been fed
    float *             nll; // [n_tokens − 1], of targets 1 .. at
    uint8_t *           flags;
    struct score_norm * norms; // [max_norms]
    int64_t             n_norms, max_norms;
};

struct score_group {
    int64_t             first; // number of the first window
    int64_t             n;
    int64_t             n_calls;
    struct score_slot * slots; // [n]; slot s is sequence s of the session
};

bool score_checkpoint_save(const struct score_params * params, const struct score_group * group,
        struct lrnn_session * session, char * err, size_t err_size);

enum score_checkpoint { CHECKPOINT_NONE, CHECKPOINT_LOADED, CHECKPOINT_BAD };

// Fills slots and session if there is a checkpoint of this group. BAD: there is one that cannot be
// used, and err says why; the session is then empty.
enum score_checkpoint score_checkpoint_load(const struct score_params * params,
        struct score_group * group, struct lrnn_session * session, char * err, size_t err_size);

// Removes what does not belong to the newest checkpoint of group `first`; −1: everything, and the
// folder.
void score_checkpoint_clean(const struct score_params * params, int64_t first);
