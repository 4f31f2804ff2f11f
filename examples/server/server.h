#pragma once

// The server: what all requests share.

#include "access.h"
#include "http.h"
#include "scheduler.h"

struct server {
    struct lrnn_model *     model;
    struct lrnn_model_info  info;
    struct scheduler *      scheduler;
    struct scheduler_params params;
    const char *            model_name;
    const char *            file_name; // of the model
    struct lrnn_chat *      chat;      // NULL: none, for this reason
    struct lrnn_error       chat_err;
    struct lrnn_grammars *  grammars; // NULL: none, for this reason
    struct lrnn_error       grammars_err;
    struct access           access;
    const char *            state_dir;  // NULL: no named states
    int64_t                 max_tokens; // per request
    int64_t                 start_s;
    atomic_int_fast64_t     n_requests; // since the start
    atomic_int_fast64_t     n_refused;  // with 429
};

// Decides whether a request is answered, before its body is read, and answers it.
bool server_check(struct http_call * call, void * server);
void server_handle(struct http_call * call, void * server);

// The handlers of routes.c, by topic.
void handle_completion(struct server * s, struct http_call * call);
void handle_chat(struct server * s, struct http_call * call);
void handle_state_list(struct server * s, struct http_call * call);
void handle_state_save(struct server * s, struct http_call * call);
void handle_state_load(struct server * s, struct http_call * call);
void handle_state_fork(struct server * s, struct http_call * call);
void handle_state_delete(struct server * s, struct http_call * call);

// The page of GET /, made from page.html, page.css and page.js by the build.
extern const unsigned char PAGE[];
extern const size_t        PAGE_SIZE;
