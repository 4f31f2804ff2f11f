#pragma once

// /states: named states.

#include "reply.h"
#include "server.h"
#include "named-states.h"

// Copies the name of the state from the path, "/states/NAME" or "/states/NAME/...". Replies and
// returns false if it is not a valid name, or if the server has no folder for states.
bool states_find(const struct server * s, struct http_call * call, char name[REQUEST_NAME_MAX + 1]);

// Describes a state.
void reply_state(struct http_call * call, const char * name, int64_t n_tokens, size_t n_bytes,
        int64_t n_cached);
