#include "run/states.h"

#include "base/error.h"
#include "file/huge-pages.h"
#include "lrnn.h"
#include "model/context.h"

#include "ggml-alloc.h"

#include <inttypes.h>
#include <stdlib.h>

enum ggml_type cache_ggml_type(enum lrnn_cache_type type) {
    switch (type) {
        case LRNN_CACHE_F32: return GGML_TYPE_F32;
        case LRNN_CACHE_Q8_0: return GGML_TYPE_Q8_0;
        default: return GGML_TYPE_F16;
    }
}

const char * lrnn_cache_type_name(enum lrnn_cache_type type) {
    return ggml_type_name(cache_ggml_type(type));
}

int64_t cache_round_up(int64_t n) {
    return (n + CACHE_STEP - 1) / CACHE_STEP * CACHE_STEP;
}

static int64_t ring(const struct states * s) {
    return s->size.n_rewind + 1;
}

static struct ggml_tensor * declare_cache(const struct states * s, struct ggml_context * ctx,
        int64_t size, const char * name, int32_t il) {
    struct ggml_tensor * cache = ggml_new_tensor_3d(
            ctx, s->size.cache_format, size, cache_round_up(s->size.n_cache), s->size.n_seqs);
    ggml_format_name(cache, "cache %s %d", name, il);
    return cache;
}

static void declare_layer(struct states * s, const struct layer * layer, int32_t il,
        const int32_t devices[LAYER_PLACES]) {
    for (int32_t i = 0; i < layer->n_states; ++i) {
        s->state[il][i] = ggml_new_tensor_2d(
                s->ctx[devices[i]], GGML_TYPE_F32, layer->state_size[i], s->size.n_seqs * ring(s));
        ggml_format_name(s->state[il][i], "state %d.%d", il, i);
    }
    if (layer->attention) {
        s->cache_k[il] = declare_cache(s, s->ctx[devices[LAYER_CACHES]], layer->cache_k, "k", il);
    }
    if (layer->cache_v > 0) {
        s->cache_v[il] = declare_cache(s, s->ctx[devices[LAYER_CACHES]], layer->cache_v, "v", il);
    }
}

bool states_declare(struct states * s, const struct lrnn_model * model,
        const struct states_size * size, const int32_t (*devices)[LAYER_PLACES]) {
    const size_t n_layer = (size_t) model->n_layer + size->draft_block;
    *s = (struct states) { .size = *size, .n_layer = (int32_t) n_layer };
    s->state = calloc(n_layer, sizeof(*s->state));
    s->cache_k = calloc(n_layer, sizeof(*s->cache_k));
    s->cache_v = calloc(n_layer, sizeof(*s->cache_v));
    bool ok = s->state != NULL && s->cache_k != NULL && s->cache_v != NULL;
    for (int32_t i = 0; ok && i < model->n_devices; ++i) {
        s->ctx[i] = context_new(n_layer * (LAYER_STATES_MAX + 2) + 1, 0);
        ok = s->ctx[i] != NULL;
    }
    for (int32_t il = 0; ok && il < s->n_layer; ++il) {
        declare_layer(s, &model->layers[il], il, devices[il]);
    }
    if (!ok) {
        states_free(s);
    }
    return ok;
}

// The bytes of one token in the caches of all layers.
static int64_t cache_bytes(const struct states * s, const struct lrnn_model * model) {
    int64_t n = 0;
    for (int32_t il = 0; il < s->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        n += (int64_t) ggml_row_size(s->size.cache_format, layer->cache_k + layer->cache_v);
    }
    return n;
}

bool states_alloc(struct states * s, const struct lrnn_model * model, struct lrnn_error * err) {
    for (int32_t i = 0; i < model->n_devices; ++i) {
        if (ggml_get_first_tensor(s->ctx[i]) == NULL) {
            continue;
        }
        ggml_backend_dev_t dev = model->devices[i].dev;
        s->buffer[i] = ggml_backend_alloc_ctx_tensors_from_buft(
                s->ctx[i], ggml_backend_dev_buffer_type(dev));
        if (s->buffer[i] == NULL) {
            return error_set(err, LRNN_ERROR_NO_MEMORY,
                    "%s: out of memory for the states of %d sequences: %" PRId64
                    " slots of %" PRId64 " bytes, and per sequence a cache of %d tokens of %" PRId64
                    " bytes",
                    ggml_backend_dev_name(dev), s->size.n_seqs, s->size.n_seqs * ring(s),
                    model->info.state_bytes, s->size.n_cache, cache_bytes(s, model));
        }
        if (ggml_backend_buffer_is_host(s->buffer[i])) {
            huge_pages_advise(ggml_backend_buffer_get_base(s->buffer[i]),
                    ggml_backend_buffer_get_size(s->buffer[i]));
        }
        ggml_backend_buffer_clear(s->buffer[i], 0);
    }
    return true;
}

void states_free(struct states * s) {
    for (int32_t i = 0; i < DEVICES_MAX; ++i) {
        ggml_backend_buffer_free(s->buffer[i]);
        context_free(s->ctx[i]);
    }
    free(s->state);
    free(s->cache_k);
    free(s->cache_v);
    *s = (struct states) { 0 };
}

int64_t states_slot(const struct states * s, int32_t seq, int64_t position) {
    return seq * ring(s) + position % ring(s);
}

void states_clear_cache(
        struct states * s, const struct lrnn_model * model, int32_t seq, int64_t from, int64_t to) {
    static const uint8_t zeros[1 << 16];
    for (int32_t il = 0; il < s->n_layer && from < to; ++il) {
        struct ggml_tensor * caches[2] = { s->cache_k[il], s->cache_v[il] };
        const int64_t        drafted = il == model->n_layer ? to + LRNN_DRAFT_MAX : to;
        for (int i = 0; i < 2 && caches[i] != NULL; ++i) {
            const int64_t end = drafted < caches[i]->ne[1] ? drafted : caches[i]->ne[1];
            const size_t begin = (size_t) seq * caches[i]->nb[2] + (size_t) from * caches[i]->nb[1];
            const size_t size = (size_t) (end - from) * caches[i]->nb[1];
            for (size_t at = 0; at < size; at += sizeof(zeros)) { // not every backend has a memset
                const size_t n = size - at < sizeof(zeros) ? size - at : sizeof(zeros);
                ggml_backend_tensor_set(caches[i], zeros, begin + at, n);
            }
        }
    }
}

bool states_visit(const struct states * s, const struct lrnn_model * model, int32_t seq,
        int64_t length, states_visitor visitor, void * user) {
    for (int32_t il = 0; il < s->n_layer && length > 0; ++il) {
        const struct layer * layer = &model->layers[il];
        for (int32_t i = 0; i < layer->n_states; ++i) {
            struct ggml_tensor * t = s->state[il][i];
            const size_t         slot = (size_t) states_slot(s, seq, length);
            if (!visitor(t, slot * t->nb[1], t->nb[1], user)) {
                return false;
            }
        }
        struct ggml_tensor * caches[2] = { s->cache_k[il], s->cache_v[il] };
        for (int i = 0; i < 2 && caches[i] != NULL; ++i) {
            if (!visitor(caches[i], (size_t) seq * caches[i]->nb[2],
                        (size_t) length * caches[i]->nb[1], user)) {
                return false;
            }
        }
    }
    return true;
}
