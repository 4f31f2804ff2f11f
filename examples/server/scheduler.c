#include "scheduler.h"

#include "base/error.h"

#include "choice.h"
#include "generate/generation.h"

#include "ggml.h"

#include <stdlib.h>
#include <string.h>

struct scheduler {
    struct scheduler_params   params;
    struct lrnn_session *     session;
    struct choice_tools       tools;
    struct choice **          slots;    // [n_seqs], the choice of each sequence; NULL: free
    struct lrnn_input *       inputs;   // [n_seqs]
    struct choice **          called;   // [n_seqs], the choice of each input
    struct lrnn_generation ** drafting; // [n_seqs], generations of the next call
    int64_t                   n_admitted;

    pthread_t       thread;
    pthread_mutex_t mutex; // guards what follows, and writes to `slots`
    pthread_cond_t  cond;  // signaled when a job arrives, and at the end

    struct choice *        first; // waiting, in order of arrival
    struct choice **       last;
    bool                   is_stopping;
    struct prefix_tree *   tree;
    struct scheduler_stats stats;
};

enum { STORE_MIN = 16 }; // tokens: a state that saves fewer is not stored

//
// The end of a choice
//

// Takes a choice off its sequence and tells its job. The caller does not hold the job's lock.
static void end_choice(struct scheduler * s, struct choice * c, const struct lrnn_error * err) {
    struct job * job = c->job;
    pthread_mutex_lock(&s->mutex);
    if (c->seq >= 0) {
        s->slots[c->seq] = NULL;
        s->stats.n_running--;
    }
    pthread_mutex_unlock(&s->mutex);

    pthread_mutex_lock(&job->mutex);
    choice_end(c);
    if (err != NULL) {
        c->finish = LRNN_FINISH_ERROR;
        if (job->err.kind == LRNN_ERROR_NONE) {
            job->err = *err;
        }
    }
    c->seq = -1;
    c->phase = CHOICE_DONE;
    job->n_done++;
    pthread_cond_broadcast(&job->cond);
    pthread_mutex_unlock(&job->mutex); // the job may be freed from here on
}

//
// Stored states
//

// Stores the state of a choice.
// - logits: after its last token; NULL: it is not scored
static void store_state(struct scheduler * s, const struct choice * c, const float * logits) {
    size_t        size;
    const size_t  most = s->params.state_memory;
    const int32_t rank = snapshot_rank(c);
    pthread_mutex_lock(&s->mutex);
    const int64_t known = prefix_tree_length(s->tree, c->tokens, c->n_fed, rank);
    pthread_mutex_unlock(&s->mutex);
    if (c->n_fed - known < STORE_MIN || c->tokens[0] < 0 ||
            lrnn_seq_size(s->session, c->seq) > most) {
        return;
    }
    void * data = snapshot_new(s->session, c, logits, s->tools.info.n_vocab, &size);
    if (data != NULL) {
        pthread_mutex_lock(&s->mutex);
        prefix_tree_insert(s->tree, c->tokens, c->n_fed, rank, data, size);
        pthread_mutex_unlock(&s->mutex);
    }
}

// True if the state after n tokens of the prompt should be stored.
static bool is_stored(const struct scheduler * s, const struct choice * c, int64_t n) {
    const struct job_params * p = &c->job->params;
    if (n == c->n_prompt - 1 && p->keep_state) {
        return true;
    }
    if (s->params.state_memory == 0 || n - c->n_cached < STORE_MIN) {
        return false;
    }
    if (n == c->n_branch || (s->params.state_every > 0 && n % s->params.state_every == 0)) {
        return true;
    }
    return !p->score_prompt && (n == c->n_prompt - 1 || n == p->n_stable);
}

static void keep_state(struct scheduler * s, struct choice * c) {
    struct job * job = c->job;
    if (job->params.keep_state && c == &job->choices[0] && c->n_fed == c->n_prompt - 1) {
        struct state_file state;
        state_file_take(&state, s->session, c->seq, NULL, NULL); // empty without memory
        pthread_mutex_lock(&job->mutex);
        job->state = state;
        pthread_mutex_unlock(&job->mutex);
    }
}

//
// The beginning of a choice
//

// Continues from the longest stored prefix that can be restored, and drops those that cannot.
// Returns its length; 0: none.
static int64_t restore_prefix(struct scheduler * s, struct choice * c) {
    const int64_t n_scores = c->n_scores;
    const void *  data = NULL;
    int64_t       n;
    while ((n = prefix_tree_find(s->tree, c->prompt, c->n_prompt - 1, snapshot_rank(c), &data)) >
                    0 &&
            !snapshot_restore(data, s->session, &s->tools, c, n, NULL)) {
        prefix_tree_drop(s->tree, c->prompt, n);
        c->n_scores = n_scores;
    }
    return n;
}

// Sets the sequence to the longest stored prefix of the prompt. The last token is always computed,
// for its logits. Called just before the first tokens are, so that the prompts of earlier choices
// are known.
static bool begin_sequence(struct scheduler * s, struct choice * c, struct lrnn_error * err) {
    const struct job_params * p = &c->job->params;
    bool                      ok = true;

    pthread_mutex_lock(&s->mutex); // the tree owns the data
    pthread_mutex_lock(&c->job->mutex);
    int64_t n = restore_prefix(s, c);
    if (p->base != NULL && p->base->length > n && !p->score_prompt) {
        n = p->base->length;
        ok = state_file_put(p->base, s->session, c->seq, NULL, "the state", err);
    } else if (n == 0) {
        ok = lrnn_seq_reset(s->session, c->seq, err);
    }
    c->n_branch = prefix_tree_common(s->tree, c->prompt, c->n_prompt - 1);
    c->n_fed = c->n_cached = c->generation->n_fed = ok ? n : 0;
    c->has_begun = true;
    s->stats.n_cached_tokens += c->n_cached;
    pthread_mutex_unlock(&c->job->mutex);
    pthread_mutex_unlock(&s->mutex);
    keep_state(s, c);
    return ok;
}

static bool may_begin(const struct choice * c) {
    return c->leader == NULL || c->leader->phase >= CHOICE_DECODE;
}

static bool is_cancelled(const struct choice * c) {
    return atomic_load(&c->job->cancelled);
}

// Removes the first waiting choice with a property; NULL: none has it.
static struct choice * take_waiting(struct scheduler * s, bool (*property)(const struct choice *)) {
    pthread_mutex_lock(&s->mutex);
    struct choice ** at = &s->first;
    while (*at != NULL && !property(*at)) {
        at = &(*at)->next;
    }
    struct choice * c = *at;
    if (c != NULL) {
        *at = c->next;
        s->last = *at == NULL ? at : s->last;
        s->stats.n_waiting--;
    }
    pthread_mutex_unlock(&s->mutex);
    return c;
}

// Moves waiting choices to free sequences.
static void admit(struct scheduler * s) {
    for (int32_t seq = 0; seq < s->params.n_seqs; ++seq) {
        if (s->slots[seq] != NULL) {
            continue;
        }
        struct lrnn_error err;
        struct choice *   c = take_waiting(s, may_begin);
        if (c == NULL) {
            return;
        }
        pthread_mutex_lock(&s->mutex);
        c->seq = seq;
        c->order = s->n_admitted++;
        s->slots[seq] = c;
        s->stats.n_running++;
        pthread_mutex_unlock(&s->mutex);
        pthread_mutex_lock(&c->job->mutex);
        const bool ok = choice_begin(&s->tools, c, &err);
        c->phase = CHOICE_PROMPT;
        pthread_mutex_unlock(&c->job->mutex);
        if (!ok) {
            end_choice(s, c, &err);
        }
    }
}

//
// One call
//

// The number of tokens of the next piece of a prompt.
static int64_t next_piece(const struct scheduler * s, const struct choice * c) {
    const int64_t batch = s->params.n_batch;
    int64_t       end = (c->n_fed / batch + 1) * batch;
    end = end < c->n_prompt ? end : c->n_prompt;
    for (int64_t n = c->n_fed + 1; n < end; ++n) {
        if (is_stored(s, c, n)) {
            return n - c->n_fed;
        }
    }
    return end - c->n_fed;
}

// Tokens of a prompt that are computed before the prompts of later choices may overtake it.
enum { TURN = 1024 };

// True if the prompt of a is computed before that of b: in order of arrival, but long prompts
// yield to others. Every second call keeps the order of arrival, so no long prompt starves.
static bool is_before(
        const struct scheduler * s, const struct choice * a, const struct choice * b) {
    const int64_t turn_a = (a->n_fed - a->n_cached) / TURN;
    const int64_t turn_b = (b->n_fed - b->n_cached) / TURN;
    return turn_a != turn_b && s->stats.n_calls % 2 == 0 ? turn_a < turn_b : a->order < b->order;
}

// Appends the choices in a phase to `called`, which has n, and returns the new number.
static int32_t collect(struct scheduler * s, enum choice_phase phase, int32_t n) {
    const int32_t first = n;
    for (int32_t i = 0; i < s->params.n_seqs; ++i) {
        struct choice * c = s->slots[i];
        if (c == NULL || c->phase != phase) {
            continue;
        }
        int32_t at = n++;
        for (; at > first && is_before(s, c, s->called[at - 1]); --at) {
            s->called[at] = s->called[at - 1];
        }
        s->called[at] = c;
    }
    return n;
}

// Generates the first token of a choice with an empty prompt after a state.
static void begin_from_logits(struct scheduler * s, struct choice * c) {
    struct lrnn_error err;
    pthread_mutex_lock(&c->job->mutex);
    const bool ok = choice_take_logits(&s->tools, c, c->job->params.base->logits, &err);
    pthread_cond_broadcast(&c->job->cond);
    pthread_mutex_unlock(&c->job->mutex);
    if (!ok || c->finish != LRNN_FINISH_NONE) {
        end_choice(s, c, ok ? NULL : &err);
    }
}

// One token of every generation, and pieces of prompts while they fit. Returns the number of
// inputs.
static int32_t make_call(struct scheduler * s) {
    const int32_t n_decode = collect(s, CHOICE_DECODE, 0);
    const int32_t n_all = collect(s, CHOICE_PROMPT, n_decode);
    int64_t       room = s->params.n_batch;
    int32_t       n = 0;
    for (int32_t i = 0; i < n_decode; ++i) {
        s->drafting[i] = s->called[i]->generation;
    }
    generation_draft(s->drafting, n_decode);
    for (int32_t i = 0; i < n_all; ++i) {
        struct lrnn_error err;
        struct choice *   c = s->called[i];
        const bool        is_prompt = i >= n_decode;
        if (is_prompt && !c->has_begun) {
            if (next_piece(s, c) > room) {
                continue;
            }
            if (!begin_sequence(s, c, &err)) {
                end_choice(s, c, &err);
                continue;
            }
            if (c->n_fed == c->n_prompt) { // the base has the logits of its last token
                begin_from_logits(s, c);
                continue;
            }
        }
        const int64_t piece = is_prompt ? next_piece(s, c) : 0;
        if (piece > room) {
            continue;
        }
        struct lrnn_input * in = &s->inputs[n];
        s->called[n++] = c;
        room -= piece;
        generation_input(c->generation, piece, in);
        if (is_prompt && c->job->params.score_prompt) {
            in->n_logits = in->n_tokens;
        }
    }
    return n;
}

// What follows from the logits of an input, its rows `row` and later. False: failed.
static bool advance(struct scheduler * s, struct choice * c, const struct lrnn_input * in,
        int64_t row, struct lrnn_error * err) {
    struct job * job = c->job;
    pthread_mutex_lock(&job->mutex);
    const bool ok = choice_take(&s->tools, c, in, row, err);
    if (c->phase == CHOICE_DECODE) {
        pthread_cond_broadcast(&job->cond);
    }
    pthread_mutex_unlock(&job->mutex);
    return ok;
}

static void count_call(struct scheduler * s, int32_t n, int64_t start_us) {
    pthread_mutex_lock(&s->mutex);
    for (int32_t i = 0; i < n; ++i) {
        const bool is_prompt = s->called[i]->phase == CHOICE_PROMPT;
        s->stats.n_prompt_tokens += is_prompt ? s->inputs[i].n_tokens : 0;
        s->stats.n_decoded += is_prompt ? 0 : 1;
    }
    s->stats.n_calls++;
    s->stats.seconds += (double) (ggml_time_us() - start_us) * 1e-6;
    pthread_mutex_unlock(&s->mutex);
}

static void run_call(struct scheduler * s, int32_t n) {
    const int64_t     start_us = ggml_time_us();
    struct lrnn_error err;
    if (!lrnn_eval(s->session, s->inputs, n, &err)) {
        for (int32_t i = 0; i < n; ++i) {
            end_choice(s, s->called[i], &err);
        }
        return;
    }
    count_call(s, n, start_us);
    int64_t row = 0;
    for (int32_t i = 0; i < n; ++i) {
        struct choice *           c = s->called[i];
        const struct lrnn_input * in = &s->inputs[i];
        const int64_t             n_new = c->n_new;
        const bool                ok = advance(s, c, in, row, &err);
        row += in->n_logits;
        pthread_mutex_lock(&s->mutex);
        s->stats.n_new_tokens += c->n_new - n_new;
        pthread_mutex_unlock(&s->mutex);
        const float * logits =
                c->job->params.score_prompt ? lrnn_logits(s->session, row - 1) : NULL;
        const bool is_done = c->finish != LRNN_FINISH_NONE;
        if (ok && (is_done || (c->n_fed < c->n_prompt && is_stored(s, c, c->n_fed)))) {
            store_state(s, c, logits);
        }
        if (ok && c->n_fed < c->n_prompt) {
            keep_state(s, c);
        }
        if (!ok || is_done) {
            end_choice(s, c, ok ? NULL : &err);
        }
    }
}

//
// The thread
//

static void drop_cancelled(struct scheduler * s) {
    static const struct lrnn_error reason = { LRNN_ERROR_CANCELLED, "the client has disconnected" };
    for (struct choice * c; (c = take_waiting(s, is_cancelled)) != NULL;) {
        end_choice(s, c, &reason);
    }
    for (int32_t i = 0; i < s->params.n_seqs; ++i) {
        struct choice * c = s->slots[i];
        if (c != NULL && is_cancelled(c)) {
            end_choice(s, c, &reason);
        }
    }
}

static void * run(void * user) {
    struct scheduler * s = user;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        while (s->first == NULL && s->stats.n_running == 0 && !s->is_stopping) {
            pthread_cond_wait(&s->cond, &s->mutex);
        }
        const bool is_over = s->first == NULL && s->stats.n_running == 0;
        pthread_mutex_unlock(&s->mutex);
        if (is_over) {
            return NULL;
        }
        drop_cancelled(s);
        admit(s);
        const int32_t n = make_call(s);
        if (n > 0) {
            run_call(s, n);
        }
    }
}

static void release(struct scheduler * s) {
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->mutex);
    choice_tools_free(&s->tools);
    lrnn_session_free(s->session);
    prefix_tree_free(s->tree);
    free(s->slots);
    free(s->inputs);
    free(s->called);
    free(s->drafting);
    free(s);
}

struct scheduler * scheduler_new(const struct scheduler_params * params, struct lrnn_error * err) {
    struct lrnn_session_params session = params->session;
    session.n_seqs = params->n_seqs;
    draft_options_session(&params->draft, &session);
    session.n_batch =
            params->n_batch + params->n_seqs * (1 + params->draft.lookup + params->draft.mtp);
    session.n_cache = params->n_cache;
    session.exact_cuts = true; // a reply does not depend on other clients and stored states
    const size_t       n = (size_t) params->n_seqs;
    struct scheduler * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the scheduler");
        return NULL;
    }
    s->params = *params;
    s->last = &s->first;
    s->slots = calloc(n, sizeof(*s->slots));
    s->inputs = calloc(n, sizeof(*s->inputs));
    s->called = calloc(n, sizeof(*s->called));
    s->drafting = calloc(n, sizeof(*s->drafting));
    s->tree = prefix_tree_new(params->state_memory);
    s->session = lrnn_session_new(params->model, &session, err);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->cond, NULL);
    bool ok = s->session != NULL &&
              choice_tools_init(&s->tools, s->session, lrnn_model_get_info(params->model), err);
    if (ok && (s->slots == NULL || s->inputs == NULL || s->called == NULL || s->drafting == NULL ||
                      s->tree == NULL || pthread_create(&s->thread, NULL, run, s) != 0)) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the scheduler");
        ok = false;
    }
    if (!ok) {
        release(s);
        return NULL;
    }
    return s;
}

void scheduler_drain(struct scheduler * s) {
    pthread_mutex_lock(&s->mutex);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mutex);
}

void scheduler_free(struct scheduler * s) {
    scheduler_drain(s);
    pthread_join(s->thread, NULL);
    release(s);
}

//
// For other threads
//

enum submit_status scheduler_submit(struct scheduler * s, struct job * job) {
    enum submit_status status = SUBMIT_OK;
    pthread_mutex_lock(&s->mutex);
    const int64_t n_free = s->params.n_seqs - s->stats.n_running;
    if (s->is_stopping) {
        status = SUBMIT_STOPPING;
    } else if (s->stats.n_waiting > 0 &&
               s->stats.n_waiting + job->n_choices > s->params.n_queue + n_free) {
        status = SUBMIT_FULL;
    }
    for (int64_t i = 0; status == SUBMIT_OK && i < job->n_choices; ++i) {
        *s->last = &job->choices[i];
        s->last = &job->choices[i].next;
        s->stats.n_waiting++;
    }
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

void scheduler_abandon(struct scheduler * s, struct job * job) {
    atomic_store(&job->cancelled, true);
    pthread_mutex_lock(&s->mutex);
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mutex);
    pthread_mutex_lock(&job->mutex);
    while (job->n_done < job->n_choices) {
        pthread_cond_wait(&job->cond, &job->mutex);
    }
    pthread_mutex_unlock(&job->mutex);
}

struct lrnn_session * scheduler_session(const struct scheduler * s) {
    return s->session;
}

bool scheduler_add_state(struct scheduler * s, const struct state_file * state) {
    size_t size;
    void * snapshot = stored_state_of(state->memory, state->n_memory, &size);
    if (snapshot == NULL) {
        return false;
    }
    pthread_mutex_lock(&s->mutex);
    const bool ok = prefix_tree_insert(s->tree, state->tokens, state->length, 0, snapshot, size);
    pthread_mutex_unlock(&s->mutex);
    return ok;
}

struct scheduler_stats scheduler_get_stats(struct scheduler * s) {
    pthread_mutex_lock(&s->mutex);
    struct scheduler_stats stats = s->stats;
    stats.states = prefix_tree_get_stats(s->tree);
    pthread_mutex_unlock(&s->mutex);
    return stats;
}

void scheduler_get_slots(struct scheduler * s, struct slot_info * slots) {
    pthread_mutex_lock(&s->mutex);
    for (int32_t i = 0; i < s->params.n_seqs; ++i) {
        const struct choice * c = s->slots[i];
        slots[i] = (struct slot_info) { .is_busy = c != NULL };
        if (c != NULL) {
            pthread_mutex_lock(&c->job->mutex);
            slots[i].n_prompt = c->n_prompt;
            slots[i].n_fed = c->n_fed;
            slots[i].n_new = c->n_new;
            pthread_mutex_unlock(&c->job->mutex);
        }
    }
    pthread_mutex_unlock(&s->mutex);
}
