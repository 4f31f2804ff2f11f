#pragma once

// The bytes of a score file (layout: score-file.h): its header (score-header.c) and its records
// (score-record.c).

#include "lrnn.h"
#include "eval/scores/score-file.h"

enum {
    SCORE_PREFIX_SIZE = 16, // magic, version, size of the text
    SCORE_DIGEST_SIZE = 32,
    SCORE_MAX_TEXT    = 64 << 20,
    SCORE_MAX_TARGETS = 1 << 28, // keeps a body below 4 GiB
    SCORE_MAX_SHARDS  = 1 << 20,
};

// Returns the header of a file: prefix, text, digest. To be freed; NULL: out of memory.
char * score_header_new(const struct score_meta * meta, size_t * size);

// Checks the structure of a header. Returns the offset of the first record, or 0 and a message.
// - file: for the message
size_t score_header_check(
        const char * file, const uint8_t * data, size_t size, struct lrnn_error * err);

// Parses the text of a checked header in place. The text must live as long as meta.
bool score_meta_parse(const char * file, char * text, size_t size, struct score_meta * meta,
        struct lrnn_error * err);

// Returns the first key whose values differ, in the order of the file, and both values; NULL: none.
// - with_shard: also compare the key shard, which differs between shards of a run
const char * score_meta_difference(const struct score_meta * x, const struct score_meta * y,
        bool with_shard, char a[64], char b[64]);

bool score_has_norms(const struct score_meta * meta);

// Returns a record as bytes. To be freed; NULL: out of memory.
// - has_norms: score_has_norms of the run
uint8_t * score_record_new(const struct score_window * window, bool has_norms, size_t * size);

enum score_record {
    SCORE_RECORD_OK,
    SCORE_RECORD_END,  // no more records
    SCORE_RECORD_TORN, // cut off, or the last record with a wrong checksum
    SCORE_RECORD_BAD,  // invalid; err says why
};

// Reads the record at offset *at and advances *at. The window points into the data.
enum score_record score_record_read(const char * file, const uint8_t * data, size_t size,
        size_t * at, const struct score_meta * meta, struct score_window * window,
        struct lrnn_error * err);
