#pragma once

// Synthetic score files, whose losses are known in advance.
//
// A text is a number of documents; a tokenizer cuts them into tokens of 1 to 8 bytes after a bos
// without bytes. The cost of a byte depends only on its position in the text, so two tokenizers
// have equal costs for equal bytes:
//
//     nll of a token at position t = Σ over its bytes of cost(document, byte) ·
//                                    (1 + warm/(1 + t/64)) + rise·max(0, log2(t/T)) + shift +
//                                    wobble·z'
//     cost                         = level · e^(spread·z) · u
//
// z is standard normal per document, z' per model and window, and u is uniform in (0.5, 1.5). A bos
// costs 0.

#include "lrnn.h"
#include "eval/scores/score-file.h"

struct synthetic {
    const char * model; // all strings have defaults
    const char * dataset;
    const char * quantization;
    const char * tokenizer; // hash; decides the tokens
    const char * fingerprint;
    const char * mode, *reset;
    const char * sources; // of documents, in turn
    const char * same_targets;
    int64_t      trained_length; // T
    int64_t      window;         // W
    int64_t      n_windows;
    int64_t      n_write;                // windows to write; 0: all of the shard
    int64_t      shard, n_shards, group; // 0: 1
    int64_t      doc_bytes;              // about; 0: 4,000
    double       level, spread, warm, rise, shift, wobble;
    double       uniform; // > 0: the cost of every token
    // position > 0: NaN from there on in every window whose index is a multiple of nan_window
    int64_t nan_window, nan_position;
    double  norm;        // > 0: norms of states, norm·(1 + window)·at after at = 64, 128 … tokens
    int64_t short_every; // > 0: every short_every-th window has half the length
};

bool synthetic_write(const struct synthetic * s, const char * path, struct lrnn_error * err);
