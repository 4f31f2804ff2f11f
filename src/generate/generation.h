#pragma once

// A generation from the inside, for programs that make their own calls of the model:
//
//     generation_draft(generations, n)           drafts of the model
//     generation_input(g, n_max, &inputs[i])     what to feed next
//     lrnn_eval(session, inputs, n)
//     generation_take(g, row)                    row: that of its first logits
//
// It reads the prompt, samples, decodes, looks for stop strings, and checks drafts.

#include "base/buffer.h"
#include "generate/draft.h"
#include "generate/grammar.h"
#include "lrnn.h"

// Stop strings: passes text on until one of them is complete. Text that may be the beginning of one
// is held back.
struct stop_filter {
    const char * const * stops; // [n_stops], not empty
    int32_t              n_stops;
    struct buffer *      out;  // receives the text
    char *               held; // as long as the longest stop string
    size_t               n_held;
    bool                 no_memory; // for the text
};

// False: out of memory.
bool stop_begin(struct stop_filter * filter, const char * const * stops, int32_t n_stops,
        struct buffer * out);

// True: a stop string is complete.
bool stop_push(struct stop_filter * filter, const char * text, size_t size);

// Passes on the text that was held back, and frees the filter.
void stop_end(struct stop_filter * filter);

enum { GENERATION_ENDS_MAX = 64 };

enum generation_phase {
    GENERATION_PROMPT, // tokens of the prompt are to be fed
    GENERATION_TEXT,   // the last token of the text is to be fed
    GENERATION_LAST,   // the same; no token is sampled after it
    GENERATION_DONE,
};

struct lrnn_generation {
    struct lrnn_session *         session;
    int32_t                       seq;
    struct lrnn_generation_params params;
    struct lrnn_model_info        info;
    struct lrnn_sampler *         sampler;
    struct draft *                draft; // by lookup; NULL: none
    struct lrnn_decoder *         decoder;
    struct stop_filter            stop;
    struct grammar_matcher *      matcher;                   // of the text so far; NULL: no grammar
    struct grammar_next           allowed;                   // what the grammar allows next
    int32_t                       ends[GENERATION_ENDS_MAX]; // tokens that end the text, [n_ends]
    int32_t                       n_ends;

    // Changes the logits [n_vocab] before a token is sampled. NULL: they stay as they are.
    const float * (*change_logits)(void * user, const float * logits);
    void * change_user;

    enum generation_phase phase;
    enum lrnn_finish      finish; // set before the last token is fed
    int32_t *             prompt; // [n_prompt]
    int64_t               n_prompt;
    int64_t               n_fed; // tokens of the prompt
    int64_t               n_new; // generated tokens

    // The next input: a token of the text and its draft. Those that were sampled since are right.
    int32_t next[1 + LRNN_DRAFT_MAX];
    int32_t n_next;

    // what the last step added
    int32_t       tokens[1 + LRNN_DRAFT_MAX];
    float         log_probs[1 + LRNN_DRAFT_MAX];
    int64_t       n_tokens;
    struct buffer text;
};

// The same as lrnn_generation_prompt, if the sequence is empty or not yet set.
// - follows: the text follows other text, and keeps its leading space
bool generation_begin(struct lrnn_generation * g, const int32_t * tokens, int64_t n_tokens,
        bool follows, struct lrnn_error * err);

// Makes the drafts of the generations of a session that have n_draft_mtp; they must be fed next.
// None is made if that fails: a draft is never necessary.
void generation_draft(struct lrnn_generation * const * generations, int32_t n);

// The next tokens to feed, at most n_max of the prompt. False: none.
bool generation_input(struct lrnn_generation * g, int64_t n_max, struct lrnn_input * input);

// Continues after the input was fed. The last rows of its logits begin with `row`.
bool generation_take(struct lrnn_generation * g, const struct lrnn_input * input, int64_t row,
        struct lrnn_error * err);

// Generates a token from logits that are already there: the prompt is empty.
bool generation_sample(struct lrnn_generation * g, const float * logits, struct lrnn_error * err);
