#pragma once

// How large the state of a sequence is, which tells a recurrence that explodes from one that merely
// forgets.

#include "lrnn.h"

struct state_norm {
    double norm; // ‖S‖ = √(Σ S[i][j]²), the largest over layers and heads; as it is if it is not finite
    int32_t layer; // the first that has it; -1: there is no recurrent layer, or the sequence has no tokens
};

// After the last token. S is the matrix that the state holds; for mLSTM the one that goes with its
// running maximum m, without m and the normaliser.
struct state_norm state_norm_of(const struct lrnn_session * session, int32_t seq);
