#pragma once

// The JSON of completions and chats, whole and in pieces.

#include "reply.h"
#include "server.h"

// What has been sent of a choice.
struct choice_cursor {
    struct lrnn_decoder * decoder; // of the tokens with scores, for text offsets
    int64_t               offset;  // characters before the next of these tokens
    int64_t               n_scores;
    size_t                n_text;
    bool                  is_begun; // the echo, or the role of a chat
    bool                  is_done;
};

struct completion {
    struct server *        server;
    struct request         request;
    struct job *           job;
    struct lrnn_grammar *  grammar; // NULL: none
    struct state_file *    base;    // NULL: none
    struct prompt *        prompts; // [n_prompts], token ids
    int64_t                n_prompts;
    struct choice_cursor * cursors; // [n_choices]
    bool                   is_chat;
    int64_t                n_entries; // of the reply, at most; see check_size
    int64_t                n_stable;  // tokens that a longer conversation has too; 0: unknown
    char                   id[48];
    int64_t                created_s;
};

// All results, of a job that is done.
void completion_write(struct text * t, struct completion * c);

// The next results, as server-sent events. The caller holds the lock of the job. True if everything
// has been written; it may be called again at once if the text is large.
bool completion_write_events(struct text * t, struct completion * c);
