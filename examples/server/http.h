#pragma once

// HTTP/1.1 behind a C interface. http.cpp implements it with cpp-httplib and contains all C++ of
// this program.
//
// A connection ends after every reply with an error: what follows may be the rest of a request.

#include "lrnn.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct http_server;
struct http_call; // one request and its reply

// Answers a request, on one of several threads, with http_reply or http_reply_stream.
typedef void (*http_handler)(struct http_call * call, void * user);

// Called before the body is read. False: refused, with a reply, and the body is not read.
typedef bool (*http_check)(struct http_call * call, void * user);

struct http_params {
    int32_t      n_connections; // maximum open; another connection evicts an idle one
    int32_t      n_waiting;     // maximum waiting while none is idle; more are closed
    int32_t      timeout_s;     // to receive a request, to begin the next one, to send 1 MiB
    size_t       max_body;      // bytes
    http_check   check;
    http_handler handler;
    void *       user;
};

struct http_server * http_server_new(const struct http_params * params); // NULL: out of memory
void http_server_free(struct http_server * server);

// Returns the port, which differs if it was 0; -1: error.
int http_server_bind(
        struct http_server * server, const char * host, int port, struct lrnn_error * err);

// Serves until http_server_stop, then finishes the requests that have begun.
bool http_server_run(struct http_server * server);
void http_server_stop(struct http_server * server);

// The request. Pointers are valid until the handler returns.
const char * http_method(const struct http_call * call);
const char * http_path(const struct http_call * call); // decoded, without the query
struct slice http_body(const struct http_call * call);
const char * http_header(const struct http_call * call, const char * name); // NULL: absent

// True if the client has disconnected. One that has only closed its end gets its reply.
bool http_is_gone(const struct http_call * call);

// The reply. `data` is copied.
void http_reply_header(struct http_call * call, const char * name, const char * value);
void http_reply(
        struct http_call * call, int status, const char * type, const char * data, size_t size);

// A reply in pieces: `produce` is called after the handler returns, and writes until it is done or
// a write fails. `release` is called at the end in any case.
struct http_stream;
void http_reply_stream(struct http_call * call, const char * type,
        bool (*produce)(struct http_stream * stream, void * user), void (*release)(void * user),
        void * user);
bool http_stream_write(struct http_stream * stream, const char * data, size_t size);
bool http_stream_is_gone(struct http_stream * stream, const char * nothing); // may be sent to see

// The body of replies that the library itself sends, such as 413; called with the status and a
// buffer, returns the size.
size_t http_error_body(int status, char * buffer, size_t size);

#ifdef __cplusplus
}
#endif
