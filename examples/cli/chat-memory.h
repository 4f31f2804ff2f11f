#pragma once

// The state of a conversation, and copies of it from earlier turns. Sequence 0 is the conversation;
// the others are copies. A conversation may continue in a way that its state does not: after /undo,
// or because the chat format drops the thinking section of an earlier answer. The longest copy that
// fits is then restored, and only the rest is read again.

#include "lrnn.h"
#include "token-list.h"

enum { CHAT_MAX_COPIES = 8 };

struct chat_memory {
    struct lrnn_session * session;
    struct token_list     live; // tokens of sequence 0
    struct token_list     copies[CHAT_MAX_COPIES];
    int64_t               used[CHAT_MAX_COPIES]; // time of the last use
    int32_t               n_copies;
    int64_t               time;
};

// The number of copies that fit into half a gigabyte, at least one. The session needs one sequence
// more.
int32_t chat_memory_count(const struct lrnn_model_info * info, int64_t n_cache);

void chat_memory_begin(struct chat_memory * m, struct lrnn_session * session, int32_t n_copies);
void chat_memory_end(struct chat_memory * m);

// Makes sequence 0 hold as many of the first tokens as possible, but not all n; m->live is what it
// holds.
bool chat_memory_restore(
        struct chat_memory * m, const int32_t * tokens, int64_t n, struct lrnn_error * err);

// Copies sequence 0, in place of the copy that was not used for the longest time.
bool chat_memory_keep(struct chat_memory * m, struct lrnn_error * err);

// Sets what sequence 0 holds: the first tokens of these, as many as it has.
void chat_memory_set(struct chat_memory * m, const int32_t * tokens, int64_t n);
