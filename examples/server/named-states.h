#pragma once

// Named states: state files in the folder of --state-dir. Messages do not name the folder.

#include "generate/state-file.h"
#include "lrnn.h"
#include "reply.h"
#include "request.h"
#include "server.h"

// Replaces a file only when the new one is complete.
bool named_state_save(const char * dir, const char * name, const struct lrnn_model_info * info,
        const struct state_file * state, struct lrnn_error * err);

// A state that the session can hold. The caller frees it with state_file_free.
bool named_state_load(const char * dir, const char * name, struct lrnn_session * session,
        struct state_file * state, struct lrnn_error * err);

bool named_state_delete(const char * dir, const char * name, struct lrnn_error * err);

struct state_entry {
    char    name[REQUEST_NAME_MAX + 1];
    int64_t n_tokens; // -1: not a state that the session can hold
    int64_t size;     // of the file
};

// The states of a folder, by name; free the list with free().
bool named_state_list(const char * dir, struct lrnn_session * session, struct state_entry ** list,
        int64_t * n, struct lrnn_error * err);

// ---- state-routes.c: /states --------------------------------------------------------------------

// Copies the name of the state from the path, "/states/NAME" or "/states/NAME/...". Replies and
// returns false if it is not a valid name, or if the server has no folder for states.
bool states_find(const struct server * s, struct http_call * call, char name[REQUEST_NAME_MAX + 1]);

// Describes a state.
void reply_state(struct http_call * call, const char * name, int64_t n_tokens, size_t n_bytes,
        int64_t n_cached);
