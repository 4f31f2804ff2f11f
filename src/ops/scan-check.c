// Checks a node that another process built, and names the sources of a node.

#include "scan-common.h"

#include <string.h>

bool ggml_scan_check_node(const struct ggml_tensor * op, struct lrnn_error * err) {
    const struct scan_params p = ggml_scan_params_get(op);
    if (!ggml_is_scan(op) || p.path < GGML_SCAN_PATH_AUTO || p.path > GGML_SCAN_PATH_REFERENCE ||
            p.form < GGML_SIGNED_SCAN_EXP || p.form > GGML_SIGNED_SCAN_TWO_EXP_M1) {
        return scan_refuse(err, "op %s, path %d, form %d; expected a scan with a known path",
                ggml_op_name(op->op), p.path, p.form);
    }
    struct ggml_context * ctx =
            ggml_init((struct ggml_init_params) { ggml_tensor_overhead(), NULL, true });
    if (ctx == NULL) {
        return scan_refuse(err, "out of memory to check a node");
    }
    const struct ggml_tensor * built =
            op->op == GGML_OP_HOUSEHOLDER_SCAN ? householder_node(ctx, op->src, p, err)
            : op->op == GGML_OP_SIGNED_SCAN    ? signed_node(ctx, op->src, p, err)
            : op->op == GGML_OP_LSTM_SCAN      ? lstm_node(ctx, op->src, p, err)
                                               : short_conv_node(ctx, op->src, p, err);
    bool ok = built != NULL;
    if (ok && (op->type != built->type || !ggml_are_same_shape(op, built) ||
                      !ggml_is_contiguous(op) ||
                      memcmp(op->op_params, built->op_params, sizeof(op->op_params)) != 0 ||
                      memcmp(op->src, built->src, sizeof(op->src)) != 0)) {
        ok = scan_refuse(err, "the node differs from the one that its builder makes");
    }
    ggml_free(ctx);
    return ok;
}

const char * ggml_scan_src_name(const struct ggml_tensor * op, int i) {
    static const char * const householder[] = { "state", "ids", "q", "k", "v", "beta", "gate", "r",
        "w" };
    static const char * const conv[] = { "state", "ids", "x", "weight", "bias" };
    static const char * const lstm[] = { "state", "ids", "x", "R" };
    static const char * const gates[] = { "", "gate", "gate", "dt", "dt", "log_f" };
    static const char * const aux[] = { "bonus", "bonus", "bonus", "A", "A", "log_i" };
    static const char * const diagonal[] = { "state", "ids", "c", "b", "x" };

    if (op->op == GGML_OP_HOUSEHOLDER_SCAN) {
        return householder[i];
    }
    if (op->op == GGML_OP_SHORT_CONV) {
        return conv[i];
    }
    if (op->op == GGML_OP_LSTM_SCAN) {
        return lstm[i];
    }
    const int32_t kind = ggml_scan_params_get(op).kind; // the order of `gates` and `aux`
    return i == SIGNED_SRC_GATE ? gates[kind] : i == SIGNED_SRC_AUX ? aux[kind] : diagonal[i];
}
