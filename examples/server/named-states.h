#pragma once

// Named states: state files in the folder of --state-dir. Messages do not name the folder.

#include "generate/state-file.h"
#include "lrnn.h"
#include "request.h"

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
