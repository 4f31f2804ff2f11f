#pragma once

// Chat formats: literal text between the messages of a conversation, and the few conditions that
// real templates have. A format is a JSON object (convert/FORMAT.md), written by lrnn-convert from
// the template of a checkpoint, or built in (chat-names.c).

#include "lrnn.h"
#include "base/buffer.h"
#include "base/slice.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, N_CHAT_ROLES };

extern const char * const CHAT_ROLE_NAMES[N_CHAT_ROLES];

// The text before the first message, between two messages, and after the last one.
enum chat_literal {
    CHAT_BEGIN_SYSTEM, // absent: system messages are refused
    CHAT_SYSTEM_USER,
    CHAT_BEGIN_USER,
    CHAT_USER_ASSISTANT,
    CHAT_ASSISTANT_USER,
    CHAT_USER_GENERATION,
    CHAT_USER_GENERATION_NO_THINKING, // absent: as the one before
    N_CHAT_LITERALS,
};

enum { CHAT_MAX_NAMES = 32 };

struct chat_names {
    struct slice name[CHAT_MAX_NAMES];
    int32_t      n;
};

struct chat_format {
    struct slice      literal[N_CHAT_LITERALS]; // data is NULL if absent
    bool              trim[N_CHAT_ROLES];       // messages lose white space at both ends
    bool              omit_empty_system;        // an empty system message counts as none
    bool              has_thinking;
    struct slice      think_open, think_close; // around the thinking section of an answer
    bool              drop_thinking; // earlier answers lose all up to the last think_close, …
    bool              drop_newlines; // and then leading newlines,
    bool              drop_space;    // or all leading white space
    struct chat_names special;       // special tokens in the literals
    struct chat_names stop;          // more tokens that end an answer
    struct buffer     text;          // owns the texts
};

// Parses the JSON of a format.
bool chat_format_parse(
        struct chat_format * f, const char * json, size_t size, struct lrnn_error * err);
void chat_format_free(struct chat_format * f);

// The content of a message as the format shows it.
struct slice chat_content(const struct chat_format * f, enum chat_role role, struct slice text);

// chat.c: see lrnn_chat_new. n_vocab: generated tokens are below.
struct model_file;
struct tokenizer;
struct lrnn_chat * chat_new(const struct tokenizer * tok, const struct model_file * file,
        int64_t n_vocab, const char * format, struct lrnn_error * err);

// chat-names.c: the JSON of a built-in format, or NULL.
const char * chat_format_named(const char * name);

// Recognizes the Jinja source of a well-known template. Returns the name of its built-in format, or
// NULL.
const char * chat_format_recognize(struct slice jinja);
