#include "kit/gpu.h"

#include "lrnn-ops.h"
#include "scan-common.h"

#include <cstdio>
#include <cstring>
#include <vector>

enum { CALLS = 3 };

int gpu_run::begin(const char * name) {
    ggml_backend_dev_t dev = name[0] != '\0'
                                     ? ggml_backend_dev_by_name(name)
                                     : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (dev == nullptr && name[0] == '\0') {
        printf("SKIPPED: there is no GPU\n");
        return 0;
    }
    backend = dev != nullptr ? ggml_backend_dev_init(dev, nullptr) : nullptr;
    if (backend == nullptr) {
        fprintf(stderr, "cannot open the device %s\n", name);
        return 1;
    }
    printf("device %s: %s\n", ggml_backend_dev_name(dev), ggml_backend_dev_description(dev));
    return -1;
}

bool gpu_run::is_gpu() const {
    return on() &&
           ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_GPU;
}

// Slot ids of call r; negative ids mean none and stay. Ids out of range stay out of range.
static void rotate_ids(const ggml_tensor * ids, int64_t n_slots, int r, std::vector<int32_t> * to) {
    const int32_t * from = (const int32_t *) ids->data;
    to->assign(from, from + ids->ne[0] * ids->ne[1]);
    for (size_t i = 0; i < to->size(); ++i) {
        const int64_t column = (int64_t) i % ids->ne[0];
        const bool    is_slot = column != GGML_SCAN_FIRST && column != GGML_SCAN_COUNT;
        if (is_slot && (*to)[i] >= 0 && (*to)[i] < n_slots) {
            (*to)[i] = (int32_t) (((*to)[i] + r) % n_slots);
        }
    }
}

// The slots of a state moved by r; the gaps between slots stay.
static std::string rotate_slots(const ggml_tensor * state, const std::string & bytes, int64_t r) {
    std::string   to = bytes;
    const size_t  row = (size_t) state->ne[0] * sizeof(float);
    const int64_t n_slots = state->ne[1];
    for (int64_t s = 0; s < n_slots; ++s) {
        memcpy(&to[(size_t) ((s + r + n_slots) % n_slots) * state->nb[1]],
                &bytes[(size_t) s * state->nb[1]], row);
    }
    return to;
}

std::string gpu_run::run(ggml_tensor * op) {
    ggml_init_params params = {};
    params.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead();
    params.no_alloc = true;
    ggml_context * ctx = ggml_init(params);

    // every tensor has its own buffer, with the strides of the case
    std::vector<ggml_backend_buffer_t> buffers;
    const auto                         copy = [&](const ggml_tensor * x) {
        ggml_tensor * y = ggml_new_tensor(ctx, x->type, GGML_MAX_DIMS, x->ne);
        memcpy(y->nb, x->nb, sizeof(x->nb));
        ggml_backend_buffer_t b = ggml_backend_alloc_buffer(backend, ggml_nbytes(x));
        buffers.push_back(b);
        ggml_backend_tensor_alloc(b, y, ggml_backend_buffer_get_base(b));
        return y;
    };
    ggml_tensor * node = copy(op);
    node->op = op->op;
    memcpy(node->op_params, op->op_params, sizeof(op->op_params));
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        if (op->src[i] != nullptr) {
            node->src[i] = copy(op->src[i]);
            ggml_backend_tensor_set(node->src[i], op->src[i]->data, 0, ggml_nbytes(op->src[i]));
        }
    }
    std::string error;
    if (!ggml_backend_supports_op(backend, node)) {
        error = "the device does not support the op";
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, node);

    ggml_tensor *     state = op->src[SCAN_SRC_STATE];
    const std::string before((const char *) state->data, ggml_nbytes(state));
    std::string       out(ggml_nbytes(op), 0), last(before.size(), 0);
    for (int r = 0; r < CALLS && error.empty(); ++r) {
        std::vector<int32_t> ids;
        rotate_ids(op->src[SCAN_SRC_IDS], state->ne[1], r, &ids);
        const std::string moved = rotate_slots(state, before, r);
        ggml_backend_tensor_set(
                node->src[SCAN_SRC_IDS], ids.data(), 0, ids.size() * sizeof(int32_t));
        ggml_backend_tensor_set(node->src[SCAN_SRC_STATE], moved.data(), 0, moved.size());
        const std::string unwritten(out.size(), 0x41); // not NaN, so every NaN in it was written
        ggml_backend_tensor_set(node, unwritten.data(), 0, unwritten.size());
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            error = "the device failed to compute the graph";
            break;
        }
        std::string now_out(out.size(), 0), now(before.size(), 0);
        ggml_backend_tensor_get(node, &now_out[0], 0, now_out.size());
        ggml_backend_tensor_get(node->src[SCAN_SRC_STATE], &now[0], 0, now.size());
        now = rotate_slots(state, now, -r);
        if (r > 0 && (now_out != out || now != last)) {
            error = "call " + std::to_string(r + 1) + " of a graph, with other slots, differs";
        }
        out = now_out;
        last = now;
    }
    for (int i = 0; i < n_times && error.empty(); ++i) {
        const int64_t start = ggml_time_us();
        ggml_backend_graph_compute(backend, graph);
        const double us = (double) (ggml_time_us() - start);
        best_us = i == 0 || us < best_us ? us : best_us;
    }
    if (error.empty()) {
        memcpy(op->data, out.data(), out.size());
        memcpy(state->data, last.data(), last.size());
    }
    for (ggml_backend_buffer_t b : buffers) {
        ggml_backend_buffer_free(b);
    }
    ggml_free(ctx);
    return error;
}
