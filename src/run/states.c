#include "run/states.h"

#include "run/forward.h"

#include "ggml-alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t cache_steps(int64_t n) {
    return (n + CACHE_STEP - 1) / CACHE_STEP * CACHE_STEP;
}

// Headers of everything, in the contexts of their places.
static bool make_headers(struct memory * m, const struct lrnn_model * model,
        const struct memory_size * size, const int32_t (*devices)[LAYER_STATES_MAX]) {
    const size_t n_layer = (size_t) model->n_layer;
    m->states            = calloc(n_layer, sizeof(*m->states));
    m->cache_k           = calloc(n_layer, sizeof(*m->cache_k));
    m->cache_v           = calloc(n_layer, sizeof(*m->cache_v));
    bool ok              = m->states != NULL && m->cache_k != NULL && m->cache_v != NULL;
    for (int32_t i = 0; ok && i < model->n_devices; ++i) {
        m->ctx[i] = ggml_init((struct ggml_init_params) {
                .mem_size = ggml_tensor_overhead() * (n_layer * (LAYER_STATES_MAX + 2) + 1),
                .no_alloc = true,
        });
        ok        = m->ctx[i] != NULL;
    }
    for (int32_t il = 0; ok && il < model->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        for (int32_t i = 0; i < layer->n_states; ++i) {
            m->states[il][i] = ggml_new_tensor_2d(
                    m->ctx[devices[il][i]], GGML_TYPE_F32, layer->state_size[i], size->n_slots);
            ggml_format_name(m->states[il][i], "state %d.%d", il, i);
        }
        if (layer->attention) {
            struct ggml_context * ctx = m->ctx[layer->device];
            m->cache_k[il]            = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, layer->cache_size,
                               cache_steps(size->n_cache), size->n_seqs);
            m->cache_v[il]            = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, layer->cache_size,
                               cache_steps(size->n_cache), size->n_seqs);
            ggml_format_name(m->cache_k[il], "cache k %d", il);
            ggml_format_name(m->cache_v[il], "cache v %d", il);
        }
    }
    return ok;
}

void memory_free(struct memory * m) {
    for (int32_t i = 0; i < DEVICES_MAX; ++i) {
        ggml_backend_buffer_free(m->buffer[i]);
        ggml_free(m->ctx[i]);
    }
    free(m->states);
    free(m->cache_k);
    free(m->cache_v);
    *m = (struct memory) { 0 };
}

//
// Where states lie
//

// Moves to the CPU the states of scans that their device says it cannot compute, for a graph of
// n_tokens. The graph is only looked at.
static bool probe(const struct memory * m, const struct lrnn_model * model, int64_t n_tokens,
        int32_t (*devices)[LAYER_STATES_MAX], char * err, size_t err_size) {
    const struct graph_seq    seq  = { .count = n_tokens, .visible = cache_steps(n_tokens) };
    const struct forward_call call = { .seqs = &seq, .n_seqs = 1, .n_tokens = n_tokens };
    struct forward            f    = { 0 };
    const bool                ok   = forward_build(&f, model, m, &call, err, err_size);
    for (int i = 0; ok && i < ggml_graph_n_nodes(f.graph); ++i) {
        const struct ggml_tensor * node = ggml_graph_node(f.graph, i);
        for (int32_t il = 0; ggml_is_scan(node) && il < model->n_layer; ++il) {
            for (int32_t j = 0; j < model->layers[il].n_states; ++j) {
                if (m->states[il][j] == node->src[0] &&
                        !ggml_backend_dev_supports_op(model->devices[devices[il][j]].dev, node)) {
                    devices[il][j] = 0;
                }
            }
        }
    }
    forward_free(&f);
    return ok;
}

static void log_moved(const struct lrnn_model * model, const int32_t (*devices)[LAYER_STATES_MAX]) {
    int64_t n = 0;
    for (int32_t il = 0; il < model->n_layer; ++il) {
        n += !model->layers[il].attention && model->layers[il].device != devices[il][0];
    }
    if (n > 0 && model->log != NULL) {
        char text[128];
        snprintf(text, sizeof(text),
                "the recurrences of %" PRId64
                " layers are computed on the CPU: their devices cannot",
                n);
        model->log(LRNN_LOG_WARNING, text, model->log_user);
    }
}

static bool choose_devices(const struct lrnn_model * model, const struct memory_size * size,
        int32_t (*devices)[LAYER_STATES_MAX], char * err, size_t err_size) {
    for (int32_t il = 0; il < model->n_layer; ++il) {
        for (int32_t i = 0; i < LAYER_STATES_MAX; ++i) {
            devices[il][i] = model->layers[il].device;
        }
    }
    if (model->n_devices == 1) {
        return true;
    }
    struct memory m  = { 0 };
    bool          ok = make_headers(&m, model, size, (const int32_t (*)[LAYER_STATES_MAX]) devices);
    if (!ok) {
        snprintf(err, err_size, "out of memory for the headers of states");
    }
    const int64_t n_most = model->info.n_layer_attention > 0 && size->n_cache < size->n_batch
                                   ? size->n_cache
                                   : size->n_batch;
    ok                   = ok && probe(&m, model, 1, devices, err, err_size) &&
         probe(&m, model, n_most, devices, err, err_size);
    memory_free(&m);
    if (ok) {
        log_moved(model, (const int32_t (*)[LAYER_STATES_MAX]) devices);
    }
    return ok;
}

bool memory_make(struct memory * m, const struct lrnn_model * model,
        const struct memory_size * size, char * err, size_t err_size) {
    *m                                   = (struct memory) { 0 };
    int32_t (*devices)[LAYER_STATES_MAX] = calloc((size_t) model->n_layer, sizeof(*devices));
    bool ok = devices != NULL && choose_devices(model, size, devices, err, err_size);
    if (devices == NULL ||
            (ok && !make_headers(m, model, size, (const int32_t (*)[LAYER_STATES_MAX]) devices))) {
        snprintf(err, err_size, "out of memory for the headers of states");
        ok = false;
    }
    for (int32_t i = 0; ok && i < model->n_devices; ++i) {
        if (ggml_get_first_tensor(m->ctx[i]) == NULL) {
            continue;
        }
        ggml_backend_dev_t dev = model->devices[i].dev;
        m->buffer[i]           = ggml_backend_alloc_ctx_tensors_from_buft(
                m->ctx[i], ggml_backend_dev_buffer_type(dev));
        if (m->buffer[i] == NULL) {
            snprintf(err, err_size,
                    "%s has no memory for the states of %" PRId64 " sequences: %" PRId64
                    " slots of %" PRId64 " bytes, and %" PRId64 " tokens of cache of %" PRId64
                    " bytes for each sequence",
                    ggml_backend_dev_name(dev), size->n_seqs, size->n_slots,
                    model->info.state_bytes, size->n_cache, model->info.cache_bytes);
            ok = false;
        } else {
            ggml_backend_buffer_clear(m->buffer[i], 0);
        }
    }
    free(devices);
    if (!ok) {
        memory_free(m);
    }
    return ok;
}

void memory_forget(
        struct memory * m, const struct lrnn_model * model, int32_t seq, int64_t from, int64_t to) {
    static const uint8_t zeros[1 << 16];
    for (int32_t il = 0; il < model->n_layer && from < to; ++il) {
        struct ggml_tensor * caches[2] = { m->cache_k[il], m->cache_v[il] };
        for (int i = 0; i < 2 && caches[i] != NULL; ++i) {
            const size_t begin = (size_t) seq * caches[i]->nb[2] + (size_t) from * caches[i]->nb[1];
            const size_t size  = (size_t) (to - from) * caches[i]->nb[1];
            for (size_t at = 0; at < size; at += sizeof(zeros)) { // not every backend has a memset
                ggml_backend_tensor_set(caches[i], zeros, begin + at,
                        size - at < sizeof(zeros) ? size - at : sizeof(zeros));
            }
        }
    }
}
