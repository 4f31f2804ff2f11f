// Sessions: parameters, backends, memory.

#include "base/error.h"
#include "model/context.h"
#include "run/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

// ---- Parameters ---------------------------------------------------------------------------------

static bool check_param(const char * name, int32_t value, int32_t max, struct lrnn_error * err) {
    return (value >= 0 && value <= max) ||
           error_bad_input(err, "%s is %d; expected 0 to %d", name, value, max);
}

static bool check_params(const struct lrnn_session_params * p, struct lrnn_error * err) {
    return check_param("n_threads", p->n_threads, 4096, err) &&
           check_param("n_seqs", p->n_seqs, 1 << 20, err) &&
           check_param("n_rewind", p->n_rewind, 1 << 20, err) &&
           check_param("n_batch", p->n_batch, INT32_MAX, err) &&
           check_param("n_cache", p->n_cache, INT32_MAX, err);
}

static void set_defaults(struct lrnn_session_params * p) {
    if (p->n_threads == 0) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        p->n_threads = cores > 0 && cores < 4096 ? (int32_t) cores : 1;
    }
    p->n_seqs = p->n_seqs == 0 ? 1 : p->n_seqs;
    p->n_batch = p->n_batch == 0 ? 512 : p->n_batch;
    p->n_cache = p->n_cache == 0 ? 4096 : p->n_cache;
}

static bool check_draft_block(const struct lrnn_model * model,
        const struct lrnn_session_params * params, struct lrnn_error * err) {
    return !params->draft_block || model->draft != NULL ||
           error_bad_input(err, "the model has no draft block (multi-token prediction)");
}

// A head must be a whole number of blocks.
static bool check_cache_type(const struct lrnn_model * model,
        const struct lrnn_session_params * params, struct lrnn_error * err) {
    const enum lrnn_cache_type cache_type = params->cache_type;
    if (cache_type < LRNN_CACHE_F16 || cache_type > LRNN_CACHE_Q8_0) {
        return error_bad_input(err, "cache_type is %d; expected %d to %d", (int) cache_type,
                LRNN_CACHE_F16, LRNN_CACHE_Q8_0);
    }
    const enum ggml_type type = cache_ggml_type(cache_type);
    for (int32_t il = 0; il < model->n_layer + params->draft_block; ++il) {
        if (model->layers[il].cache_head % ggml_blck_size(type) != 0) {
            return error_bad_input(err,
                    "an attention cache in %s needs heads of a multiple of %" PRId64
                    " values; those of layer %d have %" PRId64,
                    ggml_type_name(type), ggml_blck_size(type), il, model->layers[il].cache_head);
        }
    }
    return true;
}

static bool check_state_type(enum lrnn_state_type type, struct lrnn_error * err) {
    return (type >= LRNN_STATE_F32 && type <= LRNN_STATE_Q8_0) ||
           error_bad_input(err, "state_type is %d; expected %d to %d", (int) type, LRNN_STATE_F32,
                   LRNN_STATE_Q8_0);
}

// ---- Parts --------------------------------------------------------------------------------------

// The weights that a token is multiplied with: all but the embedding, which is a table.
static double count_work(const struct lrnn_model * model) {
    struct lrnn_tensor_info t;
    double                  n = 0.0;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        n += (double) (t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]);
    }
    const bool tied = model->output == model->token_embd;
    return tied ? n : n - (double) ggml_nelements(model->token_embd);
}

// The bytes of a scheduler for this many nodes. ggml aborts if they cannot be allocated, so the
// caller checks that first.
static size_t scheduler_size(size_t n_nodes) {
    const size_t n_copies = n_nodes * LRNN_SCHED_SPLIT_INPUTS * 2;
    return n_copies * (sizeof(struct ggml_tensor) + 4 * sizeof(int)) +
           2 * ggml_graph_overhead_custom(n_nodes, false) + (1 << 20);
}

// One backend per device. The CPU comes last: it computes what no other backend can.
static bool make_backends(struct lrnn_session * s, struct lrnn_error * err) {
    const struct lrnn_model * model = s->model;
    for (int32_t i = 0; i < model->n_devices; ++i) {
        const int32_t      at = i + 1 < model->n_devices ? i + 1 : 0;
        ggml_backend_dev_t dev = model->devices[at].dev;
        ggml_backend_t     backend = ggml_backend_dev_init(dev, NULL);
        if (backend == NULL) {
            return error_set(err, LRNN_ERROR_DEVICE, "device %s cannot be started",
                    ggml_backend_dev_name(dev));
        }
        s->backends[s->n_backends++] = backend;
    }
    return true;
}

// A scheduler over the backends, and what belongs to its graph.
// - work: weights that a token is multiplied with
static bool make_pass(
        struct lrnn_session * s, struct pass * pass, double work, struct lrnn_error * err) {
    const bool   draft = pass == &s->draft;
    const size_t n_nodes = 2 * forward_max_nodes(s->model, s->params.n_seqs, draft);
    if (!memory_is_available(scheduler_size(n_nodes))) {
        return error_no_memory(err, "a scheduler of %zu bytes", scheduler_size(n_nodes));
    }
    pass->threads.n_max = s->params.n_threads;
    pass->threads.work_per_token = work;
    pass->built.seqs = calloc((size_t) s->params.n_seqs, sizeof(*pass->built.seqs));
    pass->sched = ggml_backend_sched_new(s->backends, NULL, s->n_backends, n_nodes, false, false);
    return (pass->sched != NULL && pass->built.seqs != NULL) ||
           error_no_memory(err, "a scheduler of %d backends", s->n_backends);
}

static void free_pass(struct pass * pass) {
    forward_free(&pass->forward);
    ggml_backend_sched_free(pass->sched);
    free(pass->built.seqs);
}

static bool make_trace(struct lrnn_session * s, struct lrnn_error * err) {
    if (s->params.trace == NULL || s->params.trace_kinds == 0) {
        return true;
    }
    s->trace = trace_new(&s->params);
    if (s->trace == NULL) {
        return error_no_memory(err, "a trace");
    }
    ggml_backend_sched_set_eval_callback(s->main.sched, trace_node, s->trace);
    return true;
}

static bool make_states(struct lrnn_session * s, struct lrnn_error * err) {
    const struct states_size size = {
        .n_seqs = s->params.n_seqs,
        .n_rewind = s->params.n_rewind,
        .n_cache = s->params.n_cache,
        .cache_format = cache_ggml_type(s->params.cache_type),
        .draft_block = s->params.draft_block,
    };
    int32_t (*devices)[LAYER_PLACES] = calloc((size_t) s->model->n_layer + 1, sizeof(*devices));
    bool ok = devices != NULL;
    if (!ok) {
        error_no_memory(err, "the placement of states");
    }
    ok = ok && placement_of_states(s->model, &size, s->params.n_batch, devices, err);
    if (ok && !states_declare(
                      &s->states, s->model, &size, (const int32_t (*)[LAYER_PLACES]) devices)) {
        ok = error_no_memory(err, "the tensors of the states");
    }
    free(devices);
    return ok && states_alloc(&s->states, s->model, err);
}

static bool make_seqs(struct lrnn_session * s, struct lrnn_error * err) {
    s->seqs = calloc((size_t) s->params.n_seqs, sizeof(*s->seqs));
    return s->seqs != NULL || error_no_memory(err, "%d sequences", s->params.n_seqs);
}

struct lrnn_session * lrnn_session_new(struct lrnn_model * model,
        const struct lrnn_session_params * params, struct lrnn_error * err) {
    struct lrnn_session * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        error_no_memory(err, "a session");
        return NULL;
    }
    s->model = model;
    if (params != NULL) {
        s->params = *params;
    }
    bool ok = check_params(&s->params, err) && check_draft_block(model, &s->params, err) &&
              check_cache_type(model, &s->params, err) &&
              check_state_type(s->params.state_type, err);
    if (ok) {
        set_defaults(&s->params);
        ok = make_backends(s, err) && make_pass(s, &s->main, count_work(model), err) &&
             make_trace(s, err) && make_seqs(s, err) && make_states(s, err);
    }
    if (ok && s->params.draft_block) { // of its weights, the output has the most
        ok = make_pass(s, &s->draft, (double) ggml_nelements(model->draft->output), err);
    }
    if (!ok) {
        lrnn_session_free(s);
        return NULL;
    }
    return s;
}

void lrnn_session_free(struct lrnn_session * s) {
    if (s == NULL) {
        return;
    }
    free_pass(&s->main);
    free_pass(&s->draft);
    states_free(&s->states);
    for (int i = 0; i < s->n_backends; ++i) {
        ggml_backend_free(s->backends[i]);
    }
    trace_free(s->trace);
    free(s->seqs);
    free(s->logits);
    free(s);
}

int64_t session_max_length(const struct lrnn_session * s) {
    const bool has_cache = s->model->info.n_layer_attention > 0 || s->params.draft_block;
    return has_cache ? s->params.n_cache : INT64_MAX;
}
