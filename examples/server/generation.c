#include "generation.h"

#include "base/error.h"
#include "run/log-softmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool generator_init(struct generator * g, const struct lrnn_model * model, int64_t n_cache,
        struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    *g                                = (struct generator) {
                                       .model   = model,
                                       .info    = info,
                                       .n_cache = info.n_layer_attention > 0 ? n_cache : INT64_MAX,
                                       .changed = malloc((size_t) info.n_vocab * sizeof(float)),
                                       .seen    = calloc((size_t) info.n_vocab, sizeof(bool)),
    };
    return (g->changed != NULL && g->seen != NULL) ||
           error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the logits");
}

void generator_free(struct generator * g) {
    free(g->changed);
    free(g->seen);
    *g = (struct generator) { 0 };
}

static void append_text(const char * text, size_t size, void * user) {
    struct choice * c = user;
    c->no_memory      = !buffer_append(&c->text, text, size) || c->no_memory;
}

bool generation_begin(struct generator * g, struct choice * c, struct lrnn_error * err) {
    const struct job_params *  p      = &c->job->params;
    struct lrnn_sampler_params params = p->sampler;
    params.seed                       = c->seed;
    c->tokens  = malloc((size_t) (c->n_prompt + p->max_tokens) * sizeof(int32_t));
    c->sampler = lrnn_sampler_new(&params, err);
    c->decoder = g->info.has_tokenizer ? lrnn_decoder_new(g->model, true, err) : NULL;
    if (c->sampler == NULL) {
        return false;
    }
    if (c->tokens == NULL || (c->decoder == NULL && g->info.has_tokenizer) ||
            !stop_begin(&c->stop, p->stops, append_text, c)) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for a choice");
    }
    memcpy(c->tokens, c->prompt, (size_t) c->n_prompt * sizeof(int32_t));
    for (int64_t i = 0; i < c->n_prompt; ++i) {
        lrnn_sampler_accept(c->sampler, c->prompt[i]);
    }
    return !p->score_prompt || generation_score(g, c, c->prompt[0], NULL, err);
}

void generation_end(struct choice * c) {
    if (c->stop.held != NULL) {
        stop_end(&c->stop);
    }
    lrnn_decoder_free(c->decoder);
    lrnn_sampler_free(c->sampler);
    c->decoder = NULL;
    c->sampler = NULL;
}

//
// Scores
//

// The n largest logits, the largest first; equal ones by rising id.
static void find_top(const float * logits, int64_t n_vocab, int32_t n, int32_t * top) {
    int32_t found = 0;
    for (int32_t v = 0; v < n_vocab; ++v) {
        if (found == n && (n == 0 || logits[v] <= logits[top[n - 1]])) {
            continue;
        }
        int32_t at = found < n ? found++ : n - 1;
        for (; at > 0 && logits[top[at - 1]] < logits[v]; --at) {
            top[at] = top[at - 1];
        }
        top[at] = v;
    }
}

bool generation_add_score(
        struct choice * c, const struct token_score * score, struct lrnn_error * err) {
    if ((c->n_scores & (c->n_scores - 1)) == 0) { // at 0, 1, 2, 4, 8, ...
        const int64_t        n    = c->n_scores > 0 ? 2 * c->n_scores : 1;
        struct token_score * more = realloc(c->scores, (size_t) n * sizeof(*more));
        if (more == NULL) {
            return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the scores of a choice");
        }
        c->scores = more;
    }
    c->scores[c->n_scores++] = *score;
    if (c->n_scores <= c->n_prompt && c->job->params.score_prompt) {
        c->n_prompt_scores = c->n_scores;
    }
    return true;
}

bool generation_score(struct generator * g, struct choice * c, int32_t token, const float * logits,
        struct lrnn_error * err) {
    const int64_t      V     = g->info.n_vocab;
    struct token_score score = { .token = token, .log_prob = NAN };
    if (logits != NULL) {
        const struct log_norm norm = log_norm_of(logits, V);
        if (isnan(norm.max)) {
            return error_set(err, LRNN_ERROR_BAD_INPUT, "a logit of the model is not finite");
        }
        score.log_prob = log_norm_prob(norm, logits[token]);
        score.n_top    = c->job->params.n_top < V ? c->job->params.n_top : (int32_t) V;
        find_top(logits, V, score.n_top, score.top);
        for (int32_t i = 0; i < score.n_top; ++i) {
            score.top_log_prob[i] = log_norm_prob(norm, logits[score.top[i]]);
        }
    }
    return generation_add_score(c, &score, err);
}

//
// Samples
//

// logit − count · frequency_penalty − (count > 0) · presence_penalty, where count is how often the
// token was generated before. As in OpenAI's API, the prompt does not count.
static void subtract_penalties(struct generator * g, const struct choice * c) {
    const struct job_params * p         = &c->job->params;
    const int32_t *           generated = c->tokens + c->n_prompt;
    for (int64_t i = 0; i < c->n_new; ++i) {
        bool * seen = &g->seen[generated[i]];
        g->changed[generated[i]] -= p->frequency_penalty + (*seen ? 0.0f : p->presence_penalty);
        *seen = true;
    }
    for (int64_t i = 0; i < c->n_new; ++i) {
        g->seen[generated[i]] = false;
    }
}

// The logits with the biases and penalties of the request.
static const float * with_biases(
        struct generator * g, const struct choice * c, const float * logits) {
    const struct job_params * p = &c->job->params;
    const bool has_penalties    = p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f;
    if (p->n_biases == 0 && !has_penalties) {
        return logits;
    }
    memcpy(g->changed, logits, (size_t) g->info.n_vocab * sizeof(float));
    for (int64_t i = 0; i < p->n_biases; ++i) {
        g->changed[p->biases[i].token] += p->biases[i].bias;
    }
    if (has_penalties) {
        subtract_penalties(g, c);
    }
    return g->changed;
}

// Adds the text of a token. True: it completes a stop string.
static bool add_text(struct choice * c, int32_t token) {
    size_t       size = 0;
    const char * text = c->decoder != NULL ? lrnn_decoder_push(c->decoder, token, &size) : "";
    return stop_push(&c->stop, text, size);
}

static void end_text(struct choice * c) {
    size_t       size = 0;
    const char * text = c->decoder != NULL ? lrnn_decoder_end(c->decoder, &size) : "";
    if (stop_push(&c->stop, text, size)) {
        c->finish = FINISH_STOP;
    }
    stop_end(&c->stop);
}

static bool is_end(const struct generator * g, const struct job_params * p, int32_t token) {
    return !p->ignore_eos &&
           (token == g->info.eos || (p->chat != NULL && lrnn_chat_is_end(p->chat, token)));
}

bool generation_sample(
        struct generator * g, struct choice * c, const float * logits, struct lrnn_error * err) {
    const struct job_params * p = &c->job->params;
    if (p->max_tokens == 0) {
        c->finish = FINISH_LENGTH;
        return false;
    }
    const int32_t token =
            lrnn_sampler_sample(c->sampler, with_biases(g, c, logits), g->info.n_vocab, NULL, err);
    if (token < 0 || (p->n_top >= 0 && !generation_score(g, c, token, logits, err))) {
        return false;
    }
    c->tokens[c->n_prompt + c->n_new++] = token;
    if (is_end(g, p, token)) {
        c->finish = FINISH_STOP;
    } else if (add_text(c, token)) {
        c->finish = FINISH_STOP;
    } else if (c->n_new == p->max_tokens || c->n_prompt + c->n_new >= g->n_cache) {
        c->finish = FINISH_LENGTH;
    }
    if (c->finish != FINISH_NONE) {
        end_text(c);
    }
    if (c->no_memory) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the text of a choice");
    }
    return c->finish == FINISH_NONE;
}
