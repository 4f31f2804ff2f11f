#pragma once

// Files with a tokenizer definition, texts, and the ids of the texts in the reference library,
// written by tests/tools/make-tokenizer-tests.py:
//
//     "LRNNTOK1"  model  pre  normalizer   strings; empty: none
//     bos  eos  unknown  padding           4 × int32, little endian
//     add_bos  add_eos  add_space_prefix   3 × int8
//     n  tokens                            n strings
//     n  types                             n × uint8
//     n  scores                            n × float32
//     n  merges                            n strings
//     n  cases                             flags (uint8)  text  m, then m − 1 ids; m = 0: refused
//
// Counts, lengths and ids are varints (seven bits per byte, lowest first). A string is its length
// and its bytes.

#include "lrnn.h"
#include "text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer_case {
    unsigned        flags;
    struct slice    text;
    bool            refused;
    const int32_t * ids;
    size_t          n_ids;
    size_t          end; // offset of the end of the case in the data
};

struct tokenizer_data {
    struct tokenizer_def    def;
    struct tokenizer_case * cases;
    size_t                  n_cases;
    size_t                  def_size; // bytes of the data before the count of cases
    void *                  memory;   // all of the above
};

// Reads data that may be arbitrary bytes; returns false if it has another format. The texts point
// into `data`.
bool tokenizer_data_read(struct tokenizer_data * t, const void * data, size_t size);
void tokenizer_data_free(struct tokenizer_data * t);

// lrnn_decoder_push and lrnn_decoder_end with the text as a slice.
static inline struct slice decode(struct lrnn_decoder * d, int32_t token) {
    struct slice s;
    s.data = lrnn_decoder_push(d, token, &s.size);
    return s;
}

static inline struct slice decode_end(struct lrnn_decoder * d) {
    struct slice s;
    s.data = lrnn_decoder_end(d, &s.size);
    return s;
}

#ifdef __cplusplus
}
#endif
