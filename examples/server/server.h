#pragma once

// The server: what all requests share.

#include "http.h"
#include "options.h"
#include "scheduler.h"

// ---- access.c -----------------------------------------------------------------------------------
//
// Who may use the server: the names it is called by, web pages of other origins, content types, and
// the API key.
//
// A browser sends requests on behalf of any page that it shows. Two headers that no page can forge
// tell them apart: Origin is the site of the page, and Host is the name that led to this server. A
// page whose name was made to resolve to this server (DNS rebinding) has its own name in both.

struct access {
    const char *          host;    // of --host
    struct option_strings names;   // of --allow-host
    struct option_strings origins; // of --cors
    const char *          api_key; // NULL: none
    const char *          api_key_file;
    char                  key_of_file[512];
};

// Checks the options, and reads the key from its file or from LRNN_API_KEY.
bool access_init(struct access * a, struct lrnn_error * err);

// Checks the headers of a request. Replies and returns false if it is refused, or if it only asked
// which headers a page may send.
bool access_check_page(const struct access * a, struct http_call * call);
bool access_check_key(const struct access * a, struct http_call * call);

// ---- What all requests share --------------------------------------------------------------------

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
