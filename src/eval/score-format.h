#pragma once

// The bytes of a score file, for those who write and read one (score-file.h has the layout).

#include "eval/score-file.h"

enum {
    SCORE_PREFIX_SIZE = 16, // magic, version, size of the text
    SCORE_DIGEST_SIZE = 32,
    SCORE_MAX_TEXT    = 64 << 20,
    SCORE_MAX_TARGETS = 1 << 28, // a body is below 4 GiB
    SCORE_MAX_SHARDS  = 1 << 20,
};

// The whole header of a file: prefix, text, digest. Made with malloc, NULL: out of memory.
char * score_header_new(const struct score_meta * meta, size_t * size);

// Where records begin, from the first bytes of a file; 0 with a sentence in err if this is no
// header. Only the structure is checked.
// - file: names it in the sentence
size_t score_header_check(
        const char * file, const uint8_t * data, size_t size, char * err, size_t err_size);

// Reads the text of a checked header. It is taken apart where it stands: `text` is a copy that
// lives as long as meta.
bool score_meta_parse(const char * file, char * text, size_t size, struct score_meta * meta,
        char * err, size_t err_size);

// The first key, in the order of the file, that two runs differ in, and both values; NULL: none.
// Shards of one run differ in "shard".
// - a, b: as long as the two metas
const char * score_meta_difference(const struct score_meta * x, const struct score_meta * y,
        bool with_shard, char a[64], char b[64]);

// A record as bytes, made with malloc; NULL: out of memory.
// - has_norms: score_has_norms of the run
uint8_t * score_record_new(const struct score_window * window, bool has_norms, size_t * size);

bool score_has_norms(const struct score_meta * meta);

enum score_record {
    SCORE_RECORD_OK,
    SCORE_RECORD_END,  // there is none
    SCORE_RECORD_TORN, // the file ends in it, or its checksum is wrong and nothing follows
    SCORE_RECORD_BAD,  // err says what does not fit, and at which byte
};

// The record at byte *at of a file, and *at behind it. The window points into the data.
enum score_record score_record_read(const char * file, const uint8_t * data, size_t size,
        size_t * at, const struct score_meta * meta, struct score_window * window, char * err,
        size_t err_size);
