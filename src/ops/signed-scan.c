// Builder of GGML_OP_SIGNED_SCAN: determines the transition, checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

static bool is_ssm(int32_t kind) {
    return kind == SIGNED_SCAN_ELEMENT || kind == SIGNED_SCAN_SCALAR;
}

// A is small and constant. Any strides are valid, so that a transposed view of the [d_k, d_v]
// tensor of the model file needs no copy.
static bool check_A(const struct ggml_tensor * A, int64_t d_v, int64_t d_k, int64_t H,
        struct lrnn_error * err) {
    if (A->type != GGML_TYPE_F32 || A->ne[0] != d_v || A->ne[1] != d_k || A->ne[2] < 1 ||
            H % A->ne[2] != 0 || A->ne[3] != 1 || A->nb[0] % sizeof(float) != 0 ||
            A->nb[1] % sizeof(float) != 0 || A->nb[2] % sizeof(float) != 0) {
        return scan_refuse(err,
                "A is %s " SCAN_SHAPE "; expected f32 [%" PRId64 ", %" PRId64
                ", a divisor of %" PRId64 "] with strides of whole floats",
                ggml_type_name(A->type), SCAN_SHAPE_OF(A), d_v, d_k, H);
    }
    return true;
}

// Determines the kind of the transition from its class and shapes.
static bool check_transition(
        struct ggml_tensor * const * src, int64_t H, int32_t * kind, struct lrnn_error * err) {
    const struct ggml_tensor *gate = src[SIGNED_SRC_GATE], *aux = src[SIGNED_SRC_AUX];
    const int64_t             d_k = src[SIGNED_SRC_B]->ne[0], d_v = src[SIGNED_SRC_X]->ne[0];
    const int64_t             T = src[SIGNED_SRC_B]->ne[3];
    if (is_ssm(*kind)) {
        if (gate == NULL || aux == NULL) {
            return scan_refuse(
                    err, "%s is missing; expected dt and A together", gate == NULL ? "dt" : "A");
        }
        const bool scalar = aux->ne[0] == 1 && aux->ne[1] == 1;
        *kind = scalar ? SIGNED_SCAN_SCALAR : SIGNED_SCAN_ELEMENT;
        return check_A(aux, scalar ? 1 : d_v, scalar ? 1 : d_k, H, err) &&
               scan_check_tokens("dt", gate, scalar ? 1 : d_v, H, 1, T, err);
    }
    if (*kind == SIGNED_SCAN_MLSTM) {
        return scan_check_tokens("log_f", gate, 1, H, 1, T, err) &&
               scan_check_tokens("log_i", aux, 1, H, 1, T, err);
    }
    *kind = SIGNED_SCAN_NONE;
    if (gate != NULL) {
        const bool head = gate->ne[0] == 1;
        *kind = head ? SIGNED_SCAN_HEAD : SIGNED_SCAN_CHANNEL;
        if (!scan_check_tokens("gate", gate, head ? 1 : d_k, H, 1, gate->ne[3] == 1 ? 1 : T, err)) {
            return false;
        }
    }
    return aux == NULL || scan_check_tokens("bonus", aux, d_k, H, 1, 1, err);
}

// b, x and the state define the sizes; all other tensors must match. Sets the number of heads.
static bool check(struct ggml_tensor * const * src, struct scan_params * p, int64_t * H,
        struct lrnn_error * err) {
    const struct ggml_tensor * state = src[SCAN_SRC_STATE];
    const struct ggml_tensor * b = src[SIGNED_SRC_B], *x = src[SIGNED_SRC_X];
    const bool                 mlstm = p->kind == SIGNED_SCAN_MLSTM;
    if (!scan_check_state(state, src[SCAN_SRC_IDS], -1, err)) {
        return false;
    }
    if (b == NULL || x == NULL) {
        return scan_refuse(err, "%s is missing", b == NULL ? "b" : "x");
    }
    const int64_t d_k = b->ne[0], d_v = x->ne[0], T = b->ne[3];
    if (!scan_check_tokens("b", b, d_k, -1, 1, T, err) ||
            !scan_check_tokens("x", x, d_v, -1, 1, T, err)) {
        return false;
    }
    *H = scan_heads(state->ne[0], d_k, d_v, mlstm ? d_k + 1 : 0);
    if (*H == 0) {
        return scan_refuse(err,
                "state has %" PRId64
                " floats per slot; expected a multiple of %s for d_k = %" PRId64 ", d_v = %" PRId64,
                state->ne[0], mlstm ? "d_k·d_v + d_k + 1" : "d_k·d_v", d_k, d_v);
    }
    if (!scan_check_tokens("b", b, d_k, *H, 1, T, err) ||
            !scan_check_tokens("c", src[SIGNED_SRC_C], d_k, *H, 1, T, err) ||
            !scan_check_tokens("x", x, d_v, *H, 1, T, err) ||
            !check_transition(src, *H, &p->kind, err)) {
        return false;
    }
    return p->path != GGML_SCAN_PATH_CHUNK || p->kind != SIGNED_SCAN_ELEMENT ||
           scan_refuse(err,
                   "path is chunk; expected auto, step or reference with a transition per element");
}

struct ggml_tensor * signed_node(struct ggml_context * ctx, struct ggml_tensor * const * src,
        struct scan_params p, struct lrnn_error * err) {
    int64_t H = 0;
    if (!check(src, &p, &H, err)) {
        return NULL;
    }
    p.bonus = src[SIGNED_SRC_AUX] != NULL && p.kind < SIGNED_SCAN_ELEMENT;
    p.activation = 0;
    return scan_node(ctx, GGML_OP_SIGNED_SCAN, src[SIGNED_SRC_X]->ne[0], H,
            src[SIGNED_SRC_B]->ne[3], &p, src, 7);
}

struct ggml_tensor * ggml_signed_scan(struct ggml_context * ctx,
        const struct ggml_signed_scan_args * a, struct lrnn_error * err) {
    const bool ssm = a->dt != NULL || a->A != NULL;
    const bool mlstm = a->log_f != NULL || a->log_i != NULL;
    if ((a->gate != NULL) + ssm + mlstm > 1) {
        scan_refuse(err,
                "more than one transition is given; expected one of gate, dt and A, log_f and "
                "log_i");
        return NULL;
    }
    if (a->bonus != NULL && (ssm || mlstm)) {
        scan_refuse(err, "bonus is given with %s; expected it only with gate",
                ssm ? "dt and A" : "log_f and log_i");
        return NULL;
    }
    const struct scan_params params = {
        .scale = a->scale,
        .eps = a->eps,
        .path = a->path,
        .kind = ssm     ? SIGNED_SCAN_ELEMENT
                : mlstm ? SIGNED_SCAN_MLSTM
                        : SIGNED_SCAN_NONE,
        .form = a->form,
    };
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [SIGNED_SRC_C] = a->c,
        [SIGNED_SRC_B] = a->b,
        [SIGNED_SRC_X] = a->x,
        [SIGNED_SRC_GATE] = ssm     ? a->dt
                            : mlstm ? a->log_f
                                    : a->gate,
        [SIGNED_SRC_AUX] = ssm     ? a->A
                           : mlstm ? a->log_i
                                   : a->bonus,
    };
    return signed_node(ctx, src, params, err);
}
