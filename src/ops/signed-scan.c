// Builder of GGML_OP_SIGNED_SCAN: determines the transition, checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

// A is small and constant. Any strides are valid, so that a transposed view of the [d_k, d_v]
// tensor of the model file needs no copy.
static bool check_A(const struct ggml_tensor * A, int64_t d_v, int64_t d_k, int64_t H,
        struct lrnn_error * err) {
    if (A->type != GGML_TYPE_F32 || A->ne[0] != d_v || A->ne[1] != d_k || A->ne[2] < 1 ||
            H % A->ne[2] != 0 || A->ne[3] != 1 || A->nb[0] % sizeof(float) != 0 ||
            A->nb[1] % sizeof(float) != 0 || A->nb[2] % sizeof(float) != 0) {
        scan_refuse(err,
                "A is %s [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                "]; expected f32 [%" PRId64 ", %" PRId64 ", a divisor of %" PRId64
                "] with strides of whole floats",
                ggml_type_name(A->type), A->ne[0], A->ne[1], A->ne[2], A->ne[3], d_v, d_k, H);
        return false;
    }
    return true;
}

struct ggml_tensor * ggml_signed_scan(struct ggml_context * ctx,
        const struct ggml_signed_scan_args * args, struct lrnn_error * err) {
    const struct ggml_signed_scan_args * a = args;

    const bool ssm = a->dt != NULL || a->A != NULL;
    const bool mlstm = a->log_f != NULL || a->log_i != NULL;

    if ((a->gate != NULL) + ssm + mlstm > 1) {
        return scan_refuse(err,
                "more than one transition is given; expected one of gate, dt and A, log_f and "
                "log_i");
    }
    if (a->bonus != NULL && (ssm || mlstm)) {
        return scan_refuse(err, "bonus is given with %s; expected it only with gate",
                ssm ? "dt and A" : "log_f and log_i");
    }

    // b, x and the state define the sizes; all other tensors must match
    if (!scan_check_state(a->state, a->ids, -1, err)) {
        return NULL;
    }
    if (a->b == NULL || a->x == NULL) {
        return scan_refuse(err, "%s is missing", a->b == NULL ? "b" : "x");
    }
    const int64_t d_k = a->b->ne[0];
    const int64_t d_v = a->x->ne[0];
    const int64_t T = a->b->ne[3];

    if (!scan_check_tokens("b", a->b, d_k, -1, 1, T, err) ||
            !scan_check_tokens("x", a->x, d_v, -1, 1, T, err)) {
        return NULL;
    }
    const int64_t H = scan_heads(a->state->ne[0], d_k, d_v, mlstm ? d_k + 1 : 0);
    if (H == 0) {
        return scan_refuse(err,
                "state has %" PRId64
                " floats per slot; expected a multiple of %s for d_k = %" PRId64 ", d_v = %" PRId64,
                a->state->ne[0], mlstm ? "d_k·d_v + d_k + 1" : "d_k·d_v", d_k, d_v);
    }

    if (!scan_check_tokens("b", a->b, d_k, H, 1, T, err) ||
            !scan_check_tokens("c", a->c, d_k, H, 1, T, err) ||
            !scan_check_tokens("x", a->x, d_v, H, 1, T, err)) {
        return NULL;
    }

    struct scan_params params = {
        .scale = a->scale, .eps = a->eps, .path = a->path, .kind = SIGNED_SCAN_NONE, .form = a->form
    };
    struct ggml_tensor * gate = a->gate;
    struct ggml_tensor * aux = a->bonus;

    if (ssm) {
        gate = a->dt;
        aux = a->A;
        if (gate == NULL || aux == NULL) {
            return scan_refuse(
                    err, "%s is missing; expected dt and A together", gate == NULL ? "dt" : "A");
        }
        const bool scalar = aux->ne[0] == 1 && aux->ne[1] == 1;
        params.kind = scalar ? SIGNED_SCAN_SCALAR : SIGNED_SCAN_ELEMENT;
        if (!check_A(aux, scalar ? 1 : d_v, scalar ? 1 : d_k, H, err) ||
                !scan_check_tokens("dt", gate, scalar ? 1 : d_v, H, 1, T, err)) {
            return NULL;
        }
    } else if (mlstm) {
        gate = a->log_f;
        aux = a->log_i;
        params.kind = SIGNED_SCAN_MLSTM;
        if (!scan_check_tokens("log_f", gate, 1, H, 1, T, err) ||
                !scan_check_tokens("log_i", aux, 1, H, 1, T, err)) {
            return NULL;
        }
    } else if (gate != NULL) {
        const bool head = gate->ne[0] == 1;
        params.kind = head ? SIGNED_SCAN_HEAD : SIGNED_SCAN_CHANNEL;
        if (!scan_check_tokens("gate", gate, head ? 1 : d_k, H, 1, gate->ne[3] == 1 ? 1 : T, err)) {
            return NULL;
        }
    }
    if (a->bonus != NULL) {
        params.bonus = 1;
        if (!scan_check_tokens("bonus", a->bonus, d_k, H, 1, 1, err)) {
            return NULL;
        }
    }
    if (a->path == GGML_SCAN_PATH_CHUNK && params.kind == SIGNED_SCAN_ELEMENT) {
        return scan_refuse(err,
                "path is chunk; expected auto, step or reference with a transition per element");
    }

    struct ggml_tensor * op = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, d_v, H, T);

    scan_params_set(op, &params);

    op->op = GGML_OP_SIGNED_SCAN;
    op->src[SCAN_SRC_STATE] = a->state;
    op->src[SCAN_SRC_IDS] = a->ids;
    op->src[SIGNED_SRC_C] = a->c;
    op->src[SIGNED_SRC_B] = a->b;
    op->src[SIGNED_SRC_X] = a->x;
    op->src[SIGNED_SRC_GATE] = gate;
    op->src[SIGNED_SRC_AUX] = aux;

    return op;
}
