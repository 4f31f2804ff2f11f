#pragma once

// JSON (RFC 8259) in one pass over memory: the text is checked as a whole, strictly, and the values
// at a few paths are found in it. There is no tree and no allocation; a value is the place where it
// stands.
//
// A key that an object has twice counts where it stands last, as in most parsers: {"a": {"b": 1},
// "a": {}} has no a.b.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/unicode.h"

enum {
    JSON_MAX_DEPTH = 256, // arrays and objects inside each other
    JSON_MAX_PATHS = 32,  // looked for at a time
    JSON_MAX_PARTS = 8,   // of a path
};

enum json_kind {
    JSON_MISSING,
    JSON_OBJECT,
    JSON_ARRAY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
};

const char * json_kind_name(enum json_kind kind); // "a string", for messages

struct json_value {
    enum json_kind kind;
    const char *   data; // as it stands in the text: a string with its quotes and escapes
    size_t         size;
};

// "answer.value": the key value of the object at key answer of the outermost object. The parts
// point into the text that it was made from.
struct json_path {
    int          n_parts;
    const char * part[JSON_MAX_PARTS];
    size_t       size[JSON_MAX_PARTS];
};

// False: an empty part, or too many of them.
bool json_path_parse(const char * text, size_t size, struct json_path * path);

struct json_error {
    size_t       at;   // byte of the text, from 0
    const char * what; // "expected ',' or '}'"
};

// Checks that the text is one JSON value, with nothing but white space around it, and sets
// values[i] to what is at paths[i] (kind JSON_MISSING: nothing is). Returns the kind of the
// outermost value; JSON_MISSING: the text is not JSON, and *error says where and why.
enum json_kind json_scan(const char * text, size_t size, const struct json_path * paths,
        int n_paths, struct json_value * values, struct json_error * error);

// Appends what a string of checked JSON stands for, in UTF-8. Escaped surrogates without a partner
// become U+FFFD and are added to *n_lone. False: out of memory.
bool json_string_decode(struct json_value string, struct buffer * out, int64_t * n_lone);

// True if that is the text.
bool json_string_is(struct json_value string, const char * text, size_t size);
