#pragma once

// The container of a state on disk, in every program: lrnn_seq_save and lrnn_seq_load, chats, and
// the named states of lrnn-server. state-file.c describes the bytes.

#include "base/buffer.h"
#include "lrnn.h"

// The content of a state file.
struct state_file {
    int64_t  length;       // tokens that led to the state
    uint16_t cache_format; // as in the file; STATE_FILE_ANY_CACHE: unknown
    size_t   n_memory;
    size_t   n_draft; // bytes of the draft block, at the end of the memory; 0: none
    void *   memory;  // of the sequence, as lrnn_seq_get copies it, [n_memory]

    float *                logits;  // after the last token, [n_vocab]; NULL: none
    struct saved_sampler * sampler; // NULL: none

    // The tokens of the sequence, and perhaps one more, which the state does not contain yet: its
    // logits are computed when the file is loaded. NULL: unknown.
    int32_t * tokens;
    int64_t   n_tokens;

    struct buffer text; // what a program keeps with the state, such as the messages of a chat
};

enum { STATE_FILE_ANY_CACHE = 0xffff };

// Copies a sequence, with its last logits if they are known, and a sampler unless it is NULL.
bool state_file_take(struct state_file * f, struct lrnn_session * session, int32_t seq,
        const struct lrnn_sampler * sampler, struct lrnn_error * err);

// Copies the tokens [n] of the sequence.
bool state_file_set_tokens(
        struct state_file * f, const int32_t * tokens, int64_t n, struct lrnn_error * err);

// Restores a sequence, without the token that the state does not contain. Saved logits become row 0
// of lrnn_logits.
// - path: for messages
bool state_file_put(const struct state_file * f, struct lrnn_session * session, int32_t seq,
        struct lrnn_sampler * sampler, const char * path, struct lrnn_error * err);

// The same, and computes that token.
bool state_file_restore(const struct state_file * f, struct lrnn_session * session, int32_t seq,
        struct lrnn_sampler * sampler, const char * path, struct lrnn_error * err);

// Writes a file, or replaces a state file when the new one is complete.
bool state_file_write(const struct state_file * f, const char * path,
        const struct lrnn_model_info * info, struct lrnn_error * err);

// Reads a file and checks that a session can hold it: the type and size of its memory, and that all
// numbers are finite. On success the caller frees the content.
bool state_file_read(struct state_file * f, const char * path, struct lrnn_session * session,
        struct lrnn_error * err);
void state_file_free(struct state_file * f);

// The number of tokens of the sequence in a file. Reads only the header. -1: not a state that a
// session can hold.
int64_t state_file_count_tokens(
        const char * path, struct lrnn_session * session, struct lrnn_error * err);

// Fails if the path names a file that is not a state file.
bool state_file_may_replace(const char * path, struct lrnn_error * err);
