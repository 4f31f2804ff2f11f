#pragma once

// Reading JSON (RFC 8259) in one pass over memory: checks the whole text, strictly, and finds the
// values at given paths. There is no tree and no allocation; a value points into the text. See
// examples/common/json-write.h for writing.
//
// If an object has a key twice, the last one counts, as in most parsers:
// {"a": {"b": 1}, "a": {}} has no a.b.

#include "base/buffer.h"

#include <stdint.h>

enum {
    JSON_MAX_DEPTH = 256, // nested arrays and objects
    JSON_MAX_PATHS = 32,  // per call of json_read
    JSON_MAX_PARTS = 8,   // per path
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
    const char *   data; // in the text; a string has its quotes and escapes
    size_t         size;
};

// "answer.value": key "value" of the object at key "answer" of the outermost object. The parts
// point into the text passed to json_path_parse.
struct json_path {
    int          n_parts;
    const char * part[JSON_MAX_PARTS];
    size_t       size[JSON_MAX_PARTS];
};

// Returns false if a part is empty or there are too many parts.
bool json_path_parse(const char * text, size_t size, struct json_path * path);

struct json_error {
    size_t       at;   // offset in the text, in bytes
    const char * what; // "expected ',' or '}'"
};

// Checks that the text is one JSON value with only white space around it, and sets values[i] to the
// value at paths[i] (kind JSON_MISSING if there is none). Returns the kind of the outermost value,
// or JSON_MISSING and *error if the text is not JSON.
enum json_kind json_read(const char * text, size_t size, const struct json_path * paths,
        int n_paths, struct json_value * values, struct json_error * error);

// Removes the first item from an array of checked JSON. Returns false if none is left.
bool json_array_next(struct json_value * array, struct json_value * item);

// The same for an object: the key, a string, and its value.
bool json_object_next(
        struct json_value * object, struct json_value * key, struct json_value * item);

// Appends the text of a string in UTF-8. Escaped surrogates without a partner become U+FFFD; their
// number is added to *n_lone. Returns false if out of memory.
bool json_read_string(struct json_value string, struct buffer * out, int64_t * n_lone);

// Returns true if the text of a string is `text`.
bool json_string_is(struct json_value string, const char * text, size_t size);
