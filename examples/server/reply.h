#pragma once

// Replies in JSON.

#include "http.h"
#include "lrnn.h"

#include <stdio.h>

// A text that grows, written with stdio.
struct text {
    FILE *               out; // NULL: out of memory
    char *               data;
    size_t               size;
    struct http_stream * stream; // NULL: the whole text is kept
    bool                 failed; // a piece could not be sent
};

struct text * text_new(void); // NULL: out of memory
void text_free(struct text * t);

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
