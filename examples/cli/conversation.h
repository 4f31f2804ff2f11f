#pragma once

// The messages of a conversation, in memory and in a file. The program ends with a message if
// memory runs out.

#include "base/buffer.h"
#include "base/slice.h"
#include "lrnn.h"
#include "token-list.h"

struct conversation {
    struct lrnn_message * messages; // own their contents and tokens
    int64_t               n;
    int64_t               room;
};

// - role:   a string constant
// - tokens: of an answer; NULL otherwise
void conversation_add(struct conversation * c, const char * role, const char * content, size_t size,
        const struct token_list * tokens);

// Removes the last n messages.
void conversation_drop(struct conversation * c, int64_t n);

// Replaces, adds or removes (NULL) the system message.
void conversation_set_system(struct conversation * c, const char * text);

void conversation_copy(struct conversation * to, const struct conversation * from);

static inline bool conversation_has_system(const struct conversation * c) {
    return c->n > 0 && c->messages[0].role[0] == 's';
}

// conversation-file.c: the messages as JSON, for the text of a state file.
bool conversation_write(
        const struct conversation * c, struct buffer * text, struct lrnn_error * err);

// Replaces `c` by the messages of such a text. Before version 0.3 it was a file of its own, which
// also had the tokens of the sequence. Tokens must be below n_vocab.
// - path:     of the file, for messages
// - sequence: NULL: the text has none
bool conversation_read(struct conversation * c, struct token_list * sequence, int64_t n_vocab,
        struct slice text, const char * path, struct lrnn_error * err);
