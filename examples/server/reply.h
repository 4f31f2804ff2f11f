#pragma once

// Replies in JSON.

#include "http.h"
#include "lrnn.h"
#include "request.h"

#include <stdio.h>

// A text that grows, written with stdio.
struct text {
    FILE *               out; // NULL: out of memory
    char *               data;
    size_t               size;
    struct http_stream * stream; // NULL: the whole text is kept
    bool                 failed; // a piece could not be written or sent
};

struct text * text_new(void); // NULL: out of memory
void text_free(struct text * t);

// Completes t->data and t->size. False: something was not written, because memory is short.
bool text_flush(struct text * t);

// Writes the text of tokens; of those below 0, nothing.
void text_detokenize(
        struct text * t, const struct lrnn_model * model, const int32_t * tokens, int64_t n);

// Sends what has been written to a text with a stream, if it is much.
void text_send(struct text * t);
bool text_is_large(struct text * t);

// Sends the rest. False: not everything was sent.
bool text_end(struct text * t);

// Completes and sends a reply, and frees the text. With NULL it replies that memory is short.
void reply_text(struct http_call * call, int status, const char * type, struct text * t);
void reply_json(struct http_call * call, int status, struct text * t);

// The status of a reply to a request that failed with this kind of error.
int status_of(enum lrnn_error_kind kind);

// {"error": {"message", "type", "param", "code"}}, as OpenAI's API does.
void reply_error(struct http_call * call, int status, const char * param, const char * format, ...)
        __attribute__((format(printf, 4, 5)));

// Removes the folder of a path from a message that goes to clients.
void error_hide_folder(struct lrnn_error * err, const char * path);

void reply_failure(struct http_call * call, const char * param, const struct lrnn_error * err);
void error_write(FILE * out, int status, const char * param, const char * message);

// ---- completion-reply.c: completions and chats, whole and in pieces -----------------------------

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
