#pragma once

// Score files: the loss of every token of a run, one file `NAME.nll` per model, data set and shard.
// Finished windows are appended. Reports are made from these files alone.
//
//     "LRNN-NLL"  u32 version  u32 size of the header text
//     header text, padded with line feeds to a multiple of 8 bytes · SHA-256 of the text
//     records:    u32 "NLL1"  u32 size of the body · body, padded with zeros to a multiple of
//                 8 bytes · u64 checksum of the body (FNV-1a)
//     body:       i64 index  i64 targets  i64 spans  [i64 norms] · spans · [norms] ·
//                 f32 nll [targets] · u16 bytes [targets] · u8 flags [targets]
//
// Numbers are little-endian. The parts in brackets exist if the header has the key `probe`. The
// header text consists of lines "key value" in a fixed order, so that `head -40 run.nll` shows what
// was measured. In a value, \n \r \\ stand for line feed, carriage return and backslash.
// Resuming a run drops a torn last record; any other damage is an error that names the byte. The
// file contains no dates or times: equal runs give equal bytes.

#include "lrnn.h"
#include "eval/data/windows.h"

#include <stdio.h>

// The conditions of a run. The strings of scores_read belong to the scores.
struct score_meta {
    // the tool
    const char * tool; // "lrnn-perplexity 0.1.0"
    // the model
    const char * model;      // name in reports: file name without ".gguf", or --name
    const char * model_hash; // SHA-256 of the file
    const char * model_family;
    const char * eigenvalues;
    const char * quantization; // type of most weights: "q8_0"
    int64_t      parameters;
    int64_t      trained_length; // 0: unknown; the key in the file is train_length
    int64_t      n_vocab;
    const char * tokenizer_hash; // SHA-256 of the tokenizer's definition: equal hash, equal tokens
    // the data
    const char * dataset;          // preset; dataset_title is its name in reports
    const char * data_fingerprint; // of the documents that the windows of all shards come from
    const char * template;
    const char * files;   // names without folders, separated by '\t'; see window_span.file
    const char * sources; // the same; see window_span.source; "": records have none
    int64_t      records, documents, filtered, malformed, lone_surrogates;
    const char * complaints; // "file:line: why", separated by '\t'
    // the protocol
    const char * protocol;          // "paper", "fla", "document", "llama", "custom"
    const char * mode;              // "packed", "document", "llama"
    const char * bos, *eos, *reset; // reset "never": target t of window i has position i·W + t
    int64_t      window;            // W
    int64_t      min_doc_tokens;
    bool         skip_special;
    // context lengths "512,1024,…", n of them: window i is stretch i/n of the stream after context
    // number i mod n, and only its last 2,048 targets count; "": plain windows
    const char * same_targets;
    const char * probe; // "state-norm": windows have norms; "": none, and no line in the header
    const char * cache_type; // "f16", "f32", "q8_0"; "": no attention layers, and no line
    const char * state_type; // states are rounded to it: "bf16"; "": not rounded, and no line
    bool         exact_cuts; // n_batch and group do not matter; false: no line
    int64_t      n_batch;    // tokens per call and sequence; together with group, fixes every call
    int64_t      group;      // windows evaluated together
    int64_t      n_windows;  // of the whole run, all shards
    int64_t      shard, n_shards; // shard 1 … n_shards
};

// The largest norm of a state after the first `at` tokens of a window.
struct score_norm {
    int64_t at;
    int32_t layer; // that has it
    float   norm;  // may be non-finite
};

// One window, read from a file.
struct score_window {
    int64_t                    index;
    int64_t                    n_targets; // W − 1, or less in document mode
    const float *              nll;       // [n_targets] loss of targets 1 … W−1, nats; may be NaN
    const uint16_t *           bytes;     // [n_targets]
    const uint8_t *            flags;     // [n_targets] SCORE_*
    const struct window_span * spans;     // ascending; the first begins at token 0
    int32_t                    n_spans;
    const struct score_norm *  norms; // ascending
    int32_t                    n_norms;
};

enum {
    SCORE_COUNTED = 1 << 0, // a target; otherwise the token is only context
    SCORE_TOP1 = 1 << 1,    // the model's most likely token
};

// The windows first … end − 1 of a shard: whole groups, distributed evenly.
void score_shard_range(const struct score_meta * meta, int64_t * first, int64_t * end);

// SHA-256 of the header text. Runs with equal identity give equal files.
void score_meta_identity(const struct score_meta * meta, uint8_t digest[32]);

// Writing. An open file is locked against other processes.
struct score_writer;

// - n_done: NULL: replace an existing file. Otherwise continue a file with an equal header, without
//   a torn last record; receives the number of windows in the file, the first ones of the shard
struct score_writer * score_writer_open(const char * path, const struct score_meta * meta,
        int64_t * n_done, struct lrnn_error * err);

// Windows must come in ascending order.
bool score_writer_append(
        struct score_writer * w, const struct score_window * window, struct lrnn_error * err);
bool score_writer_sync(struct score_writer * w, struct lrnn_error * err); // fsync

// Syncs and frees. NULL is allowed.
bool score_writer_close(struct score_writer * w, struct lrnn_error * err);

// Reading: one run, from one file or from all of its shards. Windows are in ascending order, and
// meta has shard and n_shards 1, as if the run had never been split. Shards that overlap, leave
// gaps or have different headers are an error that names the file and the key.
// - partial: accept an unfinished run
struct scores {
    struct score_meta     meta;
    int64_t               n_windows; // fewer than meta.n_windows in a partial run
    struct score_window * windows;
    void *                memory; // holds all of the above
};

bool scores_read(const char * const * paths, int n_paths, bool partial, struct scores * scores,
        struct lrnn_error * err);
void scores_free(struct scores * scores);

// Reads only the header of one file, to find out which files belong together.
bool scores_read_meta(const char * path, struct scores * scores, struct lrnn_error * err);

// The bytes of x_0 of windows[window], which is not a target, so the file does not contain them:
// none if it is a bos; otherwise they follow from the next window, if it continues the document.
// False: unknown.
bool score_first_token_bytes(const struct scores * scores, int64_t window, int64_t * n);

//
// The bytes of a file: its header (score-header.c) and its records (score-read.c)
//

enum {
    SCORE_PREFIX_SIZE = 16, // magic, version, size of the text
    SCORE_DIGEST_SIZE = 32,
    SCORE_MAX_TEXT = 64 << 20,
    SCORE_MAX_TARGETS = 1 << 28, // keeps a body below 4 GiB
    SCORE_MAX_SHARDS = 1 << 20,
};

// Returns the header of a file: prefix, text, digest. To be freed.
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

// Returns a record as bytes. To be freed.
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
