#pragma once

// From a data file to the text of its records: bytes (byte-source.c), records (records.c), texts
// (record-text.c). dataset.h is the interface of it all.

#include "base/buffer.h"
#include "base/json-read.h"
#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

//
// Bytes
//

// The bytes of a file or of standard input, decompressed. The first bytes tell gzip and zstd, never
// the name. A file may consist of several gzip members or zstd frames; zstd windows may have any
// size that the format allows.
//
// A damaged or truncated file gives the bytes before the damage, then an error with the offset in
// the file.

struct byte_source;

// - path: "-" for standard input
struct byte_source * byte_source_open(const char * path, struct lrnn_error * err);
void byte_source_free(struct byte_source * s);

// Reads up to size bytes. *n == 0: end of file.
bool byte_source_read(
        struct byte_source * s, void * out, size_t size, size_t * n, struct lrnn_error * err);

// The number of bytes of the (compressed) file used so far.
int64_t byte_source_position(const struct byte_source * s);

//
// Forms
//

// How a data file holds its records. The first bytes decide, never the name.

enum record_form {
    RECORD_FORM_EMPTY,   // no bytes
    RECORD_FORM_TEXT,    // not JSON: the whole file is one record
    RECORD_FORM_LINES,   // one {…} per line; only 0x0A ends a line
    RECORD_FORM_VALUES,  // {…} {…} over any number of lines; usually one, indented
    RECORD_FORM_ARRAY,   // [ {…}, {…} ]
    RECORD_FORM_WRAPPED, // { "Data": [ {…}, {…} ], … }, as in TriviaQA
};

//
// Records
//

// Reads the records of a data file one by one. Memory holds one record.

// Reads one file after another. Initialize with { .max_record = … }.
struct record_reader {
    size_t               max_record;
    enum record_form     form;
    struct byte_source * source;
    char                 name[256]; // of the file, for messages; of a long path, the end
    struct buffer        buffer;    // unused bytes start at `begin`
    size_t               begin;
    bool                 at_end;      // of the source
    int64_t              line;        // of the byte at `begin`, from 1
    bool                 needs_comma; // in an array, after a record
    bool                 is_over;     // no more records
};

enum record_status { RECORD_READ, RECORD_TOO_LONG, RECORD_END, RECORD_ERROR };

struct record {
    const char * data; // valid until the next call; NULL if too long
    size_t       size;
    int64_t      line; // where it begins; 0: a whole text
};

// Opens a file and determines its form. A known foreign format is an error that says what to do.
bool record_reader_open(struct record_reader * r, const char * path, struct lrnn_error * err);

// To read a file that is not JSON line by line, set r->form before the first call.
enum record_status record_reader_next(
        struct record_reader * r, struct record * record, struct lrnn_error * err);

int64_t record_reader_position(const struct record_reader * r); // bytes of the file used so far
void record_reader_close(struct record_reader * r);             // keeps memory for the next file
void record_reader_free(struct record_reader * r);

//
// Texts
//

// Turns a record into text: applies the filter and fills in the first template that fits.
//
//     template   Problem: {problem}, Solution: {solution}
//                A field is a path of keys, {answer.value}. {{ and }} are braces.
//     where      level=Level 5   or   correct!=false
//                A field that is not a string is compared as JSON. A missing field equals nothing.

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
