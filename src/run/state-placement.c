#include "run/states.h"

#include "base/error.h"
#include "run/forward.h"

#include <inttypes.h>
#include <stdio.h>

// Moves the states of scans that their device cannot compute to the CPU. Only a graph tells the
// shapes of its scans, so one is built for a batch of n_tokens and looked at.
static bool move_unsupported(const struct states * states, const struct lrnn_model * model,
        int64_t n_tokens, int32_t (*devices)[LAYER_STATES_MAX], struct lrnn_error * err) {
    struct graph_seq   seq = { .count = n_tokens, .visible = cache_round_up(n_tokens) };
    const struct batch batch = { .seqs = &seq, .n_seqs = 1, .n_tokens = n_tokens };
    struct forward     f = { 0 };
    const bool         ok = forward_build(&f, model, states, &batch, GGML_SCAN_PATH_AUTO, err);
    for (int i = 0; ok && i < ggml_graph_n_nodes(f.graph); ++i) {
        const struct ggml_tensor * node = ggml_graph_node(f.graph, i);
        for (int32_t il = 0; ggml_is_scan(node) && il < states->n_layer; ++il) {
            for (int32_t j = 0; j < model->layers[il].n_states; ++j) {
                ggml_backend_dev_t dev = model->devices[devices[il][j]].dev;
                if (states->state[il][j] == node->src[0] &&
                        !ggml_backend_dev_supports_op(dev, node)) {
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
        n += model->layers[il].recurrent && model->layers[il].device != devices[il][0];
    }
    if (n > 0 && model->log != NULL) {
        char text[128];
        snprintf(text, sizeof(text),
                "the recurrences of %" PRId64 " layers run on the CPU: their devices lack the op",
                n);
        model->log(LRNN_LOG_WARNING, text, model->log_user);
    }
}

bool placement_of_states(const struct lrnn_model * model, const struct states_size * size,
        int32_t n_batch, int32_t (*devices)[LAYER_STATES_MAX], struct lrnn_error * err) {
    for (int32_t il = 0; il < model->n_layer + size->draft_block; ++il) {
        for (int32_t i = 0; i < LAYER_STATES_MAX; ++i) {
            devices[il][i] = model->layers[il].device;
        }
    }
    if (model->n_devices == 1) {
        return true;
    }
    const int32_t (*chosen)[LAYER_STATES_MAX] = (const int32_t (*)[LAYER_STATES_MAX]) devices;
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
