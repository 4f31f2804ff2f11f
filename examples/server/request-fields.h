#pragma once

// Fields of a request that the server does not have. Those that would change the result, and names
// that look like a misspelling of a known one, are refused; others are ignored.

#include "base/json-read.h"
#include "request.h"

// - body: an object
// - known: names, or paths that begin with one, ended by NULL
bool request_check_fields(
        struct json_value body, const char * const * known, struct request_error * error);

// True for a value that asks for nothing: a missing one, null, false, "", [], {}, or a word of
// `neutral`.
bool request_asks_nothing(struct json_value v, const char * neutral);

// Fills in the error and returns false. The second one is not the client's fault.
bool request_fail(struct request_error * error, const char * param, const char * format, ...)
        __attribute__((format(printf, 3, 4)));
bool request_no_memory(struct request_error * error);
