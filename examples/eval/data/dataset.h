#pragma once

// A data set as a stream of documents: files and folders, plain or compressed, text or JSON, one
// document at a time.
//
// A template turns a record into the text of a document. The fingerprint covers these texts, so it
// does not depend on the container: JSON lines, a JSON array, TriviaQA's {"Data": […]}, one
// indented record per file; plain, gzip or zstd. The bytes decide the format, never the name. Files
// that do not begin like JSON are plain text.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A data set known by name: how its records become text, and which are used.
struct dataset_preset {
    const char * name; // "codeparrot"
    // "{content}"; alternatives are separated by '\n', and a record takes the first one whose
    // fields it has
    const char * templates;
    const char * where;  // "level=Level 5"; NULL: all records
    const char * source; // field with the origin of a record, "meta.redpajama_set_name"; NULL: none
    const char * about;  // one line for --list-datasets
};

const struct dataset_preset * dataset_preset_find(const char * name); // NULL: unknown
const struct dataset_preset * dataset_preset_at(int i);               // NULL after the last

enum { DATASET_TITLE_SIZE = 256 };

// The name of a data set in reports: that of its preset. "text" says nothing about the data; there
// it is the name of the file, if it is only one, without extensions such as ".jsonl.gz".
// - files: names without folders, separated by '\t'
void dataset_title(const char * preset, const char * files, char title[DATASET_TITLE_SIZE]);

struct dataset_params {
    const char * const * paths; // files, folders (recursively, sorted), "-" for stdin
    int                  n_paths;
    const char *         preset; // NULL: "text"
    const char * template;       // "Problem: {problem}"; {{ and }}: braces; NULL: of the preset
    const char * text_field;     // same as the template "{field}"; not both
    const char * where;          // "field=value", "field!=value"; NULL: of the preset; "": all
    int64_t      start_doc;      // documents to skip, after shuffling
    int64_t      max_docs;       // 0: all
    bool         shuffle;        // in an order given by shuffle_seed; keeps texts in memory
    uint64_t     shuffle_seed;
    size_t       max_shuffle_bytes; // limit of that memory; 0: 1 GiB
    size_t       max_record;        // bytes per record; 0: 256 MiB
    double       max_bad_share; // malformed records allowed, of those read; 10 always are; 0: 0.01
};

struct document {
    const char * text; // UTF-8, not terminated, may contain NUL; valid until the next call
    size_t       size;
    int64_t      index;  // from 0
    const char * file;   // as given, "-" for stdin
    int64_t      line;   // where the record begins, from 1; 0: not applicable
    const char * source; // value of the preset's source field, without control characters; "": none
};

enum dataset_status { DATASET_DOCUMENT, DATASET_END, DATASET_ERROR };

struct dataset;

struct dataset * dataset_open(const struct dataset_params * params, struct lrnn_error * err);
void dataset_free(struct dataset * ds);

// Reads the next document. A stream without any document is an error that counts the records. If a
// preset or template expects records, files in folders that are not JSON (such as a README) are
// skipped with a complaint, and files given by name are read as JSON lines.
enum dataset_status dataset_next(
        struct dataset * ds, struct document * doc, struct lrnn_error * err);

// Counts so far.
struct dataset_counts {
    int64_t records;         // read: documents + skipped + filtered + malformed, at the end
    int64_t documents;       // returned
    int64_t skipped;         // by start_doc
    int64_t filtered;        // excluded by where
    int64_t malformed;       // not JSON, a field missing or not a string, not UTF-8, too long
    int64_t files;           // opened
    int64_t files_left_out;  // of a folder, not JSON
    int64_t lone_surrogates; // escapes without a partner, replaced by U+FFFD
    int64_t bytes;           // of the texts
    int64_t bytes_read;      // of the files, before decompression: for progress
    int64_t bytes_total;     // of the files; −1: unknown because of stdin
    const char * template; // templates used, joined by " | "; "(whole file)": plain text; "": none
};

struct dataset_counts dataset_get_counts(const struct dataset * ds);

// The first malformed records and skipped files, as "file:line: why"; NULL after the last one that
// is stored (at most 16).
const char * dataset_complaint(const struct dataset * ds, int i);

// SHA-256 of the documents returned so far, in hexadecimal: for each document, its size as 8 bytes,
// little-endian, and its text.
void dataset_fingerprint(const struct dataset * ds, char hex[65]);
