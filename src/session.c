// A session: the states of its sequences, and the graph that advances them.
//
// Every state of every recurrent layer is one tensor [floats, slots]. A sequence has n_rewind + 1 slots, used as a ring: its state after p tokens
// lies in slot p mod (n_rewind + 1). Advancing reads one slot and writes others, and going back is forgetting the last tokens: nothing
// is copied. A sequence of no tokens has the zero state, which no slot needs to hold.

#include "session.h"

#include "graph-safety.h"
#include "graph.h"
#include "models/models.h"

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
    int64_t logits;     // 1 + the row of the session's logits that belongs to its last token, 0: none
};

struct inputs { // leafs of the graph that the session fills
    struct ggml_tensor * tokens;    // I32 [T]
    struct ggml_tensor * positions; // I32 [T]
    struct ggml_tensor * ids;       // I32 [4 + n_rewind, sequences]
    struct ggml_tensor * out_ids;   // I32 [outputs]
};

struct lrnn_session {
    struct lrnn_model *        model;
    struct lrnn_session_params params;

    ggml_backend_t             backend;
    ggml_backend_sched_t       sched;
    size_t                     graph_size;   // nodes

    struct ggml_context *      ctx;          // headers of states and caches
    ggml_backend_buffer_t      buffer;
    struct ggml_tensor *    (* states)[LAYER_STATES_MAX]; // [n_layer]
    struct ggml_tensor **      cache_k;      // [n_layer], NULL for recurrent layers
    struct ggml_tensor **      cache_v;
    struct seq *               seqs;

    struct ggml_context *      graph_ctx;    // of the graph that is allocated, NULL: none
    struct ggml_cgraph *       graph;
    struct inputs              inputs;
    struct ggml_tensor *       logits_out;   // [V, outputs], NULL: none
    struct ggml_tensor **      masks;        // [sequences of the call]
    int64_t                    window;
    int64_t                    graph_tokens, graph_seqs, graph_outputs;

    float *                    logits;
    int64_t                    n_logits;
    int64_t                    cap_logits;
};

//
// Making one
//

static int64_t ring(const struct lrnn_session * s) {
    return s->params.n_rewind + 1;
}

static bool make_states(struct lrnn_session * s, char * err, size_t err_size) {
    const struct lrnn_model * model = s->model;

    s->ctx     = ggml_init((struct ggml_init_params) {
        .mem_size = ggml_tensor_overhead()*(size_t) (model->n_layer*(LAYER_STATES_MAX + 2) + 1),
        .no_alloc = true,
    });
    s->states  = calloc((size_t) model->n_layer, sizeof(*s->states));
    s->cache_k = calloc((size_t) model->n_layer, sizeof(*s->cache_k));
    s->cache_v = calloc((size_t) model->n_layer, sizeof(*s->cache_v));
    s->seqs    = calloc((size_t) s->params.n_seqs, sizeof(*s->seqs));
    s->masks   = calloc((size_t) s->params.n_seqs, sizeof(*s->masks));
    if (s->ctx == NULL || s->states == NULL || s->cache_k == NULL || s->cache_v == NULL || s->seqs == NULL || s->masks == NULL) {
        snprintf(err, err_size, "out of memory for a session of %d sequences", s->params.n_seqs);
        return false;
    }
    for (int32_t il = 0; il < model->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        for (int32_t i = 0; i < layer->n_states; ++i) {
            s->states[il][i] = ggml_new_tensor_2d(s->ctx, GGML_TYPE_F32, layer->state_size[i], s->params.n_seqs*ring(s));
            ggml_format_name(s->states[il][i], "state %d.%d", il, i);
        }
        if (layer->attention) {
            s->cache_k[il] = ggml_new_tensor_3d(s->ctx, GGML_TYPE_F32, layer->cache_size, s->params.n_cache, s->params.n_seqs);
            s->cache_v[il] = ggml_new_tensor_3d(s->ctx, GGML_TYPE_F32, layer->cache_size, s->params.n_cache, s->params.n_seqs);
        }
    }
    s->buffer = ggml_backend_alloc_ctx_tensors(s->ctx, s->backend);
    if (s->buffer == NULL) {
        snprintf(err, err_size, "out of memory for the states of %d sequences: %" PRId64 " bytes each, %" PRId64 " for each token that can be rewound",
                s->params.n_seqs, model->info.state_bytes*ring(s) + model->info.cache_bytes*s->params.n_cache, model->info.state_bytes);
        return false;
    }
    ggml_backend_buffer_clear(s->buffer, 0);
    return true;
}

static bool check_params(struct lrnn_session_params * p, char * err, size_t err_size) {
    if (p->n_threads < 0 || p->n_threads > 4096 || p->n_seqs < 0 || p->n_rewind < 0 || p->n_batch < 0 || p->n_cache < 0 ||
            p->n_rewind > 1 << 20 || p->n_seqs > 1 << 20) {
        snprintf(err, err_size, "session of %d threads, %d sequences, %d tokens to rewind, %d in a batch, %d in the cache; expected none negative or absurd",
                p->n_threads, p->n_seqs, p->n_rewind, p->n_batch, p->n_cache);
        return false;
    }
    if (p->n_threads == 0) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        p->n_threads = cores > 0 && cores < 4096 ? (int32_t) cores : 1;
    }
    p->n_seqs  = p->n_seqs  == 0 ? 1    : p->n_seqs;
    p->n_batch = p->n_batch == 0 ? 512  : p->n_batch;
    p->n_cache = p->n_cache == 0 ? 4096 : p->n_cache;
    return true;
}

struct lrnn_session * lrnn_session_new(struct lrnn_model * model, const struct lrnn_session_params * params, char * err, size_t err_size) {
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
    // no family builds more than this; an attention layer builds its part for every sequence
    s->graph_size = (size_t) (256 + model->n_layer*160 + model->info.n_layer_attention*s->params.n_seqs*24);
    s->backend    = ggml_backend_cpu_init();
    s->sched      = s->backend != NULL ? ggml_backend_sched_new(&s->backend, NULL, 1, 2*s->graph_size, false, false) : NULL;
    if (s->sched == NULL) {
        snprintf(err, err_size, "the CPU backend cannot be started");
        lrnn_session_free(s);
        return NULL;
    }
    ggml_backend_cpu_set_n_threads(s->backend, s->params.n_threads);
    if (!make_states(s, err, err_size)) {
        lrnn_session_free(s);
        return NULL;
    }
    return s;
}

void lrnn_session_free(struct lrnn_session * s) {
    if (s == NULL) {
        return;
    }
    ggml_free(s->graph_ctx);
    ggml_backend_sched_free(s->sched);
    ggml_backend_buffer_free(s->buffer);
    ggml_free(s->ctx);
    ggml_backend_free(s->backend);
    free(s->states);
    free(s->cache_k);
    free(s->cache_v);
    free(s->seqs);
    free(s->masks);
    free(s->logits);
    free(s);
}

//
// The graph of a call
//

// One pass: at most n_batch tokens of some sequences.
struct pass {
    struct graph_seq * seqs;     // [n_seqs of the session]
    const int32_t **   tokens;   // of each
    int64_t *          outputs;  // of each: logits of its last so many tokens
    int32_t            n_seqs;
    int64_t            n_tokens, n_outputs;
};

static struct ggml_tensor * input(struct ggml_context * ctx, int64_t ne0, int64_t ne1) {
    struct ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, ne0, ne1);
    ggml_set_input(t);
    return t;
}

static bool build(struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    const struct lrnn_model * model = s->model;

    ggml_free(s->graph_ctx);
    s->graph_ctx = ggml_init((struct ggml_init_params) {
        .mem_size = ggml_tensor_overhead()*2*s->graph_size + ggml_graph_overhead_custom(s->graph_size, false),
        .no_alloc = true,
    });
    if (s->graph_ctx == NULL) {
        snprintf(err, err_size, "out of memory for a graph of %zu nodes", s->graph_size);
        return false;
    }
    struct ggml_context * c = s->graph_ctx;
    s->graph  = ggml_new_graph_custom(c, s->graph_size, false);
    s->inputs = (struct inputs) {
        .tokens    = input(c, pass->n_tokens, 1),
        .positions = input(c, pass->n_tokens, 1),
        .ids       = input(c, GGML_SCAN_SNAPS + s->params.n_rewind, pass->n_seqs),
        .out_ids   = pass->n_outputs > 0 ? input(c, pass->n_outputs, 1) : NULL,
    };
    memset(s->masks, 0, (size_t) s->params.n_seqs*sizeof(*s->masks));

    struct graph g = {
        .ctx       = c,
        .gf        = s->graph,
        .model     = model,
        .n_tokens  = pass->n_tokens,
        .ids       = s->inputs.ids,
        .positions = s->inputs.positions,
        .seqs      = pass->seqs,
        .n_seqs    = pass->n_seqs,
        .path      = s->params.exact_cuts ? GGML_SCAN_PATH_STEP : GGML_SCAN_PATH_AUTO,
        .masks     = s->masks,
        .err       = err,
        .err_size  = err_size,
    };

    struct ggml_tensor * x = ggml_get_rows(c, model->token_embd, s->inputs.tokens); // [D, T]
    if (model->embd_norm != NULL) {
        x = graph_layer_norm(&g, x, model->embd_norm, model->embd_norm_b, model->norm_eps);
    }
    for (int32_t il = 0; il < model->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        g.states  = s->states[il];
        g.cache_k = s->cache_k[il];
        g.cache_v = s->cache_v[il];
        x = layer->attention ? attention_block(&g, layer, x) : model->family->block(&g, layer, x);
    }
    s->window     = g.window;
    s->logits_out = NULL;
    if (pass->n_outputs > 0) {
        x = ggml_get_rows(c, x, s->inputs.out_ids); // [D, outputs]
        if (model->final_norm) {
            x = model->output_norm_b != NULL ? graph_layer_norm(&g, x, model->output_norm, model->output_norm_b, model->norm_eps)
                                             : graph_rms_norm(&g, x, model->output_norm, model->norm_eps);
        }
        x = graph_soft_cap(&g, ggml_mul_mat(c, model->output, x), model->logit_soft_cap); // [V, outputs]
        s->logits_out = x;
    }
    ggml_set_output(x);
    ggml_build_forward_expand(s->graph, x);
    return !g.failed && lrnn_graph_alloc(s->sched, s->graph, err, err_size);
}

// A graph can serve again where everything that varies is data: not with attention, whose shapes follow the positions.
static bool can_reuse(const struct lrnn_session * s, const struct pass * pass) {
    return s->graph_ctx != NULL && s->model->info.n_layer_attention == 0 && s->graph_tokens == pass->n_tokens &&
           s->graph_seqs == pass->n_seqs && s->graph_outputs == pass->n_outputs;
}

//
// Filling it
//

static int64_t slot_of(const struct lrnn_session * s, int32_t seq, int64_t position) {
    return seq*ring(s) + position % ring(s);
}

static void fill_ids(const struct lrnn_session * s, const struct pass * pass, int32_t * ids) {
    const int64_t stride = GGML_SCAN_SNAPS + s->params.n_rewind;
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        const struct graph_seq * q   = &pass->seqs[i];
        int32_t *                id  = ids + i*stride;
        const int64_t            end = q->position + q->count;
        id[GGML_SCAN_SLOT_IN]  = q->position == 0 ? -1 : (int32_t) slot_of(s, q->seq, q->position);
        id[GGML_SCAN_SLOT_OUT] = (int32_t) slot_of(s, q->seq, end);
        id[GGML_SCAN_FIRST]    = (int32_t) q->first;
        id[GGML_SCAN_COUNT]    = (int32_t) q->count;
        for (int64_t back = 1; back <= s->params.n_rewind; ++back) { // the state before the call is where it belongs already
            id[GGML_SCAN_SNAPS + back - 1] = back < q->count ? (int32_t) slot_of(s, q->seq, end - back) : -1;
        }
    }
}

static void fill_mask(struct ggml_tensor * mask, const struct graph_seq * q, int64_t window, float * data) {
    const int64_t all = mask->ne[0];
    for (int64_t t = 0; t < q->count; ++t) {
        const int64_t now = q->position + t;
        for (int64_t j = 0; j < all; ++j) {
            data[t*all + j] = j > now || (window > 0 && j <= now - window) ? -INFINITY : 0.0f;
        }
    }
    ggml_backend_tensor_set(mask, data, 0, ggml_nbytes(mask));
}

// A leaf that no node reads is not allocated: positions without RoPE, ids without recurrent layers.
static void set_input(struct ggml_tensor * t, const int32_t * data) {
    if (t->buffer != NULL) {
        ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    }
}

static bool fill(struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    const int64_t stride  = GGML_SCAN_SNAPS + s->params.n_rewind;
    size_t        scratch = (size_t) (pass->n_tokens + stride*pass->n_seqs)*sizeof(int32_t);
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        if (s->masks[i] != NULL && ggml_nbytes(s->masks[i]) > scratch) {
            scratch = ggml_nbytes(s->masks[i]);
        }
    }
    int32_t * data = malloc(scratch);
    if (data == NULL) {
        snprintf(err, err_size, "out of memory for %zu bytes of input", scratch);
        return false;
    }
    fill_ids(s, pass, data);
    bool ok = ggml_scan_ids_check(data, s->params.n_rewind, pass->n_seqs, s->params.n_seqs*ring(s), pass->n_tokens, err, err_size);
    if (ok) {
        set_input(s->inputs.ids, data);
        for (int32_t i = 0; i < pass->n_seqs; ++i) {
            memcpy(data + pass->seqs[i].first, pass->tokens[i], (size_t) pass->seqs[i].count*sizeof(int32_t));
        }
        set_input(s->inputs.tokens, data);
        for (int32_t i = 0; i < pass->n_seqs; ++i) {
            for (int64_t t = 0; t < pass->seqs[i].count; ++t) {
                data[pass->seqs[i].first + t] = (int32_t) (pass->seqs[i].position + t);
            }
        }
        set_input(s->inputs.positions, data);
        if (s->inputs.out_ids != NULL) {
            int64_t n = 0;
            for (int32_t i = 0; i < pass->n_seqs; ++i) {
                for (int64_t t = pass->seqs[i].count - pass->outputs[i]; t < pass->seqs[i].count; ++t) {
                    data[n++] = (int32_t) (pass->seqs[i].first + t);
                }
            }
            set_input(s->inputs.out_ids, data);
        }
        for (int32_t i = 0; i < pass->n_seqs; ++i) {
            if (s->masks[i] != NULL) {
                fill_mask(s->masks[i], &pass->seqs[i], s->window, (float *) data);
            }
        }
    }
    free(data);
    return ok;
}

static bool run(struct lrnn_session * s, const struct pass * pass, char * err, size_t err_size) {
    if (!can_reuse(s, pass)) {
        s->graph_tokens = -1; // nothing to reuse if building fails half way
        if (!build(s, pass, err, err_size)) {
            return false;
        }
        s->graph_tokens  = pass->n_tokens;
        s->graph_seqs    = pass->n_seqs;
        s->graph_outputs = pass->n_outputs;
    }
    if (!fill(s, pass, err, err_size)) {
        return false;
    }
    if (ggml_backend_sched_graph_compute(s->sched, s->graph) != GGML_STATUS_SUCCESS) {
        snprintf(err, err_size, "the graph could not be computed");
        return false;
    }
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        struct seq * q = &s->seqs[pass->seqs[i].seq];
        q->length     += pass->seqs[i].count;
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

static bool check_inputs(struct lrnn_session * s, const struct lrnn_input * inputs, int32_t n_inputs, char * err, size_t err_size) {
    if (n_inputs < 1 || n_inputs > s->params.n_seqs) {
        snprintf(err, err_size, "%d sequences to advance; expected 1 to %d, the sequences of the session", n_inputs, s->params.n_seqs);
        return false;
    }
    for (int32_t i = 0; i < n_inputs; ++i) {
        const struct lrnn_input * in = &inputs[i];
        if (in->seq < 0 || in->seq >= s->params.n_seqs) {
            snprintf(err, err_size, "sequence %d; the session has sequences 0 to %d", in->seq, s->params.n_seqs - 1);
            return false;
        }
        for (int32_t j = 0; j < i; ++j) {
            if (inputs[j].seq == in->seq) {
                snprintf(err, err_size, "sequence %d is named twice in one call", in->seq);
                return false;
            }
        }
        if (in->n_tokens < 1 || in->n_logits < 0 || in->n_logits > in->n_tokens) {
            snprintf(err, err_size, "sequence %d: %" PRId64 " tokens and logits of %" PRId64 "; expected at least one token and not more logits",
                    in->seq, in->n_tokens, in->n_logits);
            return false;
        }
        for (int64_t t = 0; t < in->n_tokens; ++t) {
            if (in->tokens[t] < 0 || in->tokens[t] >= s->model->info.n_vocab) {
                snprintf(err, err_size, "sequence %d: token %" PRId64 " has id %d; the vocabulary has %" PRId64 " ids",
                        in->seq, t, in->tokens[t], s->model->info.n_vocab);
                return false;
            }
        }
        if (s->model->info.n_layer_attention > 0 && in->n_tokens > s->params.n_cache - s->seqs[in->seq].length) {
            snprintf(err, err_size, "sequence %d would have %" PRId64 " tokens; its attention layers can remember %d",
                    in->seq, s->seqs[in->seq].length + in->n_tokens, s->params.n_cache);
            return false;
        }
        if (s->seqs[in->seq].length > INT32_MAX - in->n_tokens && s->model->info.n_layer_attention > 0) {
            snprintf(err, err_size, "sequence %d is too long for positions of 32 bits", in->seq);
            return false;
        }
    }
    return true;
}

static bool reserve_logits(struct lrnn_session * s, int64_t n, char * err, size_t err_size) {
    if (n > s->cap_logits) {
        float * logits = realloc(s->logits, (size_t) n*(size_t) s->model->info.n_vocab*sizeof(float));
        if (logits == NULL) {
            snprintf(err, err_size, "out of memory for logits of %" PRId64 " tokens; ask for fewer in a call", n);
            return false;
        }
        s->logits     = logits;
        s->cap_logits = n;
    }
    return true;
}

// The next tokens of the inputs, as many as fit a batch. `done` counts what each has behind it.
static void next_pass(const struct lrnn_session * s, const struct lrnn_input * inputs, int32_t n_inputs, const int64_t * done, struct pass * pass,
        int32_t * of_input) {
    pass->n_seqs = 0;
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
        const int64_t outputs     = end > first_logit ? end - (first_logit > done[i] ? first_logit : done[i]) : 0;
        pass->seqs[pass->n_seqs] = (struct graph_seq) {
            .seq = inputs[i].seq, .first = pass->n_tokens, .count = n, .position = s->seqs[inputs[i].seq].length,
        };
        pass->tokens  [pass->n_seqs] = inputs[i].tokens + done[i];
        pass->outputs [pass->n_seqs] = outputs;
        of_input      [pass->n_seqs] = i;
        pass->n_seqs++;
        pass->n_tokens  += n;
        pass->n_outputs += outputs;
    }
}

// Copies the logits of a pass to where each input's logits stand.
static void keep_logits(struct lrnn_session * s, const struct pass * pass, const int32_t * of_input, int64_t * next) {
    const size_t row = (size_t) s->model->info.n_vocab*sizeof(float);
    int64_t      n   = 0;
    for (int32_t i = 0; i < pass->n_seqs; ++i) {
        if (pass->outputs[i] > 0) {
            ggml_backend_tensor_get(s->logits_out, s->logits + next[of_input[i]]*s->model->info.n_vocab,
                    (size_t) n*row, (size_t) pass->outputs[i]*row);
            next[of_input[i]] += pass->outputs[i];
            n                 += pass->outputs[i];
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

bool lrnn_eval(struct lrnn_session * s, const struct lrnn_input * inputs, int32_t n_inputs, char * err, size_t err_size) {
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
    bool      ok       = pass.seqs != NULL && pass.tokens != NULL && pass.outputs != NULL && done != NULL && next != NULL && of_input != NULL;
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
    return i >= 0 && i < s->n_logits ? s->logits + i*s->model->info.n_vocab : NULL;
}

//
// Sequences
//

static bool check_seq(const struct lrnn_session * s, int32_t seq, char * err, size_t err_size) {
    if (seq < 0 || seq >= s->params.n_seqs) {
        snprintf(err, err_size, "sequence %d; the session has sequences 0 to %d", seq, s->params.n_seqs - 1);
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

bool lrnn_seq_reset(struct lrnn_session * s, int32_t seq, char * err, size_t err_size) {
    if (!check_seq(s, seq, err, err_size)) {
        return false;
    }
    s->seqs[seq] = (struct seq) { 0 };
    return true;
}

bool lrnn_seq_rewind(struct lrnn_session * s, int32_t seq, int64_t n_tokens, char * err, size_t err_size) {
    if (!check_seq(s, seq, err, err_size)) {
        return false;
    }
    if (n_tokens < 0 || n_tokens > s->seqs[seq].rewindable) {
        snprintf(err, err_size, "sequence %d cannot go back by %" PRId64 " tokens; it has %" PRId64 " and remembers the last %" PRId64,
                seq, n_tokens, s->seqs[seq].length, s->seqs[seq].rewindable);
        return false;
    }
    s->seqs[seq].length     -= n_tokens;
    s->seqs[seq].rewindable -= n_tokens;
    s->seqs[seq].logits      = n_tokens > 0 ? 0 : s->seqs[seq].logits;
    return true;
}

// One piece of a fork: `from` has been read into `data`, and goes to the same place of another sequence.
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
    s->seqs[to] = (struct seq) { .length = s->seqs[from].length };
    return true;
}

//
// For the state file
//

bool session_seq_pieces(struct lrnn_session * s, int32_t seq, int64_t length, session_piece visit, void * user) {
    for (int32_t il = 0; il < s->model->n_layer && length > 0; ++il) {
        const struct layer * layer = &s->model->layers[il];
        for (int32_t i = 0; i < layer->n_states; ++i) {
            struct ggml_tensor * t = s->states[il][i];
            if (!visit(t, (size_t) slot_of(s, seq, length)*t->nb[1], t->nb[1], user)) {
                return false;
            }
        }
        if (layer->attention) {
            struct ggml_tensor * caches[2] = { s->cache_k[il], s->cache_v[il] };
            for (int i = 0; i < 2; ++i) {
                if (!visit(caches[i], (size_t) seq*caches[i]->nb[2], (size_t) length*caches[i]->nb[1], user)) {
                    return false;
                }
            }
        }
    }
    return true;
}

void session_seq_set(struct lrnn_session * s, int32_t seq, int64_t length) {
    s->seqs[seq] = (struct seq) { .length = length, .logits = s->seqs[seq].logits };
}

const float * session_seq_logits(const struct lrnn_session * s, int32_t seq) {
    return s->seqs[seq].logits > 0 ? lrnn_logits(s, s->seqs[seq].logits - 1) : NULL;
}

bool session_seq_set_logits(struct lrnn_session * s, int32_t seq, const float * logits, char * err, size_t err_size) {
    forget_logits(s);
    if (!reserve_logits(s, 1, err, err_size)) {
        return false;
    }
    memcpy(s->logits, logits, (size_t) s->model->info.n_vocab*sizeof(float));
    s->n_logits         = 1;
    s->seqs[seq].logits = 1;
    return true;
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
