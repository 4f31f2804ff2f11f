#pragma once

// Writing JSON (RFC 8259). See base/json-read.h for reading.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Writes a string with its quotes. Control characters are escaped. Every byte that is not part of a
// UTF-8 character becomes U+FFFD, so the output is valid JSON for any input.
void json_write_string(FILE * out, const char * text);
void json_write_bytes(FILE * out, const char * text, size_t size);

// Writes a number with eight digits, or null if it is not finite.
void json_write_number(FILE * out, double x);

// Writes objects and arrays: the commas between their values, the escapes and the brackets.
//
//     struct json_writer w = { .out = stdout };
//     json_object(&w, NULL);
//     json_string(&w, "name", "x");      { "name": "x", "sizes": [1, 2] }
//     json_array(&w, "sizes");
//     json_int(&w, NULL, 1);
//     json_int(&w, NULL, 2);
//     json_end(&w);
//     json_end(&w);
//
// - key: NULL in an array, and for the outermost value
enum { JSON_WRITER_DEPTH = 16 };

struct json_writer {
    FILE * out;
    int    depth;
    bool   has_values[JSON_WRITER_DEPTH + 1]; // of the open objects and arrays
    bool   is_array[JSON_WRITER_DEPTH + 1];
    bool   at_line; // the next value or end begins a line
    int    indent;
};

void json_object(struct json_writer * w, const char * key);
void json_array(struct json_writer * w, const char * key);
void json_end(struct json_writer * w); // of the innermost object or array

void json_string(struct json_writer * w, const char * key, const char * text); // NULL: null
void json_bytes(struct json_writer * w, const char * key, const char * text, size_t size);
void json_int(struct json_writer * w, const char * key, int64_t x);
void json_number(struct json_writer * w, const char * key, double x); // as json_write_number
void json_bool(struct json_writer * w, const char * key, bool x);
void json_null(struct json_writer * w, const char * key);

// A number with the fewest digits, at least `digits`, that read back as the same double, or as the
// same float if it is one and `is_float` is set; null if it is not finite.
void json_exact(struct json_writer * w, const char * key, double x, int digits, bool is_float);

// A value that is JSON already.
void json_verbatim(struct json_writer * w, const char * key, const char * json, size_t size);

// Begins the next value, or the end, on a new line: json_object(json_line(w, 2), "data").
struct json_writer * json_line(struct json_writer * w, int indent);
