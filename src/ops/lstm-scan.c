// Builder of GGML_OP_LSTM_SCAN: checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

static bool check(
        const struct ggml_tensor * x, const struct ggml_tensor * R, struct lrnn_error * err) {
    if (!scan_check_tokens("x", x, -1, -1, 4, -1, err)) {
        return false;
    }
    const int64_t d = x->ne[0], H = x->ne[1];
    if (R == NULL) {
        return scan_refuse(err, "R is missing");
    }
    if (R->type != GGML_TYPE_F32 || !ggml_is_contiguous(R) || R->ne[0] != 4 * d || R->ne[1] != d ||
            R->ne[2] != H || R->ne[3] != 1) {
        return scan_refuse(err,
                "R is %s " SCAN_SHAPE "; expected contiguous f32 [%" PRId64 ", %" PRId64
                ", %" PRId64 "]",
                ggml_type_name(R->type), SCAN_SHAPE_OF(R), 4 * d, d, H);
    }
    return true;
}

struct ggml_tensor * lstm_node(struct ggml_context * ctx, struct ggml_tensor * const * src,
        struct scan_params p, struct lrnn_error * err) {
    const struct ggml_tensor * x = src[LSTM_SRC_X];
    const int64_t              rows = p.form == GGML_LSTM_SCAN_SLSTM ? 4 : 2; // y, c, n, m
    if (p.form < 0 || p.form >= GGML_LSTM_SCAN_FORMS) {
        scan_refuse(err, "form is %d; expected 0 to %d", p.form, GGML_LSTM_SCAN_FORMS - 1);
        return NULL;
    }
    if (!check(x, src[LSTM_SRC_R], err) || !scan_check_state(src[SCAN_SRC_STATE], src[SCAN_SRC_IDS],
                                                   rows * x->ne[0] * x->ne[1], err)) {
        return NULL;
    }
    return scan_node(ctx, GGML_OP_LSTM_SCAN, x->ne[0], x->ne[1], x->ne[3],
            &(struct scan_params) { .form = p.form }, src, 4);
}

struct ggml_tensor * ggml_lstm_scan(
        struct ggml_context * ctx, const struct ggml_lstm_scan_args * a, struct lrnn_error * err) {
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [LSTM_SRC_X] = a->x,
        [LSTM_SRC_R] = a->R,
    };
    return lstm_node(ctx, src, (struct scan_params) { .form = (int32_t) a->form }, err);
}
