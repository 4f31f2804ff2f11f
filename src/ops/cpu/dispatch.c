// The CPU side of the glue: calls the kernel of a node.

#include "glue.h"
#include "scan/scan-cpu.h"

#include "ggml-backend.h"

bool scan_seq_read(struct ggml_tensor * dst, const struct scan_dims * dims, int64_t s, bool fills,
        struct scan_seq * seq) {
    const bool    ok = ggml_scan_seq_get(dst, s, seq);
    const int64_t row = dims->n_head * dims->d_v;
    const int64_t first = seq->first < 0 ? 0 : seq->first;
    const int64_t end = seq->first + seq->count;
    const int64_t last = end < dims->n_tokens ? end : dims->n_tokens;
    for (int64_t i = first * row; !ok && fills && i < last * row; ++i) {
        ((float *) dst->data)[i] = NAN;
    }
    return ok;
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
        case GGML_OP_LSTM_SCAN: lstm_forward(params, dst); break;
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
        case GGML_OP_LSTM_SCAN: return lstm_work_size(op, n_tasks);
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
