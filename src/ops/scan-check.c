// ggml_scan_check_node: checks a node that another process built.
// ggml_scan_check_values: checks the data of a computed op for values that break a recurrence.

#include "scan-common.h"

#include "ggml-backend.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Nodes --------------------------------------------------------------------------------------

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

// ---- Values -------------------------------------------------------------------------------------

// The largest ‖k‖² of a unit key: F32 normalization leaves an error of about 1e-7 per component,
// and there are a few hundred components.
static const double KEY_NORM_SQUARED_MAX = 1.0 + 1e-5;

struct range {
    float        lo, hi;
    const char * text;
};

static const struct range FINITE = { -INFINITY, INFINITY, "a finite number" };
static const struct range BETA = { 0.0f, 2.0f, "a number in [0, 2]" };
static const struct range GATE = { -1.0f, 1.0f, "a number in [-1, 1]" };

// Reads row (i1, i2, i3) of an F32 tensor from its device. A tensor without a buffer is in host
// memory.
static void row_get(const struct ggml_tensor * x, int64_t i1, int64_t i2, int64_t i3, float * row) {
    const size_t offset = (size_t) i1 * x->nb[1] + (size_t) i2 * x->nb[2] + (size_t) i3 * x->nb[3];
    const struct ggml_tensor * owner = x->view_src != NULL ? x->view_src : x;
    for (int64_t i = 0; i < x->ne[0]; ++i) { // rows of A may be strided
        const size_t at = offset + (size_t) i * x->nb[0];
        if (owner->buffer == NULL) {
            row[i] = *(const float *) ((const char *) x->data + at);
        } else if (x->nb[0] == sizeof(float)) {
            ggml_backend_tensor_get(x, row, at, (size_t) x->ne[0] * sizeof(float));
            return;
        } else {
            ggml_backend_tensor_get(x, row + i, at, sizeof(float));
        }
    }
}

// The meaning of the rows of a tensor.
enum rows { ROWS_TOKENS, ROWS_STATE, ROWS_OUTPUT, ROWS_CHANNELS, ROWS_PLAIN };

static void row_text(enum rows rows, int64_t i1, int64_t i2, int64_t i3, char * text, size_t size) {
    switch (rows) {
        case ROWS_TOKENS:
            snprintf(
                    text, size, "head %" PRId64 ", factor %" PRId64 ", token %" PRId64, i1, i2, i3);
            break;
        case ROWS_STATE: snprintf(text, size, "slot %" PRId64, i1); break;
        case ROWS_OUTPUT: snprintf(text, size, "head %" PRId64 ", token %" PRId64, i1, i2); break;
        case ROWS_CHANNELS: snprintf(text, size, "token %" PRId64, i1); break;
        default: snprintf(text, size, "row %" PRId64 " of head %" PRId64, i1, i2); break;
    }
}

static bool check_rows(const char * name, const struct ggml_tensor * x, enum rows rows,
        const struct range * range, bool unit, struct lrnn_error * err) {
    float * row = malloc((size_t) (x->ne[0] > 0 ? x->ne[0] : 1) * sizeof(float));
    if (row == NULL) {
        return scan_refuse(err, "out of memory for a row of %s", name);
    }
    char where[96];
    bool ok = true;
    for (int64_t r = 0; ok && x->ne[0] > 0 && r < x->ne[1] * x->ne[2] * x->ne[3]; ++r) {
        const int64_t i1 = r % x->ne[1];
        const int64_t i2 = r / x->ne[1] % x->ne[2];
        const int64_t i3 = r / x->ne[1] / x->ne[2];
        row_get(x, i1, i2, i3, row);

        double norm = 0.0;
        for (int64_t i = 0; ok && i < x->ne[0]; ++i) {
            norm += (double) row[i] * (double) row[i];
            if (!isfinite(row[i]) || row[i] < range->lo || row[i] > range->hi) {
                row_text(rows, i1, i2, i3, where, sizeof(where));
                ok = scan_refuse(err, "%s, %s, element %" PRId64 ", is %g; expected %s", name,
                        where, i, (double) row[i], range->text);
            }
        }
        if (ok && unit && norm > KEY_NORM_SQUARED_MAX) {
            row_text(rows, i1, i2, i3, where, sizeof(where));
            ok = scan_refuse(
                    err, "%s, %s, has squared length %.9g; expected at most 1", name, where, norm);
        }
    }
    free(row);
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

static enum rows src_rows(const struct ggml_tensor * op, int i) {
    if (op->op == GGML_OP_SHORT_CONV) {
        return i == CONV_SRC_X ? ROWS_CHANNELS : ROWS_PLAIN;
    }
    const bool constant = (op->op == GGML_OP_LSTM_SCAN && i == LSTM_SRC_R) ||
                          (op->op == GGML_OP_SIGNED_SCAN && i == SIGNED_SRC_AUX &&
                                  ggml_scan_params_get(op).kind != SIGNED_SCAN_MLSTM);
    return constant ? ROWS_PLAIN : ROWS_TOKENS;
}

bool ggml_scan_check_values(const struct ggml_tensor * op, int checks, struct lrnn_error * err) {
    const bool    householder = op->op == GGML_OP_HOUSEHOLDER_SCAN;
    const int32_t kind =
            op->op == GGML_OP_SIGNED_SCAN ? ggml_scan_params_get(op).kind : SIGNED_SCAN_NONE;
    const bool plain_gate = kind == SIGNED_SCAN_HEAD || kind == SIGNED_SCAN_CHANNEL;
    const bool finite = (checks & GGML_SCAN_CHECK_FINITE) != 0;

    // inputs first: a NaN in an input also reaches the state and the output
    for (int i = SCAN_SRC_IDS + 1; i < GGML_MAX_SRC; ++i) {
        const struct ggml_tensor * x = op->src[i];
        if (x == NULL) {
            continue;
        }
        const bool beta =
                householder && i == HOUSEHOLDER_SRC_BETA && (checks & GGML_SCAN_CHECK_BETA);
        const bool gate =
                (checks & GGML_SCAN_CHECK_GATE) && ((householder && i == HOUSEHOLDER_SRC_GATE) ||
                                                           (plain_gate && i == SIGNED_SRC_GATE));
        const bool unit = householder && i == HOUSEHOLDER_SRC_K && (checks & GGML_SCAN_CHECK_KEYS);

        if ((beta || gate || unit || finite) &&
                !check_rows(ggml_scan_src_name(op, i), x, src_rows(op, i),
                        beta   ? &BETA
                        : gate ? &GATE
                               : &FINITE,
                        unit, err)) {
            return false;
        }
    }
    const enum rows output = op->op == GGML_OP_SHORT_CONV ? ROWS_CHANNELS : ROWS_OUTPUT;
    return !finite ||
           (check_rows("state", op->src[SCAN_SRC_STATE], ROWS_STATE, &FINITE, false, err) &&
                   check_rows("output", op, output, &FINITE, false, err));
}
