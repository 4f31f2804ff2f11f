// Builder of GGML_OP_LSTM_SCAN: checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

static bool check(const struct ggml_lstm_scan_args * a, struct lrnn_error * err) {
    if ((int) a->form < 0 || a->form >= GGML_LSTM_SCAN_FORMS) {
        return scan_refuse(
                err, "form is %d; expected 0 to %d", (int) a->form, GGML_LSTM_SCAN_FORMS - 1);
    }
    if (!scan_check_tokens("x", a->x, -1, -1, 4, -1, err)) {
        return false;
    }
    const int64_t d = a->x->ne[0];
    const int64_t H = a->x->ne[1];
    const int64_t rows = a->form == GGML_LSTM_SCAN_SLSTM ? 4 : 2; // y, c, n, m
    if (a->R == NULL) {
        return scan_refuse(err, "R is missing");
    }
    if (a->R->type != GGML_TYPE_F32 || !ggml_is_contiguous(a->R) || a->R->ne[0] != 4 * d ||
            a->R->ne[1] != d || a->R->ne[2] != H || a->R->ne[3] != 1) {
        return scan_refuse(err,
                "R is %s " SCAN_SHAPE "; expected contiguous f32 [%" PRId64 ", %" PRId64
                ", %" PRId64 "]",
                ggml_type_name(a->R->type), SCAN_SHAPE_OF(a->R), 4 * d, d, H);
    }
    return scan_check_state(a->state, a->ids, rows * d * H, err);
}

struct ggml_tensor * ggml_lstm_scan(
        struct ggml_context * ctx, const struct ggml_lstm_scan_args * a, struct lrnn_error * err) {
    if (!check(a, err)) {
        return NULL;
    }
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [LSTM_SRC_X] = a->x,
        [LSTM_SRC_R] = a->R,
    };
    return scan_node(ctx, GGML_OP_LSTM_SCAN, a->x->ne[0], a->x->ne[1], a->x->ne[3],
            &(struct scan_params) { .form = (int32_t) a->form }, src, 4);
}
