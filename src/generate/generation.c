#include "generate/generation.h"

#include "base/error.h"
#include "generate/prompt.h"
#include "model/model.h"
#include "run/sampler.h"
#include "run/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char * const FINISH_NAMES[LRNN_N_FINISHES] = {
    [LRNN_FINISH_NONE] = "none",
    [LRNN_FINISH_LENGTH] = "length",
    [LRNN_FINISH_EOS] = "eos",
    [LRNN_FINISH_STOP] = "stop",
    [LRNN_FINISH_GRAMMAR] = "grammar",
    [LRNN_FINISH_CACHE] = "cache",
    [LRNN_FINISH_CALLER] = "caller",
    [LRNN_FINISH_ERROR] = "error",
};

const char * lrnn_finish_name(enum lrnn_finish finish) {
    return FINISH_NAMES[finish];
}

static bool check_draft(const struct lrnn_session * session, const char * name, int32_t n,
        struct lrnn_error * err) {
    const int32_t n_rewind = session->params.n_rewind;
    return n == 0 || (n > 0 && n <= LRNN_DRAFT_MAX && n < n_rewind) ||
           error_bad_input(err, "%s is %d; expected 0 to %d, and less than n_rewind, which is %d",
                   name, n, LRNN_DRAFT_MAX, n_rewind);
}

static bool check_params(const struct lrnn_session * session, int32_t seq,
        const struct lrnn_generation_params * p, struct lrnn_error * err) {
    if (!session_check_seq(session, seq, err)) {
        return false;
    }
    if (p->max_tokens < -1) {
        return error_bad_input(
                err, "max_tokens is %" PRId64 "; expected -1 or more", p->max_tokens);
    }
    if (!check_draft(session, "n_draft", p->n_draft, err) ||
            !check_draft(session, "n_draft_mtp", p->n_draft_mtp, err)) {
        return false;
    }
    if (p->n_draft_mtp > 0 && (p->n_draft > 0 || !session->params.draft_block)) {
        return error_bad_input(err, "n_draft_mtp is %d; expected 0 %s", p->n_draft_mtp,
                p->n_draft > 0 ? "if there is n_draft" : "in a session without draft_block");
    }
    if (p->n_stops > 0 && !session->model->info.has_tokenizer) {
        return error_bad_input(
                err, "stop strings are compared with text, but the model has no tokenizer");
    }
    for (int32_t i = 0; i < p->n_stops; ++i) {
        if (p->stops[i][0] == '\0') {
            return error_bad_input(err, "stop string %d is empty; expected a text", i);
        }
    }
    return true;
}

struct lrnn_generation * lrnn_generation_new(struct lrnn_session * session, int32_t seq,
        const struct lrnn_generation_params * params, struct lrnn_error * err) {
    static const struct lrnn_generation_params none;
    const struct lrnn_generation_params *      p = params != NULL ? params : &none;
    if (!check_params(session, seq, p, err)) {
        return NULL;
    }
    struct lrnn_generation * g = calloc(1, sizeof(*g));
    if (g == NULL) {
        error_no_memory(err, "a generation");
        return NULL;
    }
    g->session = session;
    g->seq = seq;
    g->params = *p;
    g->info = session->model->info;
    g->phase = GENERATION_DONE;
    g->finish = LRNN_FINISH_LENGTH;
    g->sampler = lrnn_sampler_new(&p->sampler, err);
    bool ok = g->sampler != NULL;
    if (ok && p->n_draft > 0) {
        g->draft = draft_new(p->n_draft, err);
        ok = g->draft != NULL;
    }
    if (!ok) {
        lrnn_generation_free(g);
        return NULL;
    }
    return g;
}

// Frees what belongs to one text.
static void free_text(struct lrnn_generation * g) {
    if (g->stop.held != NULL) {
        stop_end(&g->stop);
    }
    lrnn_decoder_free(g->decoder);
    grammar_matcher_free(g->matcher);
    free(g->prompt);
    g->decoder = NULL;
    g->matcher = NULL;
    g->prompt = NULL;
}

void lrnn_generation_free(struct lrnn_generation * g) {
    if (g != NULL) {
        free_text(g);
        buffer_free(&g->text);
        lrnn_sampler_free(g->sampler);
        draft_free(g->draft);
        free(g);
    }
}

struct lrnn_sampler * lrnn_generation_sampler(struct lrnn_generation * g) {
    return g->sampler;
}

enum lrnn_finish lrnn_generation_finish(const struct lrnn_generation * g) {
    return g->phase == GENERATION_DONE ? g->finish : LRNN_FINISH_NONE;
}

struct lrnn_generated lrnn_generation_get(const struct lrnn_generation * g) {
    return (struct lrnn_generated) {
        .tokens = g->tokens,
        .log_probs = g->log_probs,
        .n_tokens = g->n_tokens,
        .text = g->text.n > 0 ? g->text.data : "",
        .size = g->text.n,
    };
}

static void clear_output(struct lrnn_generation * g) {
    g->n_tokens = 0;
    g->text.n = 0;
}

// ---- The prompt ---------------------------------------------------------------------------------

static bool is_end(const struct lrnn_generation * g, int32_t token) {
    return !g->params.ignore_eos &&
           (token == g->info.eos ||
                   (g->params.chat != NULL && lrnn_chat_is_end(g->params.chat, token)));
}

// Finds out what the grammar allows next, the tokens that end the text included.
static bool find_allowed(struct lrnn_generation * g, struct lrnn_error * err) {
    if (!grammar_matcher_next(g->matcher, &g->allowed, err)) {
        return false;
    }
    for (int32_t i = 0; g->allowed.end && i < g->n_ends; ++i) {
        g->allowed.allowed[g->ends[i] / 32] |= UINT32_C(1) << g->ends[i] % 32;
    }
    return true;
}

bool generation_begin(struct lrnn_generation * g, const int32_t * tokens, int64_t n_tokens,
        bool follows, struct lrnn_error * err) {
    free_text(g);
    clear_output(g);
    g->prompt = malloc((size_t) (n_tokens > 0 ? n_tokens : 1) * sizeof(*tokens));
    if (g->prompt == NULL || !stop_begin(&g->stop, g->params.stops, g->params.n_stops, &g->text)) {
        return error_no_memory(err, "a prompt of %" PRId64 " tokens", n_tokens);
    }
    if (g->info.has_tokenizer) {
        g->decoder = lrnn_decoder_new(g->session->model, follows, err);
        if (g->decoder == NULL) {
            return false;
        }
    }
    if (g->params.grammar != NULL) {
        g->matcher = grammar_matcher_new(g->params.grammar, err);
        g->n_ends = 0;
        for (int32_t t = 0; t < g->info.n_vocab && g->n_ends < GENERATION_ENDS_MAX; ++t) {
            g->ends[g->n_ends] = t;
            g->n_ends += is_end(g, t);
        }
        if (g->matcher == NULL || !find_allowed(g, err)) {
            return false;
        }
    }
    if (n_tokens > 0) {
        memcpy(g->prompt, tokens, (size_t) n_tokens * sizeof(*tokens));
    }
    g->n_prompt = n_tokens;
    g->n_fed = g->n_new = 0;
    g->n_next = 0;
    g->phase = GENERATION_PROMPT;
    g->finish = LRNN_FINISH_NONE;
    return true;
}

// The number of tokens that still fit into the attention cache after `length` tokens.
static int64_t room_after(const struct lrnn_generation * g, int64_t length) {
    return session_max_length(g->session) - length;
}

bool lrnn_generation_prompt(struct lrnn_generation * g, const int32_t * tokens, int64_t n_tokens,
        struct lrnn_error * err) {
    const int64_t length = lrnn_seq_length(g->session, g->seq);
    int32_t       first;
    g->phase = GENERATION_DONE;
    g->finish = LRNN_FINISH_ERROR;
    if (n_tokens > room_after(g, length)) {
        return error_bad_input(err,
                "the sequence would have %" PRId64
                " tokens, but the attention cache holds n_cache = %" PRId64,
                length + n_tokens, session_max_length(g->session));
    }
    for (int64_t i = 0; i < n_tokens; ++i) {
        if (tokens[i] < 0 || tokens[i] >= g->info.n_vocab) {
            return error_bad_input(err,
                    "token %" PRId64 " of the prompt is %" PRId32 "; expected 0 to %" PRId64, i,
                    tokens[i], g->info.n_vocab - 1);
        }
    }
    const bool follows = length + n_tokens > 0;
    if (!follows) {
        first = prompt_first_token(&g->info, err);
        if (first < 0) {
            return false;
        }
        tokens = &first;
        n_tokens = 1;
    }
    if (n_tokens == 0 && g->params.max_tokens >= 0 &&
            session_seq_logits(g->session, g->seq) == NULL) {
        return error_bad_input(
                err, "sequence %d has no logits to continue from; give a prompt", g->seq);
    }
    return generation_begin(g, tokens, n_tokens, follows, err);
}

// ---- Text ---------------------------------------------------------------------------------------

// Adds the text of a token. True: it completes a stop string.
static bool add_text(struct lrnn_generation * g, int32_t token) {
    size_t       size = 0;
    const char * text = g->decoder != NULL ? lrnn_decoder_push(g->decoder, token, &size) : "";
    return stop_push(&g->stop, text, size);
}

// Adds what was held back: the bytes of an incomplete character, the beginning of a stop string.
static void end_text(struct lrnn_generation * g, enum lrnn_finish finish) {
    size_t       size = 0;
    const char * text = g->decoder != NULL ? lrnn_decoder_end(g->decoder, &size) : "";
    g->finish = stop_push(&g->stop, text, size) ? LRNN_FINISH_STOP : finish;
    stop_end(&g->stop);
}

// Samples a token after `length` tokens and adds it to the text. Sets g->finish if it is the last.
static bool add_token(
        struct lrnn_generation * g, const float * logits, int64_t length, struct lrnn_error * err) {
    float * log_prob = &g->log_probs[g->n_tokens];
    if (g->change_logits != NULL) {
        logits = g->change_logits(g->change_user, logits);
    }
    const int32_t token = sampler_sample(g->sampler, logits, g->info.n_vocab,
            g->matcher != NULL ? g->allowed.allowed : NULL, log_prob, err);
    if (token == LRNN_SAMPLE_NOT_FINITE) {
        return error_set(err, LRNN_ERROR_NOT_FINITE,
                "the logits after %" PRId64 " tokens are not finite", length);
    }
    if (token < 0) {
        return false;
    }
    g->tokens[g->n_tokens++] = token;
    g->n_new++;
    const bool is_eos = is_end(g, token);
    if (!is_eos && g->matcher != NULL &&
            (!grammar_matcher_accept(g->matcher, token, err) || !find_allowed(g, err))) {
        return false;
    }
    if (is_eos) {
        end_text(g, LRNN_FINISH_EOS);
    } else if (add_text(g, token)) {
        end_text(g, LRNN_FINISH_STOP);
    } else if (g->matcher != NULL && !g->allowed.any) {
        end_text(g, LRNN_FINISH_GRAMMAR);
    } else if (g->n_new == g->params.max_tokens) {
        end_text(g, LRNN_FINISH_LENGTH);
    } else if (room_after(g, length + 1) < 1) { // another could be sampled, but not fed
        end_text(g, LRNN_FINISH_CACHE);
    }
    if (g->draft != NULL && g->finish != LRNN_FINISH_EOS) {
        draft_accept(g->draft, token);
    }
    return !g->stop.no_memory || error_no_memory(err, "generated text");
}

//
// Drafts: g->next is a token of the text and a draft after it. Row i of the logits follows its
// first 1 + i tokens. As long as the token sampled from row i is token 1 + i, the draft is right.
//

// The number of tokens that a draft may have, at most n_max.
static int32_t most_drafted(const struct lrnn_generation * g, int32_t n_max) {
    const int64_t n_left = g->params.max_tokens > 0 ? g->params.max_tokens - g->n_new : INT64_MAX;
    const int64_t fits = room_after(g, lrnn_seq_length(g->session, g->seq) + 1);
    int64_t       most = n_left - 1; // the last one is not a guess
    most = most < fits ? most : fits;
    most = most < n_max ? most : n_max;
    return most > 0 && g->finish == LRNN_FINISH_NONE ? (int32_t) most : 0;
}

// The token to feed next, and a draft by lookup after it.
static void propose(struct lrnn_generation * g, int32_t token) {
    const int32_t most = most_drafted(g, LRNN_DRAFT_MAX);
    g->next[0] = token;
    g->n_next = 1;
    if (g->draft != NULL && most > 0) {
        g->n_next += draft_propose(g->draft, most, g->next + 1);
    }
}

void generation_draft(struct lrnn_generation * const * generations, int32_t n) {
    struct session_draft * drafts = malloc((size_t) (n > 0 ? n : 1) * sizeof(*drafts));
    struct lrnn_session *  session = NULL;
    int32_t                n_drafts = 0;
    for (int32_t i = 0; drafts != NULL && i < n; ++i) {
        struct lrnn_generation * g = generations[i];
        const int32_t            most = most_drafted(g, g->params.n_draft_mtp);
        if (g->phase == GENERATION_TEXT && most > 0 && session_may_draft(g->session, g->seq)) {
            session = g->session;
            drafts[n_drafts++] = (struct session_draft) { g->seq, most, g->next, 0 };
        }
    }
    if (n_drafts > 0 && session_draft(session, drafts, n_drafts, NULL)) {
        for (int32_t i = 0, at = 0; i < n && at < n_drafts; ++i) {
            if (drafts[at].tokens == generations[i]->next) {
                generations[i]->n_next = 1 + drafts[at++].n;
            }
        }
    }
    free(drafts);
}

// Takes back what is wrong of a draft, `n_wrong` tokens, and decides what to feed next.
// - is_fed: the last token of the text is in the sequence
static bool settle(struct lrnn_generation * g, int64_t n_wrong, int32_t last, bool is_fed,
        struct lrnn_error * err) {
    const bool is_over = g->finish != LRNN_FINISH_NONE;
    // A sequence that is kept has the logits of its last token: it is fed again, so that whoever
    // continues makes the same calls as without drafts.
    const bool again = is_over && g->params.keep && is_fed && n_wrong > 0;
    if (n_wrong > 0 && !lrnn_seq_rewind(g->session, g->seq, n_wrong + again, err)) {
        return false;
    }
    g->phase = !is_over                               ? GENERATION_TEXT
               : g->params.keep && (again || !is_fed) ? GENERATION_LAST
                                                      : GENERATION_DONE;
    propose(g, last);
    return true;
}

// Samples from the rows of the logits that follow the tokens of g->next, as far as they are right.
static bool take_rows(struct lrnn_generation * g, int64_t row, struct lrnn_error * err) {
    const int64_t length = lrnn_seq_length(g->session, g->seq) - g->n_next; // before them
    int32_t       right = 0; // rows whose token is the next one
    bool          is_fed = true;
    int32_t       last = g->next[0];
    for (int32_t i = 0; i < g->n_next && is_fed && g->finish == LRNN_FINISH_NONE; ++i) {
        if (!add_token(g, lrnn_logits(g->session, row + i), length + 1 + i, err)) {
            return false;
        }
        if (g->finish != LRNN_FINISH_EOS) { // which is never fed
            last = g->tokens[g->n_tokens - 1];
            is_fed = i + 1 < g->n_next && g->next[i + 1] == last;
            right += is_fed;
        }
    }
    return settle(g, g->n_next - 1 - right, last, is_fed, err);
}

// ---- Steps --------------------------------------------------------------------------------------

bool generation_input(struct lrnn_generation * g, int64_t n_max, struct lrnn_input * input) {
    const int64_t left = g->n_prompt - g->n_fed;
    const int64_t n = left < n_max ? left : n_max;
    if (g->phase == GENERATION_PROMPT) {
        *input = (struct lrnn_input) { g->seq, g->prompt + g->n_fed, n, n == left };
        return n > 0;
    }
    *input = (struct lrnn_input) { g->seq, g->next, g->n_next, g->n_next };
    return g->phase != GENERATION_DONE;
}

// Generates the first token after the prompt. Its tokens may be unknown: -1.
static bool sample(struct lrnn_generation * g, const float * logits, struct lrnn_error * err) {
    const int64_t length = lrnn_seq_length(g->session, g->seq);
    bool          is_fed = true;
    clear_output(g);
    for (int64_t i = 0; i < g->n_prompt; ++i) {
        lrnn_sampler_accept(g->sampler, g->prompt[i]);
        if (g->draft != NULL && g->prompt[i] >= 0) {
            draft_accept(g->draft, g->prompt[i]);
        }
    }
    if (g->params.max_tokens < 0) {
        end_text(g, LRNN_FINISH_LENGTH);
    } else if (g->matcher != NULL && !g->allowed.any) { // only the empty text
        end_text(g, LRNN_FINISH_GRAMMAR);
    } else if (room_after(g, length) < 1) {
        end_text(g, LRNN_FINISH_CACHE);
    } else {
        if (!add_token(g, logits, length, err)) {
            return false;
        }
        is_fed = g->finish == LRNN_FINISH_EOS;
    }
    return settle(g, 0, g->n_tokens > 0 ? g->tokens[0] : 0, is_fed, err);
}

static bool take(struct lrnn_generation * g, const struct lrnn_input * input, int64_t row,
        struct lrnn_error * err) {
    clear_output(g);
    if (g->phase == GENERATION_LAST) {
        g->phase = GENERATION_DONE;
        return true;
    }
    if (g->phase == GENERATION_TEXT) {
        return take_rows(g, row, err);
    }
    g->n_fed += input->n_tokens;
    if (g->n_fed < g->n_prompt) {
        return true;
    }
    return sample(g, lrnn_logits(g->session, row + input->n_logits - 1), err);
}

// A generation that failed has ended.
static bool check(struct lrnn_generation * g, bool ok) {
    if (!ok) {
        g->phase = GENERATION_DONE;
        g->finish = LRNN_FINISH_ERROR;
    }
    return ok;
}

bool generation_take(struct lrnn_generation * g, const struct lrnn_input * input, int64_t row,
        struct lrnn_error * err) {
    return check(g, take(g, input, row, err));
}

bool generation_sample(struct lrnn_generation * g, const float * logits, struct lrnn_error * err) {
    return check(g, sample(g, logits, err));
}

void lrnn_generation_end(struct lrnn_generation * g) {
    clear_output(g);
    if (g->phase == GENERATION_TEXT) {
        end_text(g, LRNN_FINISH_CALLER);
        g->n_next = 1; // without its draft
        g->phase = g->params.keep ? GENERATION_LAST : GENERATION_DONE;
    } else if (g->phase == GENERATION_PROMPT) {
        g->finish = LRNN_FINISH_CALLER;
        g->phase = GENERATION_DONE;
    }
}

bool lrnn_generation_step(
        struct lrnn_generation * const * generations, int32_t n, struct lrnn_error * err) {
    struct lrnn_input * inputs = malloc((size_t) (n > 0 ? n : 1) * sizeof(*inputs));
    bool                ok = true;
    int32_t             n_inputs = 0;
    int64_t             row = 0;
    for (int32_t i = 0; inputs == NULL && i < n; ++i) {
        ok = check(generations[i], error_no_memory(err, "%d inputs", n));
    }
    if (!ok) {
        return false;
    }
    generation_draft(generations, n);
    for (int32_t i = 0; i < n; ++i) {
        struct lrnn_generation * g = generations[i];
        clear_output(g);
        if (g->phase == GENERATION_PROMPT && g->n_prompt == 0) {
            ok = generation_sample(g, session_seq_logits(g->session, g->seq), err) && ok;
            continue;
        }
        n_inputs += generation_input(g, g->session->params.n_batch, &inputs[n_inputs]);
    }
    if (n_inputs > 0) {
        ok = lrnn_eval(generations[0]->session, inputs, n_inputs, err) && ok;
    }
    for (int32_t i = 0, at = 0; i < n && at < n_inputs; ++i) {
        if (generations[i]->seq == inputs[at].seq) {
            ok = check(generations[i], ok) &&
                 generation_take(generations[i], &inputs[at], row, err);
            row += inputs[at++].n_logits;
        }
    }
    free(inputs);
    return ok;
}
