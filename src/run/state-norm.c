#include "model/model.h"
#include "run/session.h"

#include <math.h>

// Σ x² over n floats, possibly on a device.
static double sum_of_squares(const struct ggml_tensor * tensor, size_t offset, int64_t n) {
    enum { BLOCK = 1 << 14 };
    float  block[BLOCK];
    double sum = 0.0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        ggml_backend_tensor_get(tensor, block, offset + (size_t) at * sizeof(float),
                (size_t) count * sizeof(float));
        for (int64_t i = 0; i < count; ++i) {
            sum += (double) block[i] * (double) block[i];
        }
    }
    return sum;
}

double lrnn_seq_state_norm(const struct lrnn_session * session, int32_t seq, int32_t * layer) {
    const struct lrnn_model * model = session->model;
    double                    largest = 0.0;
    *layer = -1;
    for (int32_t il = 0; il < model->n_layer; ++il) {
        size_t                     offset;
        const struct ggml_tensor * state = session_seq_state(session, seq, il, &offset);
        if (state == NULL || model->layers[il].n_head == 0) { // LFM2 has only convolutions
            continue;
        }
        // The matrix of a head comes first; mLSTM stores n and m after it.
        const struct layer * l = &model->layers[il];
        const size_t         head = state->nb[1] / (size_t) l->n_head;
        for (int64_t h = 0; h < l->n_head; ++h) {
            const double norm =
                    sqrt(sum_of_squares(state, offset + (size_t) h * head, l->matrix_size));
            if (*layer < 0 || (!isnan(largest) && !(norm <= largest))) { // NaN exceeds everything
                largest = norm;
                *layer = il;
            }
        }
    }
    return largest;
}
