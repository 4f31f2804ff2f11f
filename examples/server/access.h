#pragma once

// Who may use the server: the names it is called by, web pages of other origins, content types, and
// the API key.
//
// A browser sends requests on behalf of any page that it shows. Two headers that no page can forge
// tell them apart: Origin is the site of the page, and Host is the name that led to this server. A
// page whose name was made to lead here has its own name in both.

#include "http.h"
#include "options.h"

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
