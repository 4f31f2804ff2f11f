#pragma once

// What state files and the state norm need from a session.

#include "lrnn.h"
#include "run/states.h"

const struct lrnn_model * session_model(const struct lrnn_session * session);

// Fails if there is no such sequence.
bool session_check_seq(const struct lrnn_session * session, int32_t seq, struct lrnn_error * err);

enum ggml_type session_cache_format(const struct lrnn_session * session);

// The largest possible length of a sequence; INT64_MAX without attention layers.
int64_t session_max_length(const struct lrnn_session * session);

// Visits the memory of a sequence of `length` tokens (see states_visit).
bool session_visit(struct lrnn_session * session, int32_t seq, int64_t length,
        states_visitor visitor, void * user);

// Declares that the memory of a sequence of `length` tokens is in place.
// - has_logits: keep the logits set by session_set_logits
void session_set_seq(struct lrnn_session * session, int32_t seq, int64_t length, bool has_logits);

// The logits [V] of the last token of a sequence; NULL: none.
const float * session_seq_logits(const struct lrnn_session * session, int32_t seq);

// Makes `logits` [V] those of the last token of a sequence, and row 0 of lrnn_logits.
bool session_set_logits(
        struct lrnn_session * session, int32_t seq, const float * logits, struct lrnn_error * err);

// The recurrent state of layer il. Sets *offset to the slot of the sequence. NULL: an attention
// layer or an empty sequence.
struct ggml_tensor * session_seq_state(
        const struct lrnn_session * session, int32_t seq, int32_t il, size_t * offset);
