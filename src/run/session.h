#pragma once

// What the state file and the state norm need of a session: the pieces that make up one sequence,
// in a fixed order.

#include "lrnn.h"

#include "ggml.h"

// `size` bytes of `tensor` from `offset` on. False from the callback ends the walk.
typedef bool (*session_piece)(struct ggml_tensor * tensor, size_t offset, size_t size, void * user);

// Where the pieces of a sequence of `length` tokens lie, states of all layers and the used part of
// the caches.
bool session_seq_pieces(struct lrnn_session * session, int32_t seq, int64_t length,
        session_piece visit, void * user);

// Declares that the pieces of a sequence of `length` tokens are in place.
// - has_logits: those of its last token were set before; otherwise the sequence has none
void session_seq_set(struct lrnn_session * session, int32_t seq, int64_t length, bool has_logits);

// The logits of the last token of a sequence, [V], if the last call computed them or they were
// loaded; NULL otherwise.
const float * session_seq_logits(const struct lrnn_session * session, int32_t seq);

// Makes them lrnn_logits(session, 0), as if a call had just computed them. False: out of memory.
bool session_seq_set_logits(struct lrnn_session * session, int32_t seq, const float * logits,
        char * err, size_t err_size);

// The tensor with the recurrence of layer il, and at *offset its bytes after the last token of a
// sequence; NULL for an attention layer, and for a sequence without tokens.
struct ggml_tensor * session_seq_state(
        const struct lrnn_session * session, int32_t seq, int32_t il, size_t * offset);

const struct lrnn_model * session_model(const struct lrnn_session * session);
int32_t session_n_seqs(const struct lrnn_session * session);
int64_t session_n_cache(const struct lrnn_session *
                session); // tokens that attention layers remember, INT64_MAX: no limit
