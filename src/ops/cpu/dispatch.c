// The CPU side of the glue: calls the kernel of a node.

#include "glue.h"
#include "scan/scan-cpu.h"

#include "ggml-backend.h"

void scan_fill_nan(
        struct ggml_tensor * dst, const struct scan_dims * dims, const struct scan_seq * seq) {
    const int64_t row = dims->n_head * dims->d_v;
    int64_t       first = seq->first < 0 ? 0 : seq->first;
    int64_t       last = seq->first + seq->count;
    if (last > dims->n_tokens) {
        last = dims->n_tokens;
    }
    for (int64_t i = first * row; i < last * row; ++i) {
        ((float *) dst->data)[i] = NAN;
    }
}

void ggml_lrnn_cpu_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const bool reference =
            params->use_ref || ggml_scan_params_get(dst).path == GGML_SCAN_PATH_REFERENCE;
    switch (dst->op) {
        case GGML_OP_HOUSEHOLDER_SCAN:
            (reference ? householder_reference : householder_forward)(params, dst);
            break;
        case GGML_OP_SIGNED_SCAN:
            (reference ? signed_reference : signed_forward)(params, dst);
            break;
        default: short_conv_forward(params, dst); break;
    }
}

int ggml_lrnn_cpu_n_tasks(const struct ggml_tensor * op, int n_threads) {
    (void) op;
    return n_threads;
}

size_t ggml_lrnn_cpu_work_size(const struct ggml_tensor * op, int n_tasks) {
    switch (op->op) {
        case GGML_OP_HOUSEHOLDER_SCAN: return householder_work_size(op, n_tasks);
        case GGML_OP_SIGNED_SCAN: return signed_work_size(op, n_tasks);
        default: return short_conv_work_size(op, n_tasks);
    }
}

// The kernels support every shape that a builder accepts. The state must be in host memory: the
// scheduler would copy any other state, and the update of the copy would be lost.
bool ggml_lrnn_cpu_supports_op(const struct ggml_tensor * op) {
    const struct ggml_tensor * state = op->src[SCAN_SRC_STATE];
    if (state->view_src != NULL) {
        state = state->view_src;
    }
    return state->buffer == NULL || ggml_backend_buffer_is_host(state->buffer);
}
