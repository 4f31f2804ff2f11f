#pragma once

// A data set as a stream of documents: files and folders, plain or compressed, text or JSON, one
// document at a time whatever the size of the file.
//
// A document is the text that a template makes of a record. The fingerprint is taken over these
// texts, so it is the same whatever container the records came in: JSON lines, a JSON array,
// TriviaQA's {"Data": […]}, one indented record a file; plain, gzip or zstd. All of this is told by
// the bytes, never by a name. Whatever does not begin like JSON is plain text.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What is known of a data set by its name: where the text is in a record, what is left out.
struct dataset_preset {
    const char * name; // "codeparrot"
    const char *
            templates; // "{content}"; alternatives separated by '\n': each record takes the first whose fields it has
    const char * where; // "level=Level 5", NULL: every record
    const char *
            source; // field that says where a record comes from, "meta.redpajama_set_name"; NULL: none
    const char * about; // one line for --list-datasets
};

const struct dataset_preset * dataset_preset_find(const char * name); // NULL: none of this name
const struct dataset_preset * dataset_preset_at(int i);               // NULL beyond the last

struct dataset_params {
    const char * const *
                 paths; // files, folders (their files in sorted order, recursively), "-" for stdin
    int          n_paths;
    const char * preset; // NULL: "text"
    const char * template; // NULL: of the preset. "Problem: {problem}, Solution: {solution}"; {{ and }} for braces
    const char * text_field; // short for the template "{field}"; not both
    const char * where; // "field=value" or "field!=value"; NULL: of the preset; "": every record
    int64_t  start_doc; // documents skipped at the front, of the shuffled stream if there is one
    int64_t  max_docs;  // 0: all
    bool     shuffle;   // in an order that depends on shuffle_seed alone; keeps the texts in memory
    uint64_t shuffle_seed;
    size_t   max_shuffle_bytes; // more than this ends in an error; 0: 1 GiB
    size_t   max_record;        // bytes of one record; 0: 256 MiB
    double max_bad_share; // of records read; more than this, and more than 10, ends in an error; 0: 0.01
};

struct document {
    const char * text; // UTF-8, not terminated; may hold NUL; valid until the next call
    size_t       size;
    int64_t      index; // among the documents returned, from 0
    const char * file;  // as it was named, "-" for stdin
    int64_t      line;  // where the record begins, from 1; 0 where lines mean nothing
    const char *
            source; // value of the preset's source field, control characters replaced; "" if none
};

enum dataset_status { DATASET_DOCUMENT, DATASET_END, DATASET_ERROR };

struct dataset;

struct dataset * dataset_open(const struct dataset_params * params, char * err, size_t err_size);
void dataset_free(struct dataset * ds);

// A stream without a single document ends in an error that says what became of the records. Under a
// preset or template of records, a file in a folder that is not JSON (a README) is left out, and
// complained of; a file that was named is read as JSON lines. An empty file has no document.
enum dataset_status dataset_next(
        struct dataset * ds, struct document * doc, char * err, size_t err_size);

// What was met so far.
struct dataset_counts {
    int64_t records; // read = documents + skipped + filtered + malformed, once the stream has ended (but for those beyond max_docs)
    int64_t documents;       // returned
    int64_t skipped;         // by start_doc
    int64_t filtered;        // left out by `where`
    int64_t malformed;       // not JSON, a field missing or not a string, not UTF-8, too long
    int64_t files;           // begun
    int64_t files_left_out;  // of a folder, not JSON
    int64_t lone_surrogates; // escapes without a partner, replaced by U+FFFD
    int64_t bytes;           // of the texts
    int64_t bytes_read;      // of the files, compressed as they are: for progress
    int64_t bytes_total;     // of the files, −1 if stdin is among them
    const char * template; // the alternatives that records took so far, joined by " | "; "(whole file)" for plain text; "" before any
};

struct dataset_counts dataset_get_counts(const struct dataset * ds);

// The first malformed records, each as "file:line: why", and files left out; NULL beyond those that
// are remembered (16).
const char * dataset_complaint(const struct dataset * ds, int i);

// SHA-256 over the documents returned so far: for each its size as 8 bytes, little-endian, and its
// bytes. In hexadecimal.
void dataset_fingerprint(const struct dataset * ds, char hex[65]);
