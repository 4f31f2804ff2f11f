#pragma once

// What was measured, token by token: one file `NAME.nll` a model, data set and shard. Windows are
// appended as they are done; tables, intervals and pictures are made from it, never from the model.
//
//     "LRNN-NLL"  u32 version  u32 size of the header text
//     header text, filled with blank lines to a multiple of 8 bytes · SHA-256 of the text
//     records:    u32 "NLL1"  u32 size of the body · body, filled with zeros to a multiple of 8 bytes · u64 checksum of the body (FNV-1a)
//     body:       i64 index  i64 targets  i64 spans  [i64 norms] · spans · [norms] · f32 nll [targets] · u16 bytes [targets] · u8 flags [targets]
//
// Numbers are little-endian. What stands in brackets is there if the header has the key `probe`.
// The header text is lines "key value", in a fixed order, so that `head -40 run.nll` tells what the
// file is; in a value, \n \r \\ stand for a line feed, a carriage return and a backslash. A torn
// last record is dropped by whoever continues the file; anything else that does not fit is an error
// that names the byte. The same run gives the same bytes: there is no date and no timing in it.

#include "eval/windows.h"

#include <stdio.h>

// Everything that a comparison must know. Strings belong to whoever made the struct (scores_read:
// to the scores).
struct score_meta {
    // the tool
    const char * tool; // "lrnn-perplexity 0.1.0"
    // the model
    const char *
            model; // name shown: of the file without folder and ".gguf", unless --name says otherwise
    const char * model_hash; // SHA-256 of the file
    const char * model_family;
    const char * eigenvalues;
    const char * quantization; // type that most weights have: "q8_0"
    int64_t      parameters;
    int64_t      trained_length; // 0: unknown
    int64_t      n_vocab;
    const char *
            tokenizer_hash; // SHA-256 over the tokenizer's definition: equal hash, equal tokens
    // the data
    const char * dataset;          // preset
    const char * data_fingerprint; // of the documents that the windows of all shards come from
    const char * template;
    const char * files; // names without folders, separated by '\t'; window_span.file counts in them
    const char * sources; // the same for window_span.source; "" if records carry none
    int64_t      records, documents, filtered, malformed, lone_surrogates;
    const char * complaints; // lines "file:line: why", separated by '\t'
    // the protocol
    const char * protocol;         // "paper", "fla", "document", "llama", "custom"
    const char * mode;             // "packed", "document", "llama"
    const char *bos, *eos, *reset; // reset "never": the position of target t of window i is i·W + t
    int64_t     window;            // W
    int64_t     min_doc_tokens;
    bool        skip_special;
    const char *
            same_targets; // contexts "512,1024,…", n of them: window i is stretch i/n of the stream after the context number i mod n;
                          // only its last 2,048 targets count. "": the windows are what
                          // they are
    const char *
            probe; // "state-norm": windows have norms. "": nothing, and no such line in the header
    int64_t n_batch; // tokens a call and sequence: with `group` it fixes every call, so that equal runs give equal bytes
    int64_t group;           // windows evaluated together
    int64_t n_windows;       // of the whole run, all shards
    int64_t shard, n_shards; // i of n, from 1
};

// How large the state was after the first `at` tokens of a window (state-norm.h).
struct score_norm {
    int64_t at;
    int32_t layer; // that has the largest
    float   norm;  // recorded as it was, finite or not
};

// One window, read back.
struct score_window {
    int64_t index;
    int64_t n_targets; // W − 1, or less in document mode
    const float *
            nll; // [n_targets] of target t = 1 .. W−1, nats; NaN or infinite: recorded as it was
    const uint16_t *           bytes; // [n_targets]
    const uint8_t *            flags; // [n_targets] SCORE_*
    const struct window_span * spans; // ascending; the first begins at token 0
    int32_t                    n_spans;
    const struct score_norm *  norms; // ascending
    int32_t                    n_norms;
};

enum {
    SCORE_COUNTED = 1 << 0, // a target; without it the token is context only
    SCORE_TOP1    = 1 << 1, // the model's most likely token
};

// The windows first .. end − 1 that a shard owns: whole groups, as evenly as they can be dealt.
void score_shard_range(const struct score_meta * meta, int64_t * first, int64_t * end);

// SHA-256 of the header text, which is all that fixes a run: two runs with equal identities give
// equal files.
bool score_meta_identity(
        const struct score_meta * meta, uint8_t digest[32]); // false: out of memory

// Writing. The file is locked while it is open: two processes cannot write to one. Opening for
// resume checks that the header is equal to the byte, drops a torn record and says how many windows
// are there; they are the first of the shard.
struct score_writer;

struct score_writer * score_writer_create(const char * path, const struct score_meta * meta,
        char * err, size_t err_size); // replaces a file
struct score_writer * score_writer_resume(const char * path, const struct score_meta * meta,
        int64_t * n_done, char * err, size_t err_size);
bool score_writer_append(struct score_writer * w, const struct score_window * window, char * err,
        size_t err_size); // in order of index
bool score_writer_sync(struct score_writer * w, char * err,
        size_t err_size); // what was appended is on the disk when it returns
bool score_writer_close(
        struct score_writer * w, char * err, size_t err_size); // synced, freed; NULL is fine

// Reading: one run, made of one file or of all its shards, windows in order of index. Shards that
// overlap, leave gaps or differ in their headers are refused, with the file and the key. In meta,
// shard and n_shards are 1: it is as if the run had never been split.
// - partial: a run that is not finished is read as far as it is; otherwise it is refused
struct scores {
    struct score_meta     meta;
    int64_t               n_windows; // there are; in a partial run fewer than meta.n_windows
    struct score_window * windows;
    void *                memory; // all of the above lies in it
};

bool scores_read(const char * const * paths, int n_paths, bool partial, struct scores * scores,
        char * err, size_t err_size);
void scores_free(struct scores * scores);

// Only the header of one file, to tell which files belong together. Its strings live until
// scores_free; there are no windows.
bool scores_read_meta(const char * path, struct scores * scores, char * err, size_t err_size);
