// /v1/completions and /v1/chat/completions: from a request to a job, and from its results to a
// reply.

#include "lrnn.h"
#include "base/random.h"
#include "generate/prompt.h"
#include "named-states.h"
#include "reply.h"
#include "server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEFAULT_MAX_TOKENS = 16,
    POLL_MS = 100,
    ENTRIES_MAX = 1 << 20,   // of a reply
    ENTRIES_WHOLE = 1 << 12, // more are sent in pieces
};

static void completion_free(struct completion * c) {
    if (c == NULL) {
        return;
    }
    for (int64_t i = 0; c->cursors != NULL && i < c->job->n_choices; ++i) {
        lrnn_decoder_free(c->cursors[i].decoder);
    }
    for (int64_t i = 0; i < c->n_prompts; ++i) {
        free(c->prompts[i].tokens);
    }
    if (c->base != NULL) {
        state_file_free(c->base);
    }
    job_free(c->job);
    lrnn_grammar_free(c->grammar);
    request_free(&c->request);
    free(c->prompts);
    free(c->cursors);
    free(c->base);
    free(c);
}

//
// The prompts
//

// Replies with an error and returns false.
#define REFUSE(call, status, param, ...) (reply_error(call, status, param, __VA_ARGS__), false)
#define REFUSE_ERROR(call, param, err)   (reply_failure(call, param, err), false)

static bool no_memory(struct http_call * call) {
    return REFUSE(call, 500, NULL, "out of memory for the request");
}

// Loads the state that the request names.
static bool load_base(struct completion * c, struct http_call * call) {
    const struct server * s = c->server;
    struct lrnn_error     err;
    if (c->request.state[0] == '\0' || c->is_chat) {
        return true;
    }
    if (s->state_dir == NULL) {
        return REFUSE(call, 400, "state", "the server was started without --state-dir");
    }
    c->base = calloc(1, sizeof(*c->base));
    if (c->base == NULL) {
        return no_memory(call);
    }
    if (!named_state_load(
                s->state_dir, c->request.state, scheduler_session(s->scheduler), c->base, &err)) {
        return REFUSE_ERROR(call, "state", &err);
    }
    if (c->base->tokens == NULL && c->request.echo && c->request.n_top >= 0) {
        return REFUSE(call, 400, "state",
                "state '%s' has no tokens that could be scored; expected no logprobs with echo",
                c->request.state);
    }
    return true;
}

// Puts the tokens of the base before those of a prompt, or -1 for each if they are unknown.
static bool prepend_base(
        const struct completion * c, struct prompt * prompt, struct http_call * call) {
    const struct state_file * base = c->base;
    const int64_t             n_base = base->tokens != NULL ? base->n_tokens : base->length;
    if (prompt->n_tokens == 0 && n_base == base->length && base->logits == NULL) {
        return REFUSE(call, 400, "prompt",
                "state '%s' has no logits to continue from; expected a prompt that is not empty",
                c->request.state);
    }
    int32_t * tokens = malloc((size_t) (n_base + prompt->n_tokens) * sizeof(int32_t));
    if (tokens == NULL) {
        return no_memory(call);
    }
    for (int64_t i = 0; i < n_base; ++i) {
        tokens[i] = base->tokens != NULL ? base->tokens[i] : -1;
    }
    if (prompt->n_tokens > 0) {
        memcpy(tokens + n_base, prompt->tokens, (size_t) prompt->n_tokens * sizeof(int32_t));
    }
    free(prompt->tokens);
    prompt->tokens = tokens;
    prompt->n_tokens += n_base;
    return true;
}

static bool fill_empty(const struct server * s, struct prompt * prompt, struct http_call * call) {
    struct lrnn_error err;
    const int32_t     token = prompt_first_token(&s->info, &err);
    if (token < 0) {
        return REFUSE_ERROR(call, "prompt", &err);
    }
    free(prompt->tokens);
    prompt->tokens = malloc(sizeof(int32_t));
    if (prompt->tokens == NULL) {
        return no_memory(call);
    }
    prompt->tokens[0] = token;
    prompt->n_tokens = 1;
    prompt->is_empty = true;
    return true;
}

static bool check_length(
        const struct server * s, const struct prompt * prompt, struct http_call * call) {
    if (s->info.n_layer_attention > 0 && prompt->n_tokens >= s->params.n_cache) {
        return REFUSE(call, 400, "prompt",
                "the prompt has %" PRId64 " tokens, but the attention cache holds %d; raise it "
                "with -c",
                prompt->n_tokens, s->params.n_cache);
    }
    return true;
}

// Turns a prompt of the request into the tokens of a sequence.
static bool make_prompt(struct completion * c, const struct prompt * from, struct prompt * to,
        struct http_call * call) {
    const struct server * s = c->server;
    struct lrnn_error     err;
    if (from->text != NULL) {
        if (!s->info.has_tokenizer) {
            return REFUSE(call, 400, "prompt",
                    "prompt is a text, but the model has no tokenizer; send token ids");
        }
        if (!prompt_tokenize(s->model, from->text, from->size, c->base != NULL, c->request.special,
                    &to->tokens, &to->n_tokens, &err)) {
            return REFUSE_ERROR(call, "prompt", &err);
        }
    } else if (from->n_tokens > 0) {
        to->tokens = malloc((size_t) from->n_tokens * sizeof(int32_t));
        if (to->tokens == NULL) {
            return no_memory(call);
        }
        memcpy(to->tokens, from->tokens, (size_t) from->n_tokens * sizeof(int32_t));
        to->n_tokens = from->n_tokens;
    }
    if (c->base != NULL ? !prepend_base(c, to, call)
                        : to->n_tokens == 0 && !fill_empty(s, to, call)) {
        return false;
    }
    return check_length(s, to, call);
}

static bool make_prompts(struct completion * c, struct http_call * call) {
    c->prompts = calloc((size_t) c->request.n_prompts, sizeof(*c->prompts));
    if (c->prompts == NULL) {
        return no_memory(call);
    }
    c->n_prompts = c->request.n_prompts;
    for (int64_t i = 0; i < c->n_prompts; ++i) {
        if (!make_prompt(c, &c->request.prompts[i], &c->prompts[i], call)) {
            return false;
        }
    }
    return true;
}

// The prompt of a chat: the conversation in the model's format. The answer follows it.
static bool make_chat_prompt(struct completion * c, struct http_call * call) {
    const struct server *  s = c->server;
    const struct request * r = &c->request;
    struct lrnn_error      err;
    if (s->chat == NULL) {
        return REFUSE(call, 400, "messages",
                "the model has no chat format (%s); use /v1/completions, or start the server with "
                "--chat-format",
                s->chat_err.text);
    }
    struct lrnn_message * messages = calloc((size_t) r->n_messages, sizeof(*messages));
    c->prompts = calloc(1, sizeof(*c->prompts));
    if (messages == NULL || c->prompts == NULL) {
        free(messages);
        return no_memory(call);
    }
    for (int64_t i = 0; i < r->n_messages; ++i) {
        messages[i] = (struct lrnn_message) { .role = r->messages[i].role,
            .content = r->messages[i].content,
            .size = r->messages[i].size };
    }
    c->n_prompts = 1;
    const bool ok = lrnn_chat_tokenize(s->chat, messages, r->n_messages, r->no_thinking,
            &c->prompts[0].tokens, &c->prompts[0].n_tokens, &c->n_stable, &err);
    free(messages);
    if (!ok) {
        return REFUSE_ERROR(call, "messages", &err);
    }
    return check_length(s, &c->prompts[0], call);
}

//
// The job
//

static bool check_max_tokens(struct completion * c, struct http_call * call) {
    struct request * r = &c->request;
    if (r->max_tokens < 0) {
        r->max_tokens = c->is_chat ? c->server->max_tokens : DEFAULT_MAX_TOKENS;
    }
    if (r->max_tokens > c->server->max_tokens) {
        return REFUSE(call, 400, "max_tokens",
                "max_tokens is %" PRId64 "; expected 0 to %" PRId64 ", the limit of this server",
                r->max_tokens, c->server->max_tokens);
    }
    return true;
}

// Refuses a request whose reply could be enormous. An echoed token is one entry; a token with
// log-probabilities is 4 entries plus one per alternative.
static bool check_size(struct completion * c, struct http_call * call) {
    const struct request * r = &c->request;
    for (int64_t i = 0; i < c->n_prompts; ++i) {
        c->n_entries +=
                (r->echo ? c->prompts[i].n_tokens : 0) + (r->n_top >= 0 ? r->max_tokens : 0);
    }
    c->n_entries *= r->n * (r->n_top >= 0 ? 4 + r->n_top : 1);
    return c->n_entries <= ENTRIES_MAX ||
           REFUSE(call, 400, r->n_top >= 0 ? "logprobs" : "echo",
                   "the reply would have up to %" PRId64 " entries; expected at most %d; lower n, "
                   "max_tokens or logprobs",
                   c->n_entries, ENTRIES_MAX);
}

static uint64_t random_seed(struct server * s) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t state = (uint64_t) now.tv_sec * 1000000000u + (uint64_t) now.tv_nsec +
                     (uint64_t) atomic_load(&s->n_requests);
    return splitmix64(&state);
}

static bool make_job(struct completion * c, enum request_kind kind, struct http_call * call) {
    const struct request * r = &c->request;
    c->job = job_new(c->n_prompts * r->n);
    c->cursors = c->job != NULL ? calloc((size_t) c->job->n_choices, sizeof(*c->cursors)) : NULL;
    if (c->cursors == NULL) {
        return no_memory(call);
    }
    c->job->params = (struct job_params) {
        .generation =
                {
                        .sampler    = r->sampler,
                        .max_tokens = r->max_tokens > 0 ? r->max_tokens : -1,
                        .stops      = r->stops.v,
                        .n_stops    = r->stops.n,
                        .n_draft    = c->server->params.draft.lookup,
                        .n_draft_mtp = c->server->params.draft.mtp,
                        .chat       = c->is_chat ? c->server->chat : NULL,
                        .grammar    = c->grammar,
                        .ignore_eos = r->ignore_eos,
                },
        .n_top             = r->n_top,
        .score_prompt      = r->echo && r->n_top >= 0 && !c->is_chat,
        .n_stable          = c->n_stable,
        .biases            = r->biases,
        .n_biases          = r->n_biases,
        .frequency_penalty = (float) r->frequency_penalty,
        .presence_penalty  = (float) r->presence_penalty,
        .base              = c->base,
        .keep_state        = kind == REQUEST_STATE,
    };
    const uint64_t seed = r->has_seed ? r->seed : random_seed(c->server);
    for (int64_t i = 0; i < c->job->n_choices; ++i) {
        struct choice *       choice = &c->job->choices[i];
        const struct prompt * prompt = &c->prompts[i / r->n];
        choice->prompt = prompt->tokens;
        choice->n_prompt = prompt->n_tokens;
        choice->follows = !prompt->is_empty;
        choice->seed = seed + (uint64_t) (i % r->n);
        choice->leader = i % r->n > 0 ? &c->job->choices[i - i % r->n] : NULL;
        if (c->server->info.has_tokenizer) {
            c->cursors[i].decoder = lrnn_decoder_new(c->server->model, !r->echo, NULL);
            if (c->cursors[i].decoder == NULL) {
                return no_memory(call);
            }
        }
    }
    return true;
}

static bool submit(struct completion * c, struct http_call * call) {
    switch (scheduler_submit(c->server->scheduler, c->job)) {
        case SUBMIT_OK: return true;
        case SUBMIT_FULL:
            atomic_fetch_add(&c->server->n_refused, 1);
            http_reply_header(call, "Retry-After", "1");
            return REFUSE(call, 429, NULL, "the queue is full; try again later");
        case SUBMIT_STOPPING: break;
    }
    return REFUSE(call, 503, NULL, "the server is stopping");
}

//
// The reply
//

static bool produce_events(struct http_stream * stream, void * user) {
    struct completion * c = user;
    int64_t             n_seen = -1;
    for (bool is_done = false; !is_done;) {
        struct text * t = text_new();
        if (t == NULL) {
            return false;
        }
        pthread_mutex_lock(&c->job->mutex);
        n_seen = job_wait(c->job, n_seen, POLL_MS);
        is_done = completion_write_events(t, c);
        pthread_mutex_unlock(&c->job->mutex);
        t->stream = stream;                      // not before: nothing is sent with the lock
        n_seen = text_is_large(t) ? -1 : n_seen; // there may be more
        const bool ok = ftell(t->out) > 0 ? text_end(t) : !http_stream_is_gone(stream, ":\n\n");
        text_free(t);
        if (!ok) {
            return false;
        }
    }
    return true;
}

static bool produce_whole(struct http_stream * stream, void * user) {
    struct text * t = text_new();
    if (t == NULL) {
        return false;
    }
    t->stream = stream;
    completion_write(t, user);
    const bool ok = text_end(t);
    text_free(t);
    return ok;
}

static void release(void * user) {
    struct completion * c = user;
    scheduler_abandon(c->server->scheduler, c->job);
    completion_free(c);
}

// Waits for the results. False: failed, and replied; or the client is gone.
static bool wait_for(struct completion * c, struct http_call * call) {
    struct job * job = c->job;
    int64_t      n_seen = -1;
    bool         is_gone = false;
    pthread_mutex_lock(&job->mutex);
    while (job->n_done < job->n_choices && !is_gone) {
        n_seen = job_wait(job, n_seen, POLL_MS);
        pthread_mutex_unlock(&job->mutex);
        is_gone = http_is_gone(call);
        pthread_mutex_lock(&job->mutex);
    }
    pthread_mutex_unlock(&job->mutex);
    scheduler_abandon(c->server->scheduler, job); // all results are in, or nobody wants them
    return job->err.kind == LRNN_ERROR_NONE || REFUSE_ERROR(call, NULL, &job->err);
}

static void reply_whole(struct completion * c, struct http_call * call) {
    struct text * t = text_new();
    if (t != NULL) {
        completion_write(t, c);
    }
    reply_json(call, 200, t);
}

static struct completion * completion_new(
        struct server * s, bool is_chat, struct http_call * call) {
    struct completion * c = calloc(1, sizeof(*c));
    if (c == NULL) {
        no_memory(call);
        return NULL;
    }
    c->server = s;
    c->is_chat = is_chat;
    c->created_s = (int64_t) time(NULL);
    snprintf(c->id, sizeof(c->id), "%s-%" PRIx64 "-%" PRId64, is_chat ? "chatcmpl" : "cmpl",
            (uint64_t) s->start_s, (int64_t) atomic_load(&s->n_requests));
    return c;
}

// A state is saved with its tokens and without the last of them.
static bool check_state(
        const struct completion * c, enum request_kind kind, struct http_call * call) {
    const struct state_file * base = kind == REQUEST_STATE ? c->base : NULL;
    if (base != NULL && (base->tokens == NULL || base->length == c->prompts[0].n_tokens)) {
        return REFUSE(call, 400, "state",
                "state '%s' %s; expected one with tokens, and a prompt after it", c->request.state,
                base->tokens == NULL ? "has no tokens" : "would not change");
    }
    return true;
}

// Compiles the grammar of the request.
static bool make_grammar(struct completion * c, struct http_call * call) {
    const struct request * r = &c->request;
    const struct server *  s = c->server;
    struct lrnn_error      err = s->grammars_err;
    if (r->grammar == NULL) {
        return true;
    }
    if (c->is_chat && s->chat != NULL && lrnn_chat_begins_thinking(s->chat, true)) {
        return REFUSE(call, 400, r->grammar_field,
                "answers of this model begin with a thinking section; expected no %s",
                r->grammar_field);
    }
    c->grammar = s->grammars != NULL ? lrnn_grammar_new(s->grammars, r->grammar_kind, r->grammar,
                                               r->grammar_size, &err)
                                     : NULL;
    return c->grammar != NULL || REFUSE_ERROR(call, r->grammar_field, &err);
}

// Reads the request and gives its job to the scheduler.
static bool begin(struct completion * c, enum request_kind kind, struct http_call * call) {
    struct request_error error;
    if (!request_parse(&c->request, kind, http_body(call), c->server->info.n_vocab, &error)) {
        return REFUSE(call, error.status, error.param, "%s", error.message);
    }
    if (kind == REQUEST_STATE) { // nothing is generated
        c->request.max_tokens = 0;
        c->request.n_top = -1;
    }
    return check_max_tokens(c, call) && make_grammar(c, call) && load_base(c, call) &&
           (c->is_chat ? make_chat_prompt(c, call) : make_prompts(c, call)) &&
           check_state(c, kind, call) && check_size(c, call) && make_job(c, kind, call) &&
           submit(c, call);
}

static void handle(struct server * s, enum request_kind kind, struct http_call * call) {
    struct completion * c = completion_new(s, kind == REQUEST_CHAT, call);
    if (c != NULL && begin(c, kind, call)) {
        if (c->request.stream) {
            http_reply_stream(call, "text/event-stream", produce_events, release, c);
            return;
        }
        const bool ok = wait_for(c, call);
        if (ok && c->n_entries > ENTRIES_WHOLE) {
            http_reply_stream(call, "application/json", produce_whole, release, c);
            return;
        }
        if (ok) {
            reply_whole(c, call);
        }
    }
    completion_free(c);
}

void handle_completion(struct server * s, struct http_call * call) {
    handle(s, REQUEST_COMPLETION, call);
}

void handle_chat(struct server * s, struct http_call * call) {
    handle(s, REQUEST_CHAT, call);
}

//
// Saving a state: a completion of no tokens
//

static void write_state(struct completion * c, const char * name, struct http_call * call) {
    const struct server * s = c->server;
    const struct prompt * prompt = &c->prompts[0];
    struct state_file *   state = &c->job->state;
    struct lrnn_error     err;
    if (state->memory == NULL) {
        no_memory(call);
    } else if (!state_file_set_tokens(state, prompt->tokens, prompt->n_tokens, &err) ||
               !named_state_save(s->state_dir, name, &s->info, state, &err)) {
        reply_failure(call, NULL, &err);
    } else {
        reply_state(call, name, prompt->n_tokens, state->n_memory, c->job->choices[0].n_cached);
    }
}

void handle_state_save(struct server * s, struct http_call * call) {
    char                name[REQUEST_NAME_MAX + 1];
    struct completion * c = states_find(s, call, name) ? completion_new(s, false, call) : NULL;
    if (c != NULL && begin(c, REQUEST_STATE, call)) {
        if (wait_for(c, call)) {
            write_state(c, name, call);
        }
    }
    completion_free(c);
}
