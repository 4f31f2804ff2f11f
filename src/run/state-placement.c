#include "run/states.h"

#include "base/error.h"
#include "run/forward.h"

#include <inttypes.h>
#include <stdio.h>

// The place of the state of a scan, or of the cache that attention reads, in its layer; -1: in
// another layer.
static int32_t place_of(
        const struct states * states, int32_t il, int32_t n_states, const struct ggml_tensor * op) {
    if (op->op == GGML_OP_FLASH_ATTN_EXT) {
        const struct ggml_tensor * k = op->src[1];
        return k->view_src != NULL && k->view_src == states->cache_k[il] ? LAYER_CACHES : -1;
    }
    int32_t i = ggml_is_scan(op) ? n_states - 1 : -1;
    while (i >= 0 && states->state[il][i] != op->src[0]) {
        --i;
    }
    return i;
}

// Moves the states of scans, and the caches of attention, that their device cannot compute to the
// CPU. Only a graph tells the shapes of its ops, so one is built for a batch of n_tokens and looked
// at.
static bool move_unsupported(const struct states * states, const struct lrnn_model * model,
        int64_t n_tokens, int32_t (*devices)[LAYER_PLACES], struct lrnn_error * err) {
    struct graph_seq   seq = { .count = n_tokens, .visible = cache_round_up(n_tokens) };
    const struct batch batch = { .seqs = &seq, .n_seqs = 1, .n_tokens = n_tokens };
    struct forward     f = { 0 };
    const bool         ok = forward_build(&f, model, states, &batch, GGML_SCAN_PATH_AUTO, err);
    for (int i = 0; ok && i < ggml_graph_n_nodes(f.graph); ++i) {
        const struct ggml_tensor * node = ggml_graph_node(f.graph, i);
        for (int32_t il = 0; il < states->n_layer; ++il) {
            const int32_t j = place_of(states, il, model->layers[il].n_states, node);
            if (j >= 0 && !ggml_backend_dev_supports_op(model->devices[devices[il][j]].dev, node)) {
                devices[il][j] = 0;
            }
        }
    }
    forward_free(&f);
    return ok;
}

static void log_layers(const struct lrnn_model * model, const char * what, int64_t n) {
    if (n > 0 && model->log != NULL) {
        char text[128];
        snprintf(text, sizeof(text),
                "the %s of %" PRId64 " layers runs on the CPU: their devices lack the op", what, n);
        model->log(LRNN_LOG_WARNING, text, model->log_user);
    }
}

static void log_moved(const struct lrnn_model * model, const int32_t (*devices)[LAYER_PLACES]) {
    int64_t n_scan = 0, n_attention = 0;
    for (int32_t il = 0; il < model->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        n_scan += layer->recurrent && layer->device != devices[il][0];
        n_attention += layer->attention && layer->device != devices[il][LAYER_CACHES];
    }
    log_layers(model, "recurrence", n_scan);
    log_layers(model, "attention", n_attention);
}

bool placement_of_states(const struct lrnn_model * model, const struct states_size * size,
        int32_t n_batch, int32_t (*devices)[LAYER_PLACES], struct lrnn_error * err) {
    for (int32_t il = 0; il < model->n_layer + size->draft_block; ++il) {
        for (int32_t i = 0; i < LAYER_PLACES; ++i) {
            devices[il][i] = model->layers[il].device;
        }
    }
    if (model->n_devices == 1) {
        return true;
    }
    const int32_t (*chosen)[LAYER_PLACES] = (const int32_t (*)[LAYER_PLACES]) devices;
    struct states states;
    if (!states_declare(&states, model, size, chosen)) {
        return error_no_memory(err, "the tensors of the states");
    }
    const bool    cached = model->info.n_layer_attention > 0 && size->n_cache < n_batch;
    const int64_t most = cached ? size->n_cache : n_batch;
    const bool    ok = move_unsupported(&states, model, 1, devices, err) &&
                    move_unsupported(&states, model, most, devices, err);
    states_free(&states);
    if (ok) {
        log_moved(model, chosen);
    }
    return ok;
}
