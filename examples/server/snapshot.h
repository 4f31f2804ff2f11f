#pragma once

// What the prefix tree holds for a sequence of tokens: the state after them. If they were scored,
// also their scores, and the logits after the last, which score whatever token comes next. So a
// scored prompt, too, continues from a stored state.

#include "lrnn.h"
#include "choice.h"

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
