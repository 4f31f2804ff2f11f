#pragma once

// Feeding a prompt, and generating behind it.

#include "lrnn.h"
#include "output.h"

enum finish {
    FINISH_LENGTH,    // as many tokens as asked for
    FINISH_EOS,       // the model ended the text
    FINISH_STOP,      // a stop string
    FINISH_INTERRUPT, // Ctrl-C
    FINISH_PROMPT,    // Ctrl-C in the middle of the prompt
    FINISH_CLOSED,    // nobody reads the output, or it could not be written
    FINISH_CACHE,     // attention layers can remember no more
    FINISH_NUMBERS,   // logits that are not finite
    FINISH_ERROR,     // err says what
};

const char * finish_text(enum finish finish);

struct generator {
    struct lrnn_model *    model;
    struct lrnn_session *  session;
    struct lrnn_sampler *  sampler;
    struct lrnn_model_info info;
    int64_t                n_batch;
    int64_t                n_cache; // tokens that attention layers can remember
    bool                   keep; // the sequence is used afterwards: its last token is fed as well
    bool                   quiet;

    int64_t n_prompt; // tokens fed
    int64_t prompt_us;
    int64_t n_made; // tokens generated
    int64_t made_us;
};

// Feeds a prompt, in pieces of n_batch tokens, so that it can be interrupted. FINISH_LENGTH: it is
// all there.
enum finish generator_feed(struct generator * g, const int32_t * tokens, int64_t n_tokens,
        char * err, size_t err_size);

// Generates n tokens, -1: until something else ends it. There must be logits: lrnn_logits(session,
// 0).
enum finish generator_run(
        struct generator * g, int64_t n, struct output * out, char * err, size_t err_size);
