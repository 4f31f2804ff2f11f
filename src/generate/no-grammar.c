// A build without xgrammar has no grammars. GRAMMAR_WANTED: LRNN_GRAMMAR was ON.

#include "base/error.h"
#include "generate/grammar.h"

struct lrnn_grammars * lrnn_grammars_new(const struct lrnn_model * model, struct lrnn_error * err) {
    (void) model;
#ifdef GRAMMAR_WANTED
    error_bad_input(err, "this lrnn was built without grammars, because xgrammar could not be "
                         "fetched; configure and build it again with a network");
#else
    error_bad_input(err, "this lrnn was built without grammars; configure it with LRNN_GRAMMAR=ON");
#endif
    return NULL;
}

// Nobody can create a struct lrnn_grammars here, so the other functions are never called with one.
void lrnn_grammars_free(struct lrnn_grammars * grammars) {
    (void) grammars;
}

struct lrnn_grammar * lrnn_grammar_new(struct lrnn_grammars * grammars, enum lrnn_grammar_kind kind,
        const char * text, size_t size, struct lrnn_error * err) {
    (void) kind, (void) text, (void) size;
    return (struct lrnn_grammar *) (void *) lrnn_grammars_new((void *) grammars, err);
}

void lrnn_grammar_free(struct lrnn_grammar * grammar) {
    (void) grammar;
}

struct grammar_matcher * grammar_matcher_new(
        const struct lrnn_grammar * grammar, struct lrnn_error * err) {
    (void) grammar;
    return (struct grammar_matcher *) (void *) lrnn_grammars_new(NULL, err);
}

void grammar_matcher_free(struct grammar_matcher * m) {
    (void) m;
}

bool grammar_matcher_next(
        struct grammar_matcher * m, struct grammar_next * next, struct lrnn_error * err) {
    (void) m, (void) next;
    return lrnn_grammars_new(NULL, err) != NULL;
}

bool grammar_matcher_accept(struct grammar_matcher * m, int32_t token, struct lrnn_error * err) {
    (void) m, (void) token;
    return lrnn_grammars_new(NULL, err) != NULL;
}
