#pragma once

// Named states: files in the folder of --state-dir. A file has the tokens of a sequence and the
// state before the last of them, which is fed again to continue. All numbers are little-endian.
//
//     "lrnn-srv"   u32 version   u32 0   u64 model identity   i64 number of tokens, at least 1
//     u64 bytes of the state   i32 tokens[]   the state   u64 FNV-1a checksum of all before it

#include "lrnn.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

struct saved_state {
    int32_t * tokens; // [n_tokens]
    int64_t   n_tokens;
    void *    data; // after n_tokens - 1 tokens
    size_t    size;
};

enum state_status {
    STATE_OK,
    STATE_MISSING,
    STATE_BAD,    // damaged, or of another model
    STATE_SYSTEM, // memory or disk
};

// Replaces a file only when the new one is complete.
enum state_status state_save(const char * dir, const char * name, uint64_t identity,
        const struct saved_state * state, struct lrnn_error * err);

// The caller frees the state with saved_state_free.
enum state_status state_load(const char * dir, const char * name, uint64_t identity,
        int64_t n_vocab, struct saved_state * state, struct lrnn_error * err);
void saved_state_free(struct saved_state * state);

enum state_status state_delete(const char * dir, const char * name, struct lrnn_error * err);

struct state_entry {
    char    name[REQUEST_NAME_MAX + 1];
    int64_t n_tokens; // 0: not readable
    int64_t size;     // of the file
    bool    is_valid; // of this model
};

// The states of a folder, by name; free the list with free().
enum state_status state_list(const char * dir, uint64_t identity, struct state_entry ** list,
        int64_t * n, struct lrnn_error * err);
