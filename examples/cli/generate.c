#include "generate.h"

#include "interrupt.h"
#include "terminal.h"

#include "ggml.h"

#include <inttypes.h>

const struct finish_info FINISH_INFO[N_FINISHES] = {
    [FINISH_LENGTH]    = { "ended by -n", EXIT_CODE_OK },
    [FINISH_EOS]       = { "ended by the model", EXIT_CODE_OK },
    [FINISH_STOP]      = { "ended by a stop string", EXIT_CODE_OK },
    [FINISH_INTERRUPT] = { "interrupted", EXIT_CODE_STOPPED },
    [FINISH_PROMPT]    = { "interrupted in the prompt", EXIT_CODE_STOPPED },
    [FINISH_CLOSED]    = { "output closed", EXIT_CODE_OK },
    [FINISH_CACHE]     = { "ended by a full attention cache", EXIT_CODE_STOPPED },
    [FINISH_NUMBERS]   = { "ended by logits that are not finite", EXIT_CODE_NUMBERS },
    [FINISH_ERROR]     = { "failed", EXIT_CODE_SYSTEM },
};

// The number of tokens that still fit into the cache.
static int64_t room(const struct generator * g) {
    return g->info.n_layer_attention > 0 ? g->n_cache - lrnn_seq_length(g->session, 0) : INT64_MAX;
}

static bool eval(struct generator * g, const int32_t * tokens, int64_t n_tokens, bool logits,
        char * err, size_t err_size) {
    return lrnn_eval(g->session,
            &(struct lrnn_input) {
                    .seq = 0, .tokens = tokens, .n_tokens = n_tokens, .n_logits = logits },
            1, err, err_size);
}

enum finish generator_feed(struct generator * g, const int32_t * tokens, int64_t n_tokens,
        char * err, size_t err_size) {
    const int64_t   start_us = ggml_time_us();
    const int64_t   n_pieces = (n_tokens + g->n_batch - 1) / g->n_batch;
    const bool      is_shown = !g->quiet && n_pieces > 1;
    struct progress progress;

    if (n_tokens > room(g)) {
        snprintf(err, err_size,
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
        } else if (!eval(g, tokens + at, n, n == left, err, err_size)) {
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
    }
    g->prompt_us += ggml_time_us() - start_us;
    return finish;
}

enum finish generator_run(
        struct generator * g, int64_t n, struct output * out, char * err, size_t err_size) {
    const int64_t start_us = ggml_time_us();
    enum finish   finish   = FINISH_LENGTH;

    // One token and its logits per call. A run that continues from a saved sequence makes the same
    // calls as one that never stopped, and gives the same bits.
    for (int64_t i = 0; (n < 0 || i < n) && finish == FINISH_LENGTH; ++i) {
        float log_prob;

        if (interrupt_seen()) {
            finish = FINISH_INTERRUPT;
            break;
        }
        if (room(g) < 1) { // a token could be sampled, but not fed
            finish = FINISH_CACHE;
            break;
        }
        const int32_t token = lrnn_sampler_sample(
                g->sampler, lrnn_logits(g->session, 0), g->info.n_vocab, &log_prob, err, err_size);
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
        const bool is_last = finish != FINISH_LENGTH || i + 1 == n;
        if ((g->keep || !is_last) && !eval(g, &token, 1, true, err, err_size)) {
            finish = FINISH_ERROR;
        } else if (g->made != NULL) {
            token_list_add(g->made, &token, 1);
        }
    }
    g->made_us += ggml_time_us() - start_us;
    return finish;
}
