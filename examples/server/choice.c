#include "choice.h"

#include "base/error.h"
#include "generate/generation.h"
#include "log-softmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool choice_tools_init(struct choice_tools * t, struct lrnn_session * session,
        struct lrnn_model_info info, struct lrnn_error * err) {
    *t = (struct choice_tools) {
        .session = session,
        .info = info,
        .changed = malloc((size_t) info.n_vocab * sizeof(float)),
        .seen = calloc((size_t) info.n_vocab, sizeof(bool)),
    };
    return (t->changed != NULL && t->seen != NULL) || error_no_memory(err, "the logits");
}

void choice_tools_free(struct choice_tools * t) {
    free(t->changed);
    free(t->seen);
}

//
// Biases and penalties
//

// logit − count · frequency_penalty − (count > 0) · presence_penalty, where count is how often the
// token was generated before. As in OpenAI's API, the prompt does not count.
static void subtract_penalties(
        struct choice_tools * t, const struct job_params * p, const int32_t * tokens, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        bool * seen = &t->seen[tokens[i]];
        t->changed[tokens[i]] -= p->frequency_penalty + (*seen ? 0.0f : p->presence_penalty);
        *seen = true;
    }
}

static void forget_seen(struct choice_tools * t, const int32_t * tokens, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        t->seen[tokens[i]] = false;
    }
}

// The logits with the biases and penalties of the request.
static const float * change_logits(void * user, const float * logits) {
    struct choice *           c = user;
    struct choice_tools *     t = c->tools;
    const struct job_params * p = &c->job->params;
    const int32_t *           made = c->tokens + c->n_prompt;
    const struct lrnn_generated new = lrnn_generation_get(c->generation); // of this call
    memcpy(t->changed, logits, (size_t) t->info.n_vocab * sizeof(float));
    for (int64_t i = 0; i < p->n_biases; ++i) {
        t->changed[p->biases[i].token] += p->biases[i].bias;
    }
    subtract_penalties(t, p, made, c->n_new);
    subtract_penalties(t, p, new.tokens, new.n_tokens);
    forget_seen(t, made, c->n_new);
    forget_seen(t, new.tokens, new.n_tokens);
    return t->changed;
}

bool choice_begin(struct choice_tools * t, struct choice * c, struct lrnn_error * err) {
    const struct job_params *     p = &c->job->params;
    struct lrnn_generation_params params = p->generation;
    const int64_t                 n_new = params.max_tokens > 0 ? params.max_tokens : 0;
    params.sampler.seed = c->seed;
    c->tools = t;
    c->tokens = malloc((size_t) (c->n_prompt + n_new) * sizeof(int32_t));
    c->generation = lrnn_generation_new(t->session, c->seq, &params, err);
    if (c->generation == NULL ||
            !generation_begin(c->generation, c->prompt, c->n_prompt, c->follows, err)) {
        return false;
    }
    if (c->tokens == NULL) {
        return error_no_memory(err, "a choice");
    }
    memcpy(c->tokens, c->prompt, (size_t) c->n_prompt * sizeof(int32_t));
    if (p->n_biases > 0 || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f) {
        c->generation->change_logits = change_logits;
        c->generation->change_user = c;
    }
    return !p->score_prompt || choice_score(t, c, c->prompt[0], NULL, err);
}

void choice_end(struct choice * c) {
    lrnn_generation_free(c->generation);
    free(c->tokens);
    c->generation = NULL;
    c->tokens = NULL;
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

bool choice_add_score(
        struct choice * c, const struct token_score * score, struct lrnn_error * err) {
    if ((c->n_scores & (c->n_scores - 1)) == 0) { // at 0, 1, 2, 4, 8, ...
        const int64_t        n = c->n_scores > 0 ? 2 * c->n_scores : 1;
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

bool choice_score(struct choice_tools * t, struct choice * c, int32_t token, const float * logits,
        struct lrnn_error * err) {
    const int64_t      V = t->info.n_vocab;
    struct token_score score = { .token = token, .log_prob = NAN };
    if (logits != NULL) {
        const struct log_norm norm = log_norm_of(logits, V);
        if (isnan(norm.max)) {
            return error_set(err, LRNN_ERROR_NOT_FINITE, "a logit of the model is not finite");
        }
        score.log_prob = log_norm_prob(norm, logits[token]);
        score.n_top = c->job->params.n_top < V ? c->job->params.n_top : (int32_t) V;
        find_top(logits, V, score.n_top, score.top);
        for (int32_t i = 0; i < score.n_top; ++i) {
            score.top_log_prob[i] = log_norm_prob(norm, logits[score.top[i]]);
        }
    }
    return choice_add_score(c, &score, err);
}

//
// Tokens
//

// Adds what was generated, and its scores. Token i was sampled from logits[i] [n_vocab].
static bool add_generated(struct choice_tools * t, struct choice * c,
        const float * const logits[1 + LRNN_DRAFT_MAX], struct lrnn_error * err) {
    const struct lrnn_generated new = lrnn_generation_get(c->generation);
    for (int64_t i = 0; i < new.n_tokens; ++i) {
        if (c->job->params.n_top >= 0 && !choice_score(t, c, new.tokens[i], logits[i], err)) {
            return false;
        }
        c->tokens[c->n_prompt + c->n_new++] = new.tokens[i];
    }
    c->n_fed = lrnn_seq_length(t->session, c->seq);
    c->phase = c->generation->phase == GENERATION_PROMPT ? CHOICE_PROMPT : CHOICE_DECODE;
    c->finish = lrnn_generation_finish(c->generation);
    return buffer_append(&c->text, new.text, new.size) || error_no_memory(err, "generated text");
}

bool choice_take_logits(
        struct choice_tools * t, struct choice * c, const float * logits, struct lrnn_error * err) {
    const float * const rows[1 + LRNN_DRAFT_MAX] = { logits };
    return generation_sample(c->generation, logits, err) && add_generated(t, c, rows, err);
}

bool choice_take(struct choice_tools * t, struct choice * c, const struct lrnn_input * input,
        int64_t row, struct lrnn_error * err) {
    const bool is_prompt = c->phase == CHOICE_PROMPT;
    for (int64_t i = 0; is_prompt && c->job->params.score_prompt && i < input->n_tokens; ++i) {
        const int64_t next = c->n_fed + i + 1;
        if (next < c->n_prompt &&
                !choice_score(t, c, c->prompt[next], lrnn_logits(t->session, row + i), err)) {
            return false;
        }
    }
    const int64_t first = is_prompt ? row + input->n_logits - 1 : row; // to be sampled from
    const float * rows[1 + LRNN_DRAFT_MAX];
    for (int64_t i = 0; i <= LRNN_DRAFT_MAX; ++i) {
        rows[i] = lrnn_logits(t->session, first + i);
    }
    return generation_take(c->generation, input, row, err) && add_generated(t, c, rows, err);
}
