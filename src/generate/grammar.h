#pragma once

// Follows generated text through a grammar. grammar.cpp implements it, and the grammars of lrnn.h,
// with xgrammar; no-grammar.c is what a build without xgrammar has instead.

#include "lrnn.h"

#ifdef __cplusplus
extern "C" {
#endif

// A text that is being generated, and what may follow it.
struct grammar_matcher;
struct grammar_matcher * grammar_matcher_new(
        const struct lrnn_grammar * grammar, struct lrnn_error * err);
void grammar_matcher_free(struct grammar_matcher * m);

// What may follow the text.
struct grammar_next {
    uint32_t * allowed; // bit t % 32 of element t / 32: token t may; no special token does
    bool       any;     // a token may
    bool       end;     // the text may end here
};

// Sets *next, valid until the text changes. False if no token may follow and the text may not end,
// or if the grammar takes too long.
bool grammar_matcher_next(
        struct grammar_matcher * m, struct grammar_next * next, struct lrnn_error * err);

// Adds an allowed token to the text.
bool grammar_matcher_accept(struct grammar_matcher * m, int32_t token, struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
