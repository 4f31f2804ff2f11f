#include "generate.h"

#include "base/error.h"

#include "interrupt.h"
#include "terminal.h"

#include "ggml.h"

#include <inttypes.h>
#include <string.h>

const struct finish_info FINISH_INFO[N_FINISHES] = {
    [FINISH_LENGTH]    = { "ended by -n", EXIT_CODE_OK },
    [FINISH_EOS]       = { "ended by the model", EXIT_CODE_OK },
    [FINISH_STOP]      = { "ended by a stop string", EXIT_CODE_OK },
    [FINISH_INTERRUPT] = { "interrupted", EXIT_CODE_STOPPED },
    [FINISH_PROMPT]    = { "interrupted in the prompt", EXIT_CODE_STOPPED },
    [FINISH_CLOSED]    = { "output closed", EXIT_CODE_OK },
    [FINISH_CACHE]     = { "ended by a full attention cache", EXIT_CODE_STOPPED },
    [FINISH_NUMBERS]   = { "ended by logits that are not finite", EXIT_CODE_NOT_FINITE },
    [FINISH_ERROR]     = { "failed", EXIT_CODE_SYSTEM },
};

// The number of tokens that still fit into the cache after `length` tokens.
static int64_t room(const struct generator * g, int64_t length) {
    return g->info.n_layer_attention > 0 ? g->n_cache - length : INT64_MAX;
}

static bool eval(struct generator * g, const int32_t * tokens, int64_t n_tokens, int64_t n_logits,
        struct lrnn_error * err) {
    return lrnn_eval(g->session,
            &(struct lrnn_input) {
                    .seq = 0, .tokens = tokens, .n_tokens = n_tokens, .n_logits = n_logits },
            1, err);
}

enum finish generator_feed(
        struct generator * g, const int32_t * tokens, int64_t n_tokens, struct lrnn_error * err) {
    const int64_t   start_us = ggml_time_us();
    const int64_t   n_pieces = (n_tokens + g->n_batch - 1) / g->n_batch;
    const bool      is_shown = !g->quiet && n_pieces > 1;
    struct progress progress;

    if (n_tokens > room(g, lrnn_seq_length(g->session, 0))) {
        error_set(err, LRNN_ERROR_BAD_INPUT,
                "the sequence would have %" PRId64 " tokens, but the attention cache holds %" PRId64
                "; raise it with -c",
                lrnn_seq_length(g->session, 0) + n_tokens, g->n_cache);
        return FINISH_CACHE;
    }
    enum finish finish = FINISH_LENGTH;
    progress_begin(&progress, (int) n_pieces);
    for (int64_t at = 0; at < n_tokens && finish == FINISH_LENGTH; at += g->n_batch) {
        const int64_t left = n_tokens - at;
        const int64_t n    = left < g->n_batch ? left : g->n_batch;
        if (is_shown) {
            progress_step(&progress, "prompt");
        }
        if (at > 0 && interrupt_seen()) {
            finish = FINISH_PROMPT;
        } else if (!eval(g, tokens + at, n, n == left, err)) {
            finish = FINISH_ERROR;
        } else {
            g->n_prompt += n;
        }
        progress_done(&progress);
    }
    if (is_shown) {
        progress_clear(&progress);
    }
    for (int64_t i = 0; i < n_tokens && finish == FINISH_LENGTH; ++i) {
        lrnn_sampler_accept(g->sampler, tokens[i]);
        if (g->draft != NULL) {
            lrnn_draft_accept(g->draft, tokens[i]);
        }
    }
    g->prompt_us += ggml_time_us() - start_us;
    return finish;
}

// A draft that was fed after the last token of the text. Row i of the logits follows its first i
// tokens.
struct ahead {
    int32_t tokens[LRNN_DRAFT_MAX];
    int32_t n;     // tokens of the draft
    int32_t right; // the first ones, which were sampled since and belong to the text
    int32_t last;  // token of the text that was fed
};

static int64_t text_length(const struct generator * g, const struct ahead * a) {
    return lrnn_seq_length(g->session, 0) - (a->n - a->right);
}

// Appends a sampled token to the sequence. If the draft was wrong, it is taken back, and the token
// is fed with a new one.
// - n_left: tokens to generate after this one; -1: no limit
static bool feed_token(struct generator * g, struct ahead * a, int32_t token, int64_t n_left,
        struct lrnn_error * err) {
    int32_t tokens[1 + LRNN_DRAFT_MAX] = { token };
    a->last                            = token;
    if (g->draft != NULL) {
        lrnn_draft_accept(g->draft, token);
    }
    if (a->right < a->n && a->tokens[a->right] == token) {
        a->right++;
        return true;
    }
    if (a->n > a->right && !lrnn_seq_rewind(g->session, 0, a->n - a->right, err)) {
        return false;
    }
    const int64_t fits = room(g, lrnn_seq_length(g->session, 0) + 1);
    int64_t       most = n_left < 0 ? LRNN_DRAFT_MAX : n_left - 1; // the last one is not a guess
    most               = most < fits ? most : fits;
    most               = most < LRNN_DRAFT_MAX ? most : LRNN_DRAFT_MAX;
    a->right           = 0;
    a->n = g->draft != NULL && most > 0 ? lrnn_draft_propose(g->draft, (int32_t) most, a->tokens)
                                        : 0;
    memcpy(tokens + 1, a->tokens, (size_t) a->n * sizeof(*tokens));
    g->n_calls++;
    return eval(g, tokens, 1 + a->n, 1 + a->n, err);
}

// Takes back what is left of a draft. The last token is fed again, for its logits: a run that
// continues from here makes the same calls as without drafts.
static bool drop_draft(struct generator * g, const struct ahead * a, struct lrnn_error * err) {
    return a->n == a->right || (lrnn_seq_rewind(g->session, 0, a->n - a->right + 1, err) &&
                                       eval(g, &a->last, 1, 1, err));
}

enum finish generator_run(
        struct generator * g, int64_t n, struct output * out, struct lrnn_error * err) {
    const int64_t start_us = ggml_time_us();
    enum finish   finish   = FINISH_LENGTH;
    struct ahead  ahead    = { .n = 0 };

    // Without drafts, one token and its logits per call. A run that continues from a saved sequence
    // makes the same calls as one that never stopped, and gives the same bits.
    for (int64_t i = 0; (n < 0 || i < n) && finish == FINISH_LENGTH; ++i) {
        float log_prob;

        if (interrupt_seen()) {
            finish = FINISH_INTERRUPT;
            break;
        }
        if (room(g, text_length(g, &ahead)) < 1) { // a token could be sampled, but not fed
            finish = FINISH_CACHE;
            break;
        }
        const int32_t token = lrnn_sampler_sample(
                g->sampler, lrnn_logits(g->session, ahead.right), g->info.n_vocab, &log_prob, err);
        if (token < 0) {
            finish = token == LRNN_SAMPLE_NOT_FINITE ? FINISH_NUMBERS : FINISH_ERROR;
            break;
        }
        const bool is_end =
                g->chat != NULL ? lrnn_chat_is_end(g->chat, token) : token == g->info.eos;
        const bool is_stop = output_token(out, token, log_prob, is_end);

        g->n_made++;
        if (is_end) {
            finish = FINISH_EOS; // not fed: the text may continue
            break;
        }
        if (is_stop) {
            finish = FINISH_STOP;
        } else if (out->error != 0) {
            finish = FINISH_CLOSED;
        }
        const bool    is_last = finish != FINISH_LENGTH || i + 1 == n;
        const int64_t n_left  = is_last ? 0 : n < 0 ? -1 : n - i - 1;
        if ((g->keep || !is_last) && !feed_token(g, &ahead, token, n_left, err)) {
            finish = FINISH_ERROR;
        } else if (g->made != NULL) {
            token_list_add(g->made, &token, 1);
        }
    }
    if (g->keep && finish != FINISH_ERROR && !drop_draft(g, &ahead, err)) {
        finish = FINISH_ERROR;
    }
    g->made_us += ggml_time_us() - start_us;
    return finish;
}
