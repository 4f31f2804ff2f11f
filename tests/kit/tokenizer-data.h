#pragma once

// Tokenizer definitions with texts and the ids that the reference library gives them, as
// tests/tools/make-tokenizer-tests.py writes them:
//
//     "LRNNTOK1"  model  pre  normalizer                              strings; empty: none
//     bos  eos  unknown  padding                                      4 × int32, little endian
//     add_bos  add_eos  add_space_prefix                              3 × int8
//     n tokens · n types (uint8 each) · n scores (float32 each) · n merges
//     n cases: flags (uint8)  text  n                                 n = 0: the text is refused; otherwise n − 1 ids follow
//
// Counts, lengths and ids are varints (seven bits a byte, lowest first); a string is its length and
// its bytes.

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
    size_t          end; // where the case ends in the data
};

struct tokenizer_data {
    struct tokenizer_def    def;
    struct tokenizer_case * cases;
    size_t                  n_cases;
    size_t                  def_size; // bytes of the data before the count of cases
    void *                  memory;   // all of the above
};

// Any bytes are accepted or refused without harm: `data` is what a fuzzer likes. The texts stay
// where they are, inside `data`.
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
