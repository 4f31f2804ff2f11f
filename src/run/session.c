// A session: the states of its sequences, and the graph that advances them.
//
// Every state of every recurrent layer is one tensor [floats, slots]. A sequence has n_rewind + 1
// slots, used as a ring: its state after p tokens lies in slot p mod (n_rewind + 1). Advancing
// reads one slot and writes others, and going back is forgetting the last tokens: nothing is
// copied. A sequence of no tokens has the zero state, which no slot needs to hold.

#include "run/session.h"

#include "run/forward.h"
#include "run/graph-safety.h"
#include "run/trace.h"

#include "ggml-cpu.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seq {
    int64_t length;     // tokens so far
    int64_t rewindable; // by how many it can go back
    int64_t logits; // 1 + the row of the session's logits that belongs to its last token, 0: none
};

struct lrnn_session {
    struct lrnn_model *        model;
    struct lrnn_session_params params;

    ggml_backend_t       backends[DEVICES_MAX]; // one per device, the CPU last
    int                  n_backends;
    ggml_backend_sched_t sched;
    struct memory        memory;
    struct seq *         seqs;

    struct forward     forward;                     // the graph that is allocated
    int64_t            graph_tokens, graph_outputs; // what it is for; -1: nothing
    struct graph_seq * graph_seqs; // [n_seqs of the session], and the first so many of them
    int32_t            n_graph_seqs;

    struct trace * trace; // NULL: none

    float * logits;
    int64_t n_logits;
    int64_t cap_logits;
};

//
// Making one
//

static int64_t ring(const struct lrnn_session * s) {
    return s->params.n_rewind + 1;
}

// A backend for each device, and a scheduler over them. The CPU comes last: it takes what no other
// can compute.
static bool make_backends(struct lrnn_session * s, char * err, size_t err_size) {
    const struct lrnn_model * model = s->model;
    for (int32_t i = 0; i < model->n_devices; ++i) {
        ggml_backend_dev_t dev     = model->devices[i + 1 < model->n_devices ? i + 1 : 0].dev;
        ggml_backend_t     backend = ggml_backend_dev_init(dev, NULL);
        if (backend == NULL) {
            snprintf(err, err_size, "device %s cannot be started", ggml_backend_dev_name(dev));
            return false;
        }
        s->backends[s->n_backends++] = backend;
    }
    ggml_backend_cpu_set_n_threads(s->backends[s->n_backends - 1], s->params.n_threads);
    s->sched = ggml_backend_sched_new(s->backends, NULL, s->n_backends,
            2 * forward_max_nodes(model, s->params.n_seqs), false, false);
    if (s->sched == NULL) {
        snprintf(err, err_size, "out of memory for a scheduler of %d backends", s->n_backends);
        return false;
    }
    return true;
}

static bool make_memory(struct lrnn_session * s, char * err, size_t err_size) {
    s->seqs       = calloc((size_t) s->params.n_seqs, sizeof(*s->seqs));
    s->graph_seqs = calloc((size_t) s->params.n_seqs, sizeof(*s->graph_seqs));
    if (s->seqs == NULL || s->graph_seqs == NULL) {
        snprintf(err, err_size, "out of memory for a session of %d sequences", s->params.n_seqs);
        return false;
    }
    const struct memory_size size = {
        .n_slots = s->params.n_seqs * ring(s),
        .n_seqs  = s->params.n_seqs,
        .n_cache = s->params.n_cache,
        .n_batch = s->params.n_batch,
    };
    return memory_make(&s->memory, s->model, &size, err, err_size);
}

static bool check_params(struct lrnn_session_params * p, char * err, size_t err_size) {
    if (p->n_threads < 0 || p->n_threads > 4096 || p->n_seqs < 0 || p->n_rewind < 0 ||
            p->n_batch < 0 || p->n_cache < 0 || p->n_rewind > 1 << 20 || p->n_seqs > 1 << 20) {
        snprintf(err, err_size,
                "session of %d threads, %d sequences, %d tokens to rewind, %d in a batch, %d in the cache; expected none negative or absurd",
                p->n_threads, p->n_seqs, p->n_rewind, p->n_batch, p->n_cache);
        return false;
    }
    if (p->n_threads == 0) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        p->n_threads     = cores > 0 && cores < 4096 ? (int32_t) cores : 1;
    }
    p->n_seqs  = p->n_seqs == 0 ? 1 : p->n_seqs;
    p->n_batch = p->n_batch == 0 ? 512 : p->n_batch;
    p->n_cache = p->n_cache == 0 ? 4096 : p->n_cache;
    return true;
}

static bool make_trace(struct lrnn_session * s, char * err, size_t err_size) {
    if (s->params.trace == NULL || s->params.trace_kinds == 0) {
        return true;
    }
    s->trace = trace_new(&s->params);
    if (s->trace == NULL) {
        snprintf(err, err_size, "out of memory for a trace");
        return false;
    }
    ggml_backend_sched_set_eval_callback(s->sched, trace_node, s->trace);
    return true;
}

struct lrnn_session * lrnn_session_new(struct lrnn_model * model,
        const struct lrnn_session_params * params, char * err, size_t err_size) {
    struct lrnn_session * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        snprintf(err, err_size, "out of memory for a session");
        return NULL;
    }
    s->model = model;
    if (params != NULL) {
        s->params = *params;
    }
    if (!check_params(&s->params, err, err_size)) {
        lrnn_session_free(s);
        return NULL;
    }
    s->graph_tokens = -1;
    if (!make_backends(s, err, err_size) || !make_trace(s, err, err_size) ||
            !make_memory(s, err, err_size)) {
        lrnn_session_free(s);
        return NULL;
    }
    return s;
}

void lrnn_session_free(struct lrnn_session * s) {
    if (s == NULL) {
        return;
    }
    forward_free(&s->forward);
    ggml_backend_sched_free(s->sched);
    memory_free(&s->memory);
    for (int i = 0; i < s->n_backends; ++i) {
        ggml_backend_free(s->backends[i]);
    }
    trace_free(s->trace);
    free(s->seqs);
    free(s->graph_seqs);
    free(s->logits);
    free(s);
}

//
// The graph of a call
//

// One pass: at most n_batch tokens of some sequences.
struct pass {
    struct graph_seq * seqs;    // [n_seqs of the session]
    const int32_t **   tokens;  // of each
    int64_t *          outputs; // of each: logits of its last so many tokens
    int32_t            n_seqs;
    int64_t            n_tokens, n_outputs;
};

static bool build(struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    const struct forward_call call = {
        .seqs      = pass->seqs,
        .n_seqs    = pass->n_seqs,
        .n_tokens  = pass->n_tokens,
        .n_outputs = pass->n_outputs,
        .n_rewind  = s->params.n_rewind,
        .path      = s->params.exact_cuts ? GGML_SCAN_PATH_STEP : GGML_SCAN_PATH_AUTO,
    };
    struct forward * f = &s->forward;
    return forward_build(f, s->model, &s->memory, &call, err, err_size) &&
           (s->trace == NULL ||
                   trace_graph(s->trace, s->model, s->memory.states, f->graph, err, err_size)) &&
           graph_alloc(s->sched, f->graph, err, err_size);
}

// A graph can serve again where everything that varies is data. With attention it holds views of
// the caches, too.
static bool can_reuse(const struct lrnn_session * s, const struct pass * pass) {
    if (s->graph_tokens != pass->n_tokens || s->n_graph_seqs != pass->n_seqs ||
            s->graph_outputs != pass->n_outputs) {
        return false;
    }
    for (int32_t i = 0; i < pass->n_seqs && s->model->info.n_layer_attention > 0; ++i) {
        const struct graph_seq *had = &s->graph_seqs[i], *now = &pass->seqs[i];
        if (had->seq != now->seq || had->first != now->first || had->count != now->count ||
                had->visible != now->visible) {
            return false;
        }
    }
    return true;
}

//
// Filling it
//

static int64_t slot_of(const struct lrnn_session * s, int32_t seq, int64_t position) {
    return seq * ring(s) + position % ring(s);
}

static void fill_ids(const struct lrnn_session * s, const struct pass * pass, int32_t * ids) {
    const int64_t stride = GGML_SCAN_SNAPS + s->params.n_rewind;
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        const struct graph_seq * q   = &pass->seqs[i];
        int32_t *                id  = ids + i * stride;
        const int64_t            end = q->position + q->count;
        id[GGML_SCAN_SLOT_IN]  = q->position == 0 ? -1 : (int32_t) slot_of(s, q->seq, q->position);
        id[GGML_SCAN_SLOT_OUT] = (int32_t) slot_of(s, q->seq, end);
        id[GGML_SCAN_FIRST]    = (int32_t) q->first;
        id[GGML_SCAN_COUNT]    = (int32_t) q->count;
        for (int64_t back = 1; back <= s->params.n_rewind;
                ++back) { // the state before the call is where it belongs already
            id[GGML_SCAN_SNAPS + back - 1] =
                    back < q->count ? (int32_t) slot_of(s, q->seq, end - back) : -1;
        }
    }
}

static void fill_mask(
        struct ggml_tensor * mask, const struct graph_seq * q, int64_t window, float * data) {
    const int64_t all = mask->ne[0];
    for (int64_t t = 0; t < q->count; ++t) {
        const int64_t now = q->position + t;
        for (int64_t j = 0; j < all; ++j) {
            data[t * all + j] = j > now || (window > 0 && j <= now - window) ? -INFINITY : 0.0f;
        }
    }
    ggml_backend_tensor_set(mask, data, 0, ggml_nbytes(mask));
}

// A leaf that no node reads is not allocated: positions without RoPE, ids without recurrent layers.
static void set_input(struct ggml_tensor * t, const void * data) {
    if (t->buffer != NULL) {
        ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    }
}

// Where positions are read, RoPE's or a cache's, they have 32 bits.
static bool check_positions(
        const struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    for (int32_t i = 0; i < pass->n_seqs && s->forward.positions->buffer != NULL; ++i) {
        if (pass->seqs[i].position > INT32_MAX - pass->seqs[i].count) {
            snprintf(err, err_size, "sequence %d is too long: its positions have 32 bits",
                    pass->seqs[i].seq);
            return false;
        }
    }
    return true;
}

static void fill_tokens(struct lrnn_session * s, const struct pass * pass, int32_t * data) {
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        memcpy(data + pass->seqs[i].first, pass->tokens[i],
                (size_t) pass->seqs[i].count * sizeof(int32_t));
    }
    set_input(s->forward.tokens, data);
}

static void fill_positions(struct lrnn_session * s, const struct pass * pass, int32_t * data) {
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        for (int64_t t = 0; t < pass->seqs[i].count; ++t) {
            data[pass->seqs[i].first + t] = (int32_t) (pass->seqs[i].position + t);
        }
    }
    set_input(s->forward.positions, data);
}

static void fill_rows(struct lrnn_session * s, const struct pass * pass, int64_t * data) {
    const int64_t n_rows = cache_steps(s->params.n_cache); // of a sequence
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        for (int64_t t = 0; t < pass->seqs[i].count; ++t) {
            data[pass->seqs[i].first + t] = pass->seqs[i].seq * n_rows + pass->seqs[i].position + t;
        }
    }
    set_input(s->forward.rows, data);
}

static void fill_out_ids(struct lrnn_session * s, const struct pass * pass, int32_t * data) {
    int64_t n = 0;
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        for (int64_t t = pass->seqs[i].count - pass->outputs[i]; t < pass->seqs[i].count; ++t) {
            data[n++] = (int32_t) (pass->seqs[i].first + t);
        }
    }
    set_input(s->forward.out_ids, data);
}

static bool fill(struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    const int64_t stride  = GGML_SCAN_SNAPS + s->params.n_rewind;
    size_t        scratch = (size_t) pass->n_tokens * sizeof(int64_t) +
                     (size_t) (stride * pass->n_seqs) * sizeof(int32_t);
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        if (s->forward.masks[i] != NULL && ggml_nbytes(s->forward.masks[i]) > scratch) {
            scratch = ggml_nbytes(s->forward.masks[i]);
        }
    }
    void * data = malloc(scratch); // for one input after the other
    if (data == NULL) {
        snprintf(err, err_size, "out of memory for %zu bytes of input", scratch);
        return false;
    }
    fill_ids(s, pass, data);
    const bool ok = ggml_scan_ids_check(data, s->params.n_rewind, pass->n_seqs,
            s->params.n_seqs * ring(s), pass->n_tokens, err, err_size);
    if (ok) {
        set_input(s->forward.ids, data);
        fill_tokens(s, pass, data);
        fill_positions(s, pass, data);
        fill_rows(s, pass, data);
        if (s->forward.out_ids != NULL) {
            fill_out_ids(s, pass, data);
        }
        for (int32_t i = 0; i < pass->n_seqs; ++i) {
            if (s->forward.masks[i] != NULL) {
                fill_mask(s->forward.masks[i], &pass->seqs[i], s->forward.window, data);
            }
        }
    }
    free(data);
    return ok;
}

static bool compute(
        struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    if (s->trace != NULL) {
        struct lrnn_trace_seq * seqs = trace_seqs(s->trace, pass->n_seqs);
        for (int32_t i = 0; seqs != NULL && i < pass->n_seqs; ++i) {
            const struct graph_seq * q = &pass->seqs[i];
            seqs[i]                    = (struct lrnn_trace_seq) {
                                   .seq = q->seq, .first = q->first, .count = q->count, .position = q->position
            };
        }
        if (seqs == NULL) {
            snprintf(err, err_size, "out of memory for a trace of %d sequences", pass->n_seqs);
            return false;
        }
    }
    if (ggml_backend_sched_graph_compute(s->sched, s->forward.graph) != GGML_STATUS_SUCCESS) {
        snprintf(err, err_size, "the graph could not be computed");
        return false;
    }
    return s->trace == NULL || trace_ok(s->trace, err, err_size);
}

static bool run(struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    if (!can_reuse(s, pass)) {
        s->graph_tokens = -1; // nothing to reuse if building fails half way
        if (!build(s, pass, err, err_size)) {
            return false;
        }
        s->graph_tokens  = pass->n_tokens;
        s->graph_outputs = pass->n_outputs;
        s->n_graph_seqs  = pass->n_seqs;
        memcpy(s->graph_seqs, pass->seqs, (size_t) pass->n_seqs * sizeof(*s->graph_seqs));
    }
    if (!check_positions(s, pass, err, err_size) || !fill(s, pass, err, err_size)) {
        return false;
    }
    if (!compute(s, pass, err, err_size)) {
        for (int32_t i = 0; i < pass->n_seqs; ++i) {
            const struct graph_seq * q = &pass->seqs[i];
            memory_forget(&s->memory, s->model, q->seq, 0, q->position + q->count);
            s->seqs[q->seq] = (struct seq) { 0 };
        }
        return false;
    }
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        struct seq * q = &s->seqs[pass->seqs[i].seq];
        q->length += pass->seqs[i].count;
        q->rewindable += pass->seqs[i].count;
        if (q->rewindable > s->params.n_rewind) {
            q->rewindable = s->params.n_rewind;
        }
    }
    return true;
}

//
// Evaluating
//

static bool check_inputs(struct lrnn_session * s, const struct lrnn_input * inputs,
        int32_t n_inputs, char * err, size_t err_size) {
    if (n_inputs < 1 || n_inputs > s->params.n_seqs) {
        snprintf(err, err_size,
                "%d sequences to advance; expected 1 to %d, the sequences of the session", n_inputs,
                s->params.n_seqs);
        return false;
    }
    for (int32_t i = 0; i < n_inputs; ++i) {
        const struct lrnn_input * in = &inputs[i];
        if (in->seq < 0 || in->seq >= s->params.n_seqs) {
            snprintf(err, err_size, "sequence %d; the session has sequences 0 to %d", in->seq,
                    s->params.n_seqs - 1);
            return false;
        }
        for (int32_t j = 0; j < i; ++j) {
            if (inputs[j].seq == in->seq) {
                snprintf(err, err_size, "sequence %d is named twice in one call", in->seq);
                return false;
            }
        }
        if (in->n_tokens < 1 || in->n_logits < 0 || in->n_logits > in->n_tokens) {
            snprintf(err, err_size,
                    "sequence %d: %" PRId64 " tokens and logits of %" PRId64
                    "; expected at least one token and not more logits",
                    in->seq, in->n_tokens, in->n_logits);
            return false;
        }
        for (int64_t t = 0; t < in->n_tokens; ++t) {
            if (in->tokens[t] < 0 || in->tokens[t] >= s->model->info.n_vocab) {
                snprintf(err, err_size,
                        "sequence %d: token %" PRId64 " has id %d; the vocabulary has %" PRId64
                        " ids",
                        in->seq, t, in->tokens[t], s->model->info.n_vocab);
                return false;
            }
        }
        if (s->model->info.n_layer_attention > 0 &&
                in->n_tokens > s->params.n_cache - s->seqs[in->seq].length) {
            snprintf(err, err_size,
                    "sequence %d would have %" PRId64
                    " tokens; its attention layers can remember %d",
                    in->seq, s->seqs[in->seq].length + in->n_tokens, s->params.n_cache);
            return false;
        }
    }
    return true;
}

static bool reserve_logits(struct lrnn_session * s, int64_t n, char * err, size_t err_size) {
    if (n > s->cap_logits) {
        float * logits =
                realloc(s->logits, (size_t) n * (size_t) s->model->info.n_vocab * sizeof(float));
        if (logits == NULL) {
            snprintf(err, err_size,
                    "out of memory for logits of %" PRId64 " tokens; ask for fewer in a call", n);
            return false;
        }
        s->logits     = logits;
        s->cap_logits = n;
    }
    return true;
}

// The next tokens of the inputs, as many as fit a batch. `done` counts what each has behind it.
static void next_pass(const struct lrnn_session * s, const struct lrnn_input * inputs,
        int32_t n_inputs, const int64_t * done, struct pass * pass, int32_t * of_input) {
    pass->n_seqs   = 0;
    pass->n_tokens = pass->n_outputs = 0;
    for (int32_t i = 0; i < n_inputs && pass->n_tokens < s->params.n_batch; ++i) {
        const int64_t left = inputs[i].n_tokens - done[i];
        const int64_t room = s->params.n_batch - pass->n_tokens;
        const int64_t n    = left < room ? left : room;
        if (n == 0) {
            continue;
        }
        const int64_t first_logit = inputs[i].n_tokens - inputs[i].n_logits;
        const int64_t end         = done[i] + n;
        const int64_t outputs =
                end > first_logit ? end - (first_logit > done[i] ? first_logit : done[i]) : 0;
        pass->seqs[pass->n_seqs] = (struct graph_seq) {
            .seq      = inputs[i].seq,
            .first    = pass->n_tokens,
            .count    = n,
            .position = s->seqs[inputs[i].seq].length,
            .visible  = cache_steps(s->seqs[inputs[i].seq].length + n),
        };
        pass->tokens[pass->n_seqs]  = inputs[i].tokens + done[i];
        pass->outputs[pass->n_seqs] = outputs;
        of_input[pass->n_seqs]      = i;
        pass->n_seqs++;
        pass->n_tokens += n;
        pass->n_outputs += outputs;
    }
}

// Copies the logits of a pass to where each input's logits stand.
static void keep_logits(struct lrnn_session * s, const struct pass * pass, const int32_t * of_input,
        int64_t * next) {
    const size_t row = (size_t) s->model->info.n_vocab * sizeof(float);
    int64_t      n   = 0;
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        if (pass->outputs[i] > 0) {
            ggml_backend_tensor_get(s->forward.logits,
                    s->logits + next[of_input[i]] * s->model->info.n_vocab, (size_t) n * row,
                    (size_t) pass->outputs[i] * row);
            next[of_input[i]] += pass->outputs[i];
            n += pass->outputs[i];
        }
    }
}

// No logits, and none that belong to a sequence.
static void forget_logits(struct lrnn_session * s) {
    s->n_logits = 0;
    for (int32_t i = 0; i < s->params.n_seqs; ++i) {
        s->seqs[i].logits = 0;
    }
}

bool lrnn_eval(struct lrnn_session * s, const struct lrnn_input * inputs, int32_t n_inputs,
        char * err, size_t err_size) {
    forget_logits(s);
    if (!check_inputs(s, inputs, n_inputs, err, err_size)) {
        return false;
    }
    int64_t n_logits = 0;
    int64_t n_tokens = 0;
    for (int32_t i = 0; i < n_inputs; ++i) {
        n_logits += inputs[i].n_logits;
        n_tokens += inputs[i].n_tokens;
    }
    if (!reserve_logits(s, n_logits, err, err_size)) {
        return false;
    }
    struct pass pass = {
        .seqs    = calloc((size_t) n_inputs, sizeof(*pass.seqs)),
        .tokens  = calloc((size_t) n_inputs, sizeof(*pass.tokens)),
        .outputs = calloc((size_t) n_inputs, sizeof(*pass.outputs)),
    };
    int64_t * done     = calloc((size_t) n_inputs, sizeof(*done));
    int64_t * next     = calloc((size_t) n_inputs, sizeof(*next));
    int32_t * of_input = calloc((size_t) n_inputs, sizeof(*of_input));
    bool ok = pass.seqs != NULL && pass.tokens != NULL && pass.outputs != NULL && done != NULL &&
              next != NULL && of_input != NULL;
    if (!ok) {
        snprintf(err, err_size, "out of memory for a call with %d sequences", n_inputs);
    }
    for (int32_t i = 1; ok && i < n_inputs; ++i) {
        next[i] = next[i - 1] + inputs[i - 1].n_logits;
    }
    for (int64_t behind = 0; ok && behind < n_tokens; behind += pass.n_tokens) {
        next_pass(s, inputs, n_inputs, done, &pass, of_input);
        ok = run(s, &pass, err, err_size);
        if (ok) {
            keep_logits(s, &pass, of_input, next);
            for (int32_t i = 0; i < pass.n_seqs; ++i) {
                done[of_input[i]] += pass.seqs[i].count;
            }
        }
    }
    for (int32_t i = 0; ok && i < n_inputs; ++i) { // next is behind the last row of each
        s->seqs[inputs[i].seq].logits = inputs[i].n_logits > 0 ? next[i] : 0;
    }
    s->n_logits = ok ? n_logits : 0;
    free(pass.seqs);
    free(pass.tokens);
    free(pass.outputs);
    free(done);
    free(next);
    free(of_input);
    return ok;
}

const float * lrnn_logits(const struct lrnn_session * s, int64_t i) {
    return i >= 0 && i < s->n_logits ? s->logits + i * s->model->info.n_vocab : NULL;
}

//
// Sequences
//

static bool check_seq(const struct lrnn_session * s, int32_t seq, char * err, size_t err_size) {
    if (seq < 0 || seq >= s->params.n_seqs) {
        snprintf(err, err_size, "sequence %d; the session has sequences 0 to %d", seq,
                s->params.n_seqs - 1);
        return false;
    }
    return true;
}

int64_t lrnn_seq_length(const struct lrnn_session * s, int32_t seq) {
    return seq >= 0 && seq < s->params.n_seqs ? s->seqs[seq].length : -1;
}

int64_t lrnn_seq_rewindable(const struct lrnn_session * s, int32_t seq) {
    return seq >= 0 && seq < s->params.n_seqs ? s->seqs[seq].rewindable : -1;
}

// What a sequence is from now on. What it was beyond that is forgotten.
static void become(struct lrnn_session * s, int32_t seq, struct seq now) {
    memory_forget(&s->memory, s->model, seq, now.length, s->seqs[seq].length);
    s->seqs[seq] = now;
}

bool lrnn_seq_reset(struct lrnn_session * s, int32_t seq, char * err, size_t err_size) {
    if (!check_seq(s, seq, err, err_size)) {
        return false;
    }
    become(s, seq, (struct seq) { 0 });
    return true;
}

bool lrnn_seq_rewind(
        struct lrnn_session * s, int32_t seq, int64_t n_tokens, char * err, size_t err_size) {
    if (!check_seq(s, seq, err, err_size)) {
        return false;
    }
    if (n_tokens < 0 || n_tokens > s->seqs[seq].rewindable) {
        snprintf(err, err_size,
                "sequence %d cannot go back by %" PRId64 " tokens; it has %" PRId64
                " and remembers the last %" PRId64,
                seq, n_tokens, s->seqs[seq].length, s->seqs[seq].rewindable);
        return false;
    }
    if (n_tokens > 0) {
        become(s, seq,
                (struct seq) { .length = s->seqs[seq].length - n_tokens,
                        .rewindable    = s->seqs[seq].rewindable - n_tokens });
    }
    return true;
}

// One piece of a fork: `from` has been read into `data`, and goes to the same place of another
// sequence.
struct copy {
    uint8_t * data; // all pieces, one after the other
    size_t    at;
    bool      write;
};

static bool count_piece(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    (void) tensor;
    (void) offset;
    *(size_t *) user += size;
    return true;
}

static bool copy_piece(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    struct copy * copy = user;
    if (copy->write) {
        ggml_backend_tensor_set(tensor, copy->data + copy->at, offset, size);
    } else {
        ggml_backend_tensor_get(tensor, copy->data + copy->at, offset, size);
    }
    copy->at += size;
    return true;
}

bool lrnn_seq_fork(struct lrnn_session * s, int32_t from, int32_t to, char * err, size_t err_size) {
    if (!check_seq(s, from, err, err_size) || !check_seq(s, to, err, err_size)) {
        return false;
    }
    if (from == to) {
        return true;
    }
    size_t size = 1;
    session_seq_pieces(s, from, s->seqs[from].length, count_piece, &size);
    struct copy copy = { .data = malloc(size) };
    if (copy.data == NULL) {
        snprintf(err, err_size, "out of memory for a copy of sequence %d, %zu bytes", from, size);
        return false;
    }
    session_seq_pieces(s, from, s->seqs[from].length, copy_piece, &copy);
    copy.write = true;
    copy.at    = 0;
    session_seq_pieces(s, to, s->seqs[from].length, copy_piece, &copy);
    free(copy.data);
    become(s, to, (struct seq) { .length = s->seqs[from].length });
    return true;
}

//
// For the state file and the state norm
//

bool session_seq_pieces(
        struct lrnn_session * s, int32_t seq, int64_t length, session_piece visit, void * user) {
    for (int32_t il = 0; il < s->model->n_layer && length > 0; ++il) {
        const struct layer * layer = &s->model->layers[il];
        for (int32_t i = 0; i < layer->n_states; ++i) {
            struct ggml_tensor * t = s->memory.states[il][i];
            if (!visit(t, (size_t) slot_of(s, seq, length) * t->nb[1], t->nb[1], user)) {
                return false;
            }
        }
        if (layer->attention) {
            struct ggml_tensor * caches[2] = { s->memory.cache_k[il], s->memory.cache_v[il] };
            for (int i = 0; i < 2; ++i) {
                if (!visit(caches[i], (size_t) seq * caches[i]->nb[2],
                            (size_t) length * caches[i]->nb[1], user)) {
                    return false;
                }
            }
        }
    }
    return true;
}

void session_seq_set(struct lrnn_session * s, int32_t seq, int64_t length, bool has_logits) {
    become(s, seq,
            (struct seq) { .length = length, .logits = has_logits ? s->seqs[seq].logits : 0 });
}

const float * session_seq_logits(const struct lrnn_session * s, int32_t seq) {
    return s->seqs[seq].logits > 0 ? lrnn_logits(s, s->seqs[seq].logits - 1) : NULL;
}

bool session_seq_set_logits(
        struct lrnn_session * s, int32_t seq, const float * logits, char * err, size_t err_size) {
    forget_logits(s);
    if (!reserve_logits(s, 1, err, err_size)) {
        return false;
    }
    memcpy(s->logits, logits, (size_t) s->model->info.n_vocab * sizeof(float));
    s->n_logits         = 1;
    s->seqs[seq].logits = 1;
    return true;
}

struct ggml_tensor * session_seq_state(
        const struct lrnn_session * s, int32_t seq, int32_t il, size_t * offset) {
    const int64_t length = s->seqs[seq].length;
    if (length == 0 || s->model->layers[il].attention) {
        return NULL;
    }
    struct ggml_tensor * t = s->memory.states[il][0];
    *offset                = (size_t) slot_of(s, seq, length) * t->nb[1];
    return t;
}

const struct lrnn_model * session_model(const struct lrnn_session * s) {
    return s->model;
}

int32_t session_n_seqs(const struct lrnn_session * s) {
    return s->params.n_seqs;
}

int64_t session_n_cache(const struct lrnn_session * s) {
    return s->model->info.n_layer_attention > 0 ? s->params.n_cache : INT64_MAX;
}
