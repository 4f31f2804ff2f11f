#pragma once

// What the state file needs of a session: the pieces that make up one sequence, in a fixed order.

#include "lrnn.h"

#include "ggml.h"

// `size` bytes of `tensor` from `offset` on. False from the callback ends the walk.
typedef bool (*session_piece)(struct ggml_tensor * tensor, size_t offset, size_t size, void * user);

// Where the pieces of a sequence of `length` tokens lie, states of all layers and the used part of the caches.
bool session_seq_pieces(struct lrnn_session * session, int32_t seq, int64_t length, session_piece visit, void * user);

// Declares that the pieces of a sequence of `length` tokens are in place.
void session_seq_set(struct lrnn_session * session, int32_t seq, int64_t length);

const struct lrnn_model * session_model  (const struct lrnn_session * session);
int32_t                   session_n_seqs (const struct lrnn_session * session);
int64_t                   session_n_cache(const struct lrnn_session * session); // tokens that attention layers remember, INT64_MAX: no limit
