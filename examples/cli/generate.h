#pragma once

// Generates text in sequence 0, shows progress, and listens to Ctrl-C.

#include "generate/generation.h"
#include "lrnn.h"
#include "output.h"
#include "token-list.h"

#define GENERATOR_MORE_CACHE "raise it with -c"

struct generator {
    struct lrnn_model *      model;
    struct lrnn_session *    session;
    struct lrnn_generation * generation;
    struct lrnn_model_info   info;
    int64_t                  n_batch;
    bool                     quiet;

    struct lrnn_error err;      // why the last run failed; LRNN_ERROR_CANCELLED: Ctrl-C in a prompt
    int64_t           n_prompt; // tokens fed
    int64_t           prompt_us;
    int64_t           n_new; // tokens generated
    int64_t           new_us;
    int64_t           n_calls;   // of the model, to generate them
    bool              is_closed; // stdout cannot be written, or nobody reads it
};

// Reads a prompt. False: g->err tells why not.
// - max_tokens: that generator_write generates after it; 0: no limit, -1: none
bool generator_read(
        struct generator * g, const int32_t * tokens, int64_t n_tokens, int64_t max_tokens);

// Generates the text after the prompt. LRNN_FINISH_CALLER: Ctrl-C, or out->error;
// LRNN_FINISH_ERROR: see g->err.
// - made: receives the tokens that the sequence has gained; may be NULL
enum lrnn_finish generator_write(
        struct generator * g, struct output * out, struct token_list * made);

// How the last run ended, for the summary.
const char * generator_end_text(const struct generator * g);
