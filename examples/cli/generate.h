#pragma once

// Feeds a prompt, and generates text after it.

#include "exit-code.h"
#include "lrnn.h"
#include "output.h"
#include "token-list.h"

// Why the generation ended.
enum finish {
    FINISH_LENGTH,    // -n tokens were generated
    FINISH_EOS,       // the model ended the text
    FINISH_STOP,      // a stop string
    FINISH_INTERRUPT, // Ctrl-C
    FINISH_PROMPT,    // Ctrl-C in the middle of the prompt
    FINISH_CLOSED,    // the output cannot be written, or nobody reads it
    FINISH_CACHE,     // the attention cache is full
    FINISH_NUMBERS,   // logits that are not finite
    FINISH_ERROR,     // see err
    N_FINISHES,
};

extern const struct finish_info {
    const char *   text;
    enum exit_code code;
} FINISH_INFO[N_FINISHES];

struct generator {
    struct lrnn_model *    model;
    struct lrnn_session *  session;
    struct lrnn_sampler *  sampler;
    struct lrnn_model_info info;
    int64_t                n_batch;
    int64_t                n_cache; // size of the attention cache, in tokens
    bool                   keep;    // the sequence is used afterwards: feed its last token too
    bool                   quiet;

    struct lrnn_draft *      draft; // proposes tokens; NULL: one token per call
    const struct lrnn_chat * chat;  // its tokens end an answer; NULL: only eos does
    struct token_list *      made;  // receives the generated tokens; NULL: nobody does

    int64_t n_prompt; // tokens fed
    int64_t prompt_us;
    int64_t n_made; // tokens generated
    int64_t made_us;
    int64_t n_calls; // of the model, to generate them
};

// Feeds a prompt, n_batch tokens at a time, so that it can be interrupted. FINISH_LENGTH: all of it
// was fed.
enum finish generator_feed(
        struct generator * g, const int32_t * tokens, int64_t n_tokens, struct lrnn_error * err);

// Generates n tokens; -1: no limit. lrnn_logits(session, 0) must not be NULL.
enum finish generator_run(
        struct generator * g, int64_t n, struct output * out, struct lrnn_error * err);
