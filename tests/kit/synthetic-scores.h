#pragma once

// Score files of models that do not exist, on texts that do not exist, for which every figure can
// be told beforehand.
//
// A text is a number of documents with so many bytes; a tokenizer cuts them into tokens of 1 to 8
// bytes after a BOS without any; a byte costs what its place in the text says, so that two
// tokenizers spend the same on the same bytes.
//
//     nll of a token at position t = Σ over its bytes of cost(document, byte) · (1 + warm/(1 + t/64)) + rise·max(0, log2(t/T)) + shift + wobble·z'
//     cost                         = level · e^(spread·z) · u
//
// with z a standard normal number of the document, z' one of the model and window, and u uniform in
// (0.5, 1.5). A BOS costs 0.

#include "eval/score-file.h"

struct synthetic {
    const char * model; // all strings have defaults
    const char * dataset;
    const char * quantization;
    const char * tokenizer; // its hash; also decides the tokens
    const char * fingerprint;
    const char * mode, *reset;
    const char * sources; // documents take them in turn
    const char * same_targets;
    int64_t      trained_length; // T
    int64_t      window;         // W
    int64_t      n_windows;
    int64_t      n_write;                // windows written, 0: all of the shard
    int64_t      shard, n_shards, group; // 0: 1
    int64_t      doc_bytes;              // about; 0: 4,000
    double       level, spread, warm, rise, shift, wobble;
    double       uniform; // > 0: every token costs this, whatever the rest says
    int64_t      nan_window,
            nan_position; // position > 0: NaN from there on in that window, and in all windows whose index is a multiple
                          // of it
    double norm; // > 0: with norms of states, norm·(1 + window)·at after at = 64, 128 … tokens, of layer window % 3
    int64_t short_every; // > 0: every so many windows one of half the length (mode document)
};

bool synthetic_write(const struct synthetic * s, const char * path, char * err, size_t err_size);
