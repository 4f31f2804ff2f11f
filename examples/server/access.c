#include "server.h"

#include "base/error.h"
#include "reply.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

//
// The name of the host
//

enum { NAME_SIZE = 256 }; // of a DNS name

// A name or an address, as in the header Host.
struct host {
    char name[NAME_SIZE]; // without brackets, port and final dot
    bool is_bracketed;    // an IPv6 address
    bool has_port;
};

// False: neither a name nor an address.
static bool parse_host(const char * text, struct host * host) {
    static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789-._";
    host->is_bracketed = text[0] == '[';
    text += host->is_bracketed ? 1 : 0;
    size_t       n = host->is_bracketed ? strcspn(text, "]") : strspn(text, characters);
    const char * rest = text + n;
    if (host->is_bracketed && *rest++ != ']') {
        return false;
    }
    host->has_port = *rest == ':';
    if (host->has_port) {
        const size_t n_digits = strspn(rest + 1, "0123456789");
        rest += n_digits >= 1 && n_digits <= 5 ? 1 + n_digits : 0;
    }
    n -= n > 0 && text[n - 1] == '.' ? 1 : 0;
    if (*rest != '\0' || n == 0 || n >= NAME_SIZE) {
        return false;
    }
    memcpy(host->name, text, n);
    host->name[n] = '\0';
    return true;
}

static bool is_localhost(const char * name) {
    static const char localhost[] = ".localhost";
    const size_t      n = strlen(name), n_suffix = strlen(localhost);
    return strcasecmp(name, localhost + 1) == 0 ||
           (n > n_suffix && strcasecmp(name + n - n_suffix, localhost) == 0);
}

// An address is not a name that could be made to lead here.
static bool is_own_host(const struct access * a, const char * text) {
    struct in6_addr addr;
    struct host     host;
    if (!parse_host(text, &host)) {
        return false;
    }
    if (host.is_bracketed) {
        return inet_pton(AF_INET6, host.name, &addr) == 1;
    }
    bool found = inet_pton(AF_INET, host.name, &addr) == 1 || is_localhost(host.name) ||
                 strcasecmp(host.name, a->host) == 0;
    for (int i = 0; i < a->names.n && !found; ++i) {
        found = strcasecmp(host.name, a->names.v[i]) == 0;
    }
    return found;
}

static bool check_host(const struct access * a, struct http_call * call) {
    const char * host = http_header(call, "Host");
    char         quoted[96];
    if (host == NULL || is_own_host(a, host)) { // HTTP/1.0 may have none
        return true;
    }
    reply_error(call, 403, NULL,
            "the header Host is %s; expected localhost, an address, or a name given to the server "
            "with --allow-host",
            slice_quote(quoted, sizeof(quoted), (struct slice) { host, strlen(host) }));
    return false;
}

//
// The origin of a page
//

// What follows http:// or https://; NULL: something else.
static const char * after_scheme(const char * origin) {
    return strncasecmp(origin, "http://", 7) == 0    ? origin + 7
           : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
                                                     : NULL;
}

static bool is_allowed_origin(const struct access * a, const char * origin) {
    bool found = false;
    for (int i = 0; i < a->origins.n && !found; ++i) {
        found = strcmp(a->origins.v[i], "*") == 0 || strcasecmp(a->origins.v[i], origin) == 0;
    }
    return found;
}

// Also tells the browser that a page of an allowed origin may read the reply.
static bool check_origin(const struct access * a, struct http_call * call) {
    const char * origin = http_header(call, "Origin");
    const char * host = http_header(call, "Host");
    char         quoted[96];
    if (origin == NULL) {
        return true;
    }
    if (is_allowed_origin(a, origin)) {
        http_reply_header(call, "Access-Control-Allow-Origin", origin);
        http_reply_header(call, "Vary", "Origin");
        return true;
    }
    const char * own = after_scheme(origin);
    if (own != NULL && host != NULL && strcasecmp(own, host) == 0) {
        return true;
    }
    reply_error(call, 403, NULL,
            "the header Origin is %s; expected a page of this server, or an origin given to it "
            "with --cors",
            slice_quote(quoted, sizeof(quoted), (struct slice) { origin, strlen(origin) }));
    return false;
}

// A CORS preflight: the browser asks before a page may send certain requests. It carries no key.
static bool is_preflight(const struct access * a, const struct http_call * call) {
    const char * origin = http_header(call, "Origin");
    return strcmp(http_method(call), "OPTIONS") == 0 && origin != NULL &&
           is_allowed_origin(a, origin) &&
           http_header(call, "Access-Control-Request-Method") != NULL;
}

static void reply_preflight(struct http_call * call) {
    const char * headers = http_header(call, "Access-Control-Request-Headers");
    http_reply_header(call, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    http_reply_header(call, "Access-Control-Max-Age", "600");
    if (headers != NULL) {
        http_reply_header(call, "Access-Control-Allow-Headers", headers);
    }
    http_reply(call, 204, NULL, "", 0);
}

//
// The content type
//

// JSON, or what curl -d sends unless it is told otherwise. A page can send a form to any site, but
// not without its origin.
static bool check_content(struct http_call * call) {
    const char * type = http_header(call, "Content-Type");
    char         quoted[96];
    if (type == NULL || strcmp(http_method(call), "GET") == 0) {
        return true;
    }
    const size_t n = strcspn(type, "; \t");
    const bool   is_json = (n == 16 && strncasecmp(type, "application/json", n) == 0) ||
                         (n > 5 && strncasecmp(type + n - 5, "+json", 5) == 0);
    const bool is_form = n == 33 && strncasecmp(type, "application/x-www-form-urlencoded", n) == 0;
    if (is_json || (is_form && http_header(call, "Origin") == NULL)) {
        return true;
    }
    reply_error(call, 415, NULL, "the content type is %s; expected application/json",
            slice_quote(quoted, sizeof(quoted), (struct slice) { type, strlen(type) }));
    return false;
}

bool access_check_page(const struct access * a, struct http_call * call) {
    if (!check_host(a, call) || !check_origin(a, call)) {
        return false;
    }
    if (is_preflight(a, call)) {
        reply_preflight(call);
        return false;
    }
    return check_content(call);
}

//
// The key
//

// Compares in constant time, so that the time does not tell how many characters are right.
static bool same_key(const char * a, const char * b) {
    const size_t  n = strlen(a);
    unsigned char diff = strlen(b) != n;
    for (size_t i = 0; i < n; ++i) {
        diff |= (unsigned char) (a[i] ^ b[diff != 0 ? 0 : i]);
    }
    return diff == 0;
}

bool access_check_key(const struct access * a, struct http_call * call) {
    static const char bearer[] = "bearer ";
    const char *      header = http_header(call, "Authorization");
    if (a->api_key == NULL || (header != NULL && strncasecmp(header, bearer, strlen(bearer)) == 0 &&
                                      same_key(a->api_key, header + strlen(bearer)))) {
        return true;
    }
    http_reply_header(call, "WWW-Authenticate", "Bearer");
    reply_error(call, 401, NULL, "the API key is missing or wrong");
    return false;
}

//
// The options
//

// The first line of the file.
static bool read_key(struct access * a, struct lrnn_error * err) {
    FILE * file = fopen(a->api_key_file, "r");
    if (file == NULL) {
        return error_system(err, "--api-key-file %s", a->api_key_file);
    }
    const bool ok = fgets(a->key_of_file, sizeof(a->key_of_file), file) != NULL;
    fclose(file);
    a->key_of_file[ok ? strcspn(a->key_of_file, "\r\n") : 0] = '\0';
    a->api_key = a->key_of_file;
    return true;
}

// Other users of the machine can see the options of a process, but not its files and environment.
static bool init_key(struct access * a, struct lrnn_error * err) {
    const char * from = a->api_key != NULL        ? "--api-key"
                        : a->api_key_file != NULL ? "--api-key-file"
                                                  : "LRNN_API_KEY";
    if (a->api_key != NULL && a->api_key_file != NULL) {
        return error_bad_input(err, "--api-key and --api-key-file: expected one");
    }
    if (a->api_key_file != NULL && !read_key(a, err)) {
        return false;
    }
    a->api_key = a->api_key != NULL ? a->api_key : getenv("LRNN_API_KEY");
    bool ok = a->api_key == NULL || a->api_key[0] != '\0';
    for (const char * p = a->api_key; ok && p != NULL && *p != '\0'; ++p) {
        ok = *p > ' ' && *p <= '~'; // what a header can carry
    }
    return ok || error_bad_input(err,
                         "%s: the key is empty or has a character that no header can carry; "
                         "expected letters, digits and punctuation",
                         from);
}

bool access_init(struct access * a, struct lrnn_error * err) {
    struct host host;
    if (!init_key(a, err)) {
        return false;
    }
    for (int i = 0; i < a->names.n; ++i) {
        if (!parse_host(a->names.v[i], &host) || host.has_port || host.is_bracketed) {
            return error_bad_input(
                    err, "--allow-host '%s': expected a name without a port", a->names.v[i]);
        }
    }
    for (int i = 0; i < a->origins.n; ++i) {
        const char * origin = a->origins.v[i];
        const char * name = after_scheme(origin);
        if (strcmp(origin, "*") != 0 && (name == NULL || !parse_host(name, &host))) {
            return error_bad_input(err,
                    "--cors '%s': expected an origin such as https://app.example, or *", origin);
        }
    }
    return true;
}
