#include "eval/scores/score.h"

#include "base/error.h"
#include "eval/scores/model-facts.h"
#include "log-softmax.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char * const MODE_NAMES[] = { "packed", "document", "llama" };
static const char * const EOS_NAMES[] = { "none", "doc" };
static const char * const RESET_NAMES[] = { "window", "document", "never" };

struct score_meta score_meta_of(const struct lrnn_model * model,
        const struct lrnn_session_params * session, const struct model_facts * facts,
        const struct windows * windows, const struct window_params * window,
        enum score_reset reset) {
    const struct windows_summary * data = windows_get_summary(windows);
    const struct lrnn_model_info   info = lrnn_model_get_info(model);
    const int64_t min_tokens = window->min_doc_tokens > 0 ? window->min_doc_tokens : window->length;
    return (struct score_meta) {
        .model_hash = facts->hash,
        .model_family = info.family,
        .eigenvalues = info.eigenvalues,
        .quantization = facts->quantization,
        .parameters = facts->parameters,
        .trained_length = info.trained_length,
        .n_vocab = info.n_vocab,
        .tokenizer_hash = facts->tokenizer_hash,
        .data_fingerprint = data->fingerprint,
        .template = data->counts.template,
        .files = data->files,
        .sources = data->sources,
        .records = data->counts.records,
        .documents = data->counts.documents,
        .filtered = data->counts.filtered,
        .malformed = data->counts.malformed,
        .lone_surrogates = data->counts.lone_surrogates,
        .complaints = data->complaints,
        .mode = MODE_NAMES[window->mode],
        .bos = data->bos,
        .eos = EOS_NAMES[window->eos],
        .reset = RESET_NAMES[reset],
        .window = window->length,
        .min_doc_tokens = window->mode == WINDOW_DOCUMENT ? min_tokens : 0,
        .skip_special = window->skip_special,
        .n_windows = data->n_windows,
        .cache_type = info.n_layer_attention > 0 ? lrnn_cache_type_name(session->cache_type) : "",
        .state_type = session->state_type != LRNN_STATE_F32
                              ? lrnn_state_type_name(session->state_type)
                              : "",
        .exact_cuts = session->exact_cuts,
        .shard = 1,
        .n_shards = 1,
    };
}

//
// Scoring
//

// The state of one call of score_run.
struct engine {
    struct lrnn_model *         model;
    struct windows *            windows;
    struct score_writer *       writer;
    const struct score_params * params;
    struct score_result *       result;
    struct lrnn_session *       session;
    struct lrnn_input *         inputs;   // [group]
    int64_t *                   of_input; // [group] slot of an input
    struct nll_row *            rows;     // [group · n_batch] the targets of a call
    int64_t                     n_vocab;
    int64_t                     saved_at; // tokens of the group at its last checkpoint
    struct score_group          group;
};

//
// The next call of a group
//

// The number of tokens of a window to feed. The last one predicts nothing, unless the stream
// continues.
static int64_t feed_end(const struct engine * e, const struct score_slot * slot) {
    return slot->window.n_tokens - (e->params->reset == SCORE_RESET_NEVER ? 0 : 1);
}

// Where the next document after `at` begins.
static int64_t next_document(const struct window * w, int64_t at) {
    for (int32_t i = 0; i < w->n_spans; ++i) {
        if (w->spans[i].first > at) {
            return w->spans[i].first;
        }
    }
    return w->n_tokens;
}

// The next tokens of a slot. Logits are needed from the first token that is followed by a target.
static struct lrnn_input next_input(const struct engine * e, int64_t s) {
    const struct score_slot * slot = &e->group.slots[s];
    const struct window *     w = &slot->window;
    int64_t                   end = slot->at + e->params->n_batch;
    end = end < feed_end(e, slot) ? end : feed_end(e, slot);
    if (e->params->reset == SCORE_RESET_DOCUMENT) {
        const int64_t document = next_document(w, slot->at);
        end = end < document ? end : document;
    }
    int64_t first_logit = slot->at;
    while (first_logit < end && (first_logit + 1 >= w->n_tokens || !w->scored[first_logit + 1])) {
        first_logit++;
    }
    return (struct lrnn_input) { .seq = (int32_t) s,
        .tokens = w->tokens + slot->at,
        .n_tokens = end - slot->at,
        .n_logits = end - first_logit };
}

// Appends the targets of one input, whose logits begin at row `row`, to the n rows to compute.
static void add_targets(struct engine * e, const struct lrnn_input * input,
        const struct score_slot * slot, int64_t row, int64_t * n) {
    const struct window * w = &slot->window;
    const int64_t         end = slot->at + input->n_tokens;
    // token i predicts target i + 1, which has index i
    for (int64_t i = slot->at; i < end && i + 1 < w->n_tokens; ++i) {
        if (w->scored[i + 1]) {
            e->rows[(*n)++] = (struct nll_row) {
                .logits = lrnn_logits(e->session, row + i - (end - input->n_logits)),
                .target = w->tokens[i + 1],
            };
        }
    }
}

// Stores the scores of the targets that add_targets appended, in the same order.
static void take_scores(
        struct engine * e, const struct lrnn_input * input, struct score_slot * slot, int64_t * n) {
    const struct window * w = &slot->window;
    const int64_t         end = slot->at + input->n_tokens;
    for (int64_t i = slot->at; i < end && i + 1 < w->n_tokens; ++i) {
        slot->nll[i] = 0.0f;
        slot->flags[i] = 0;
        if (w->scored[i + 1]) {
            const struct nll nll = e->rows[(*n)++].nll;
            slot->nll[i] = nll.nats;
            slot->flags[i] = (uint8_t) (SCORE_COUNTED | (nll.top1 ? SCORE_TOP1 : 0));
        }
    }
    slot->at = end;
}

enum { NORM_EVERY = 2048 };

// The norm is taken after the first call that reaches a power of two or a multiple of 2,048 tokens,
// and after the last call of a window. The calls depend only on the index of the window, so resumed
// runs and shards measure at the same positions.
// - from, to: tokens before and after the call
static bool norm_is_due(
        const struct engine * e, const struct score_slot * slot, int64_t from, int64_t to) {
    int64_t power = 1;
    while (power <= from) {
        power *= 2;
    }
    return power <= to || from / NORM_EVERY < to / NORM_EVERY || to == feed_end(e, slot);
}

// An upper bound: powers of two, multiples, and the end.
static int64_t max_norms(int64_t n_tokens) {
    return 63 + n_tokens / NORM_EVERY + 1;
}

static void take_norm(
        struct engine * e, const struct lrnn_input * input, struct score_slot * slot) {
    if (e->params->state_norm && norm_is_due(e, slot, slot->at - input->n_tokens, slot->at)) {
        int32_t      layer;
        const double norm = lrnn_seq_state_norm(e->session, input->seq, &layer);
        if (layer >= 0) {
            slot->norms[slot->n_norms++] = (struct score_norm) { slot->at, layer, (float) norm };
        }
    }
}

static bool is_document_start(const struct window * w, int64_t at) {
    for (int32_t i = 1; i < w->n_spans; ++i) {
        if (w->spans[i].first == at) {
            return true;
        }
    }
    return false;
}

// Makes one call with the next tokens of every unfinished window. *n_tokens: tokens fed; 0: all
// windows are finished.
static bool advance(struct engine * e, int64_t * n_tokens, struct lrnn_error * err) {
    struct score_group * g = &e->group;
    int32_t              n_inputs = 0;
    *n_tokens = 0;
    for (int64_t s = 0; s < g->n; ++s) {
        if (g->slots[s].at < feed_end(e, &g->slots[s])) {
            e->inputs[n_inputs] = next_input(e, s);
            e->of_input[n_inputs] = s;
            *n_tokens += e->inputs[n_inputs].n_tokens;
            n_inputs++;
        }
    }
    if (n_inputs == 0) {
        return true;
    }
    if (!lrnn_eval(e->session, e->inputs, n_inputs, err)) {
        return false;
    }
    int64_t row = 0, n_targets = 0, n_taken = 0;
    for (int32_t i = 0; i < n_inputs; ++i) {
        add_targets(e, &e->inputs[i], &g->slots[e->of_input[i]], row, &n_targets);
        row += e->inputs[i].n_logits;
    }
    nll_of_rows(e->rows, n_targets, e->n_vocab, e->params->session.n_threads);
    for (int32_t i = 0; i < n_inputs; ++i) {
        struct score_slot * slot = &g->slots[e->of_input[i]];
        take_scores(e, &e->inputs[i], slot, &n_taken);
        take_norm(e, &e->inputs[i], slot);
    }
    for (int32_t i = 0; i < n_inputs; ++i) { // after all logits are read: a reset discards them
        struct score_slot * slot = &g->slots[e->of_input[i]];
        if (e->params->reset == SCORE_RESET_DOCUMENT &&
                is_document_start(&slot->window, slot->at) &&
                !lrnn_seq_reset(e->session, e->inputs[i].seq, err)) {
            return false;
        }
    }
    g->n_calls++;
    return true;
}

//
// Groups
//

static void group_free(struct score_group * g) {
    for (int64_t s = 0; s < g->n && g->slots != NULL; ++s) {
        window_free(&g->slots[s].window);
        free(g->slots[s].nll);
        free(g->slots[s].flags);
        free(g->slots[s].norms);
    }
    free(g->slots);
    *g = (struct score_group) { 0 };
}

static bool group_begin(struct engine * e, int64_t first, struct lrnn_error * err) {
    const int64_t        left = e->params->end - first;
    struct score_group * g = &e->group;
    const int64_t        n = left < e->params->group ? left : e->params->group;
    *g = (struct score_group) { .first = first, .n = n };
    g->slots = program_alloc((size_t) g->n, sizeof(*g->slots));
    for (int64_t s = 0; s < g->n; ++s) {
        struct score_slot * slot = &g->slots[s];
        if (!windows_read(e->windows, first + s, &slot->window, err)) {
            return false;
        }
        slot->nll = program_alloc((size_t) slot->window.n_tokens, sizeof(*slot->nll));
        slot->flags = program_alloc((size_t) slot->window.n_tokens, 1);
        slot->max_norms = max_norms(slot->window.n_tokens);
        slot->norms = program_alloc((size_t) slot->max_norms, sizeof(*slot->norms));
        if (e->params->reset != SCORE_RESET_NEVER &&
                !lrnn_seq_reset(e->session, (int32_t) s, err)) {
            return false;
        }
    }
    return true;
}

// Tokens fed of the window that is furthest.
static int64_t group_at(const struct score_group * g) {
    int64_t at = 0;
    for (int64_t s = 0; s < g->n; ++s) {
        at = g->slots[s].at > at ? g->slots[s].at : at;
    }
    return at;
}

// Loads the checkpoint of this group, if there is one.
static bool group_resume(struct engine * e, struct lrnn_error * err) {
    struct lrnn_error why;
    switch (score_checkpoint_load(e->params, &e->group, e->session, &why)) {
        case CHECKPOINT_NONE: why.text[0] = '\0'; break;
        case CHECKPOINT_BAD:
            snprintf(e->result->warning, sizeof(e->result->warning), "%s; ignored", why.text);
            break;
        case CHECKPOINT_LOADED:
            for (int64_t s = 0; s < e->group.n; ++s) {
                e->result->n_resumed += e->group.slots[s].at;
            }
            e->saved_at = group_at(&e->group);
            return true;
    }
    if (e->params->reset == SCORE_RESET_NEVER && e->group.first > e->params->first) {
        return error_bad_file(err,
                "reset is 'never', which needs the state before window %" PRId64
                "; it is lost (%s), so start the run again",
                e->group.first, why.text[0] != '\0' ? why.text : "there is no checkpoint");
    }
    return true;
}

// Appends the windows of a finished group.
static bool group_end(struct engine * e, struct lrnn_error * err) {
    struct score_group * g = &e->group;
    for (int64_t s = 0; s < g->n; ++s) {
        const struct score_slot * slot = &g->slots[s];
        const struct score_window scored = {
            .index = g->first + s,
            .n_targets = slot->window.n_tokens - 1,
            .nll = slot->nll,
            .bytes = slot->window.bytes + 1,
            .flags = slot->flags,
            .spans = slot->window.spans,
            .n_spans = slot->window.n_spans,
            .norms = slot->norms,
            .n_norms = (int32_t) slot->n_norms,
        };
        if (scored.index < e->params->next) { // a previous process was killed inside this loop
            continue;
        }
        if (!score_writer_append(e->writer, &scored, err)) {
            return false;
        }
        for (int64_t i = 0; i < scored.n_targets; ++i) {
            if (!isfinite(slot->nll[i])) {
                if (e->result->n_diverged == 0) {
                    e->result->diverged_window = scored.index;
                    e->result->diverged_at = i + 1;
                }
                e->result->n_diverged++;
                break;
            }
        }
        e->result->n_windows++;
    }
    return score_writer_sync(e->writer, err);
}

// With reset 'never', the next group starts from the final state of this one. That state is saved
// as a checkpoint before the group is appended, so one of the two always exists.
static bool save_next_start(struct engine * e, struct lrnn_error * err) {
    struct score_slot        start = { .window = { .index = e->group.first + 1 } };
    const struct score_group next = { .first = e->group.first + 1, .n = 1, .slots = &start };
    if (e->params->reset != SCORE_RESET_NEVER || next.first >= e->params->end) {
        return true;
    }
    if (!windows_read(e->windows, next.first, &start.window, err)) {
        return false;
    }
    const bool ok = score_checkpoint_save(e->params, &next, e->session, err);
    window_free(&start.window);
    return ok;
}

static bool save(struct engine * e, struct lrnn_error * err) {
    if (!score_checkpoint_save(e->params, &e->group, e->session, err)) {
        return false;
    }
    e->saved_at = group_at(&e->group);
    score_checkpoint_clean(e->params, e->group.first);
    return true;
}

static bool run_group(struct engine * e, struct lrnn_error * err) {
    const struct score_params * p = e->params;
    struct score_progress       progress = { .window = e->group.first, .n_windows = e->group.n };
    for (int64_t s = 0; s < e->group.n; ++s) {
        const int64_t n = e->group.slots[s].window.n_tokens;
        progress.length = n > progress.length ? n : progress.length;
    }
    for (;;) {
        int64_t n_tokens;
        if (!advance(e, &n_tokens, err)) {
            return false;
        }
        if (n_tokens == 0) {
            return true;
        }
        e->result->n_tokens += n_tokens;
        progress.n_tokens = e->result->n_tokens;
        progress.n_resumed = e->result->n_resumed;
        progress.at = group_at(&e->group);
        progress.not_finite = e->result->n_diverged > 0;
        const bool stop = p->callback != NULL && !p->callback(&progress, p->user);
        const bool due = p->checkpoint_every > 0 &&
                         progress.at - e->saved_at >= p->checkpoint_every &&
                         progress.at < progress.length - 1;
        if ((stop || due) && !save(e, err)) {
            return false;
        }
        if (stop) {
            return error_set(err, LRNN_ERROR_CANCELLED, "stopped with a checkpoint");
        }
    }
}

static bool run(struct engine * e, struct lrnn_error * err) {
    const struct score_params * p = e->params;
    bool                        is_first = true; // only the first group can have a checkpoint
    if (!p->resume) {
        score_checkpoint_clean(p, -1);
    }
    const int64_t start =
            p->next < p->end ? p->first + (p->next - p->first) / p->group * p->group : p->end;
    for (int64_t first = start; first < p->end; first += p->group) {
        e->saved_at = 0;
        if (!group_begin(e, first, err) || (is_first && !group_resume(e, err)) ||
                !run_group(e, err) || !save_next_start(e, err) || !group_end(e, err)) {
            return false;
        }
        is_first = false;
        score_checkpoint_clean(p, p->reset == SCORE_RESET_NEVER ? first + 1 : -1);
        group_free(&e->group);
    }
    score_checkpoint_clean(p, -1);
    return true;
}

bool score_run(struct lrnn_model * model, struct windows * windows, struct score_writer * writer,
        const struct score_params * params, struct score_result * result, struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    const int64_t                per_call = // tokens of a window
            params->n_batch < params->max_length ? params->n_batch : params->max_length;
    *result = (struct score_result) { 0 };
    if (params->group * params->n_batch > INT32_MAX) {
        return error_bad_input(err,
                "%" PRId64 " windows of %" PRId64
                " tokens per call; expected less than 2^31 tokens",
                params->group, params->n_batch);
    }
    if (params->reset == SCORE_RESET_NEVER && (params->group != 1 || info.n_layer_attention > 0)) {
        return error_bad_input(err,
                "reset is 'never', which needs groups of one window and a model without attention "
                "layers");
    }
    struct lrnn_session_params session = params->session;
    session.n_seqs = (int32_t) params->group;
    session.n_batch = (int32_t) (params->group * params->n_batch);
    session.n_cache = (int32_t) params->max_length;
    struct engine e = {
        .model = model,
        .windows = windows,
        .writer = writer,
        .params = params,
        .result = result,
        .n_vocab = info.n_vocab,
        .inputs = program_alloc((size_t) params->group, sizeof(*e.inputs)),
        .of_input = program_alloc((size_t) params->group, sizeof(*e.of_input)),
        .rows = program_alloc((size_t) (params->group * per_call), sizeof(*e.rows)),
        .session = lrnn_session_new(model, &session, err),
    };
    const bool ok = e.session != NULL && run(&e, err);
    group_free(&e.group);
    lrnn_session_free(e.session);
    free(e.inputs);
    free(e.of_input);
    free(e.rows);
    return ok;
}

static double now(void) { // seconds
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

double score_speed(struct lrnn_model * model, struct windows * windows,
        struct lrnn_session_params params, int64_t group, int64_t n_batch) {
    params.n_seqs = (int32_t) group;
    params.n_batch = (int32_t) (group * n_batch);
    params.n_cache = (int32_t) n_batch;
    struct lrnn_error     err;
    struct window         window = { 0 };
    struct lrnn_session * session = lrnn_session_new(model, &params, &err);
    struct lrnn_input *   inputs = calloc((size_t) group, sizeof(*inputs));
    bool          ok = session != NULL && inputs != NULL && windows_read(windows, 0, &window, &err);
    const int64_t n = window.n_tokens < n_batch ? window.n_tokens : n_batch;
    int64_t       n_calls = -1; // the first one also builds graphs and reads the file
    double        start = 0.0;
    while (ok && (n_calls < 1 || now() - start < 1.0)) {
        start = n_calls <= 0 ? now() : start;
        for (int32_t s = 0; s < group && ok; ++s) {
            inputs[s] = (struct lrnn_input) {
                .seq = s, .tokens = window.tokens, .n_tokens = n, .n_logits = n
            };
            ok = lrnn_seq_reset(session, s, &err);
        }
        ok = ok && lrnn_eval(session, inputs, (int32_t) group, &err);
        n_calls++;
    }
    const double seconds = now() - start;
    window_free(&window);
    free(inputs);
    lrnn_session_free(session);
    return ok ? (double) (n_calls * group * n) / seconds : 0.0;
}
