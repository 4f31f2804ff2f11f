#pragma once

// The bytes of a file as records. What a file holds is told by how it begins, never by its name,
// and it is read in pieces: memory holds one record.

#include "eval/byte-source.h"
#include "base/unicode.h"

enum record_form {
    RECORD_FORM_EMPTY,   // no byte
    RECORD_FORM_TEXT,    // not JSON: the whole is one record
    RECORD_FORM_LINES,   // {…} a line; lines end at 0x0A and nowhere else
    RECORD_FORM_VALUES,  // {…} {…} over any number of lines; most often one, indented
    RECORD_FORM_ARRAY,   // [ {…}, {…} ]
    RECORD_FORM_WRAPPED, // { "Data": [ {…}, {…} ], … }, as TriviaQA is distributed
};

// A reader for one file after the other; start with { .max_record = … }.
struct record_reader {
    size_t               max_record;
    enum record_form     form;
    struct byte_source * source;
    char                 name[256]; // of the file, for messages; a long path keeps its end
    struct buffer        buffer;    // what was read and not used yet is from `begin` on
    size_t               begin;
    bool                 at_end;      // of the source
    int64_t              line;        // of the byte at `begin`, from 1
    bool                 needs_comma; // in an array: a record stands before
    bool                 is_over;     // the array has ended, the text has been returned
};

enum record_status { RECORD_READ, RECORD_TOO_LONG, RECORD_END, RECORD_ERROR };

struct record {
    const char * data; // valid until the next call; nothing if it is too long
    size_t       size;
    int64_t      line; // where it begins; 0: a text
};

// Opens the file and tells its form. A file that is known to be of another kind (Parquet, Arrow, an
// archive, UTF-16) is an error that says what to do.
bool record_reader_open(struct record_reader * r, const char * path, char * err, size_t err_size);

// To read what is not JSON as lines nevertheless, each of which is then a record, set r->form
// before the first call.
enum record_status record_reader_next(
        struct record_reader * r, struct record * record, char * err, size_t err_size);

int64_t record_reader_position(const struct record_reader * r); // bytes of the file used so far
void record_reader_close(struct record_reader * r); // of the file; memory is kept for the next
void record_reader_free(struct record_reader * r);
