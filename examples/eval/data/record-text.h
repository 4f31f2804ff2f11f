#pragma once

// Turns a record into text: applies the filter and fills in the first template that fits.
//
//     template   Problem: {problem}, Solution: {solution}
//                A field is a path of keys, {answer.value}. {{ and }} are braces.
//     where      level=Level 5   or   correct!=false
//                A field that is not a string is compared as JSON. A missing field equals nothing.

#include "lrnn.h"
#include "base/json-read.h"

enum { RECORD_TEXT_MAX_TEMPLATES = 8, RECORD_TEXT_MAX_PARTS = 64 };

struct record_text {
    int              n_paths;
    struct json_path paths[JSON_MAX_PATHS];
    int              n_templates;
    struct {
        int parts_begin, parts_end;
    } templates[RECORD_TEXT_MAX_TEMPLATES];
    int n_parts;
    struct {
        const char * literal; // NULL: a field
        size_t       size;
        int          path;
    } parts[RECORD_TEXT_MAX_PARTS];
    int          where; // path; −1: all records
    bool         where_not;
    const char * where_value;
    int          source; // path; −1: none
};

// The strings must live as long as *t.
void record_text_init(struct record_text * t);
bool record_text_add_template(
        struct record_text * t, const char * text, size_t size, struct lrnn_error * err);
bool record_text_set_where(struct record_text * t, const char * where, struct lrnn_error * err);
bool record_text_set_source(struct record_text * t, const char * field, struct lrnn_error * err);

enum record_text_status {
    RECORD_TEXT_TAKEN,
    RECORD_TEXT_FILTERED,
    RECORD_TEXT_MALFORMED,
    RECORD_TEXT_NO_MEMORY
};

// Writes the text of a record and its source (empty: none) to the buffers. *used: the template. If
// the record is malformed, err says why.
enum record_text_status record_text_make(const struct record_text * t, const char * json,
        size_t size, struct buffer * text, struct buffer * source, int * used, int64_t * n_lone,
        struct lrnn_error * err);
