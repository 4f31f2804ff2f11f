#pragma once

// Reads the records of a data file one by one. Memory holds one record.

#include "lrnn.h"
#include "base/buffer.h"
#include "eval/data/byte-source.h"
#include "eval/data/record-form.h"

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
