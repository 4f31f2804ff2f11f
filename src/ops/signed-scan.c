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
        return scan_refuse(err,
                "A is %s " SCAN_SHAPE "; expected f32 [%" PRId64 ", %" PRId64
                ", a divisor of %" PRId64 "] with strides of whole floats",
                ggml_type_name(A->type), SCAN_SHAPE_OF(A), d_v, d_k, H);
    }
    return true;
}

// The transition: its kind, and the tensors that define it.
struct transition {
    enum signed_scan_kind kind;
    struct ggml_tensor *  gate; // gate, dt or log_f
    struct ggml_tensor *  aux;  // bonus, A or log_i
};

static bool check_transition(const struct ggml_signed_scan_args * a, int64_t H,
        struct transition * t, struct lrnn_error * err) {
    const int64_t d_k = a->b->ne[0], d_v = a->x->ne[0], T = a->b->ne[3];
    if (a->dt != NULL || a->A != NULL) {
        if (a->dt == NULL || a->A == NULL) {
            return scan_refuse(
                    err, "%s is missing; expected dt and A together", a->dt == NULL ? "dt" : "A");
        }
        const bool scalar = a->A->ne[0] == 1 && a->A->ne[1] == 1;
        *t = (struct transition) { scalar ? SIGNED_SCAN_SCALAR : SIGNED_SCAN_ELEMENT, a->dt, a->A };
        return check_A(a->A, scalar ? 1 : d_v, scalar ? 1 : d_k, H, err) &&
               scan_check_tokens("dt", a->dt, scalar ? 1 : d_v, H, 1, T, err);
    }
    if (a->log_f != NULL || a->log_i != NULL) {
        *t = (struct transition) { SIGNED_SCAN_MLSTM, a->log_f, a->log_i };
        return scan_check_tokens("log_f", a->log_f, 1, H, 1, T, err) &&
               scan_check_tokens("log_i", a->log_i, 1, H, 1, T, err);
    }
    *t = (struct transition) { SIGNED_SCAN_NONE, a->gate, a->bonus };
    if (a->gate != NULL) {
        const bool head = a->gate->ne[0] == 1;
        t->kind = head ? SIGNED_SCAN_HEAD : SIGNED_SCAN_CHANNEL;
        if (!scan_check_tokens(
                    "gate", a->gate, head ? 1 : d_k, H, 1, a->gate->ne[3] == 1 ? 1 : T, err)) {
            return false;
        }
    }
    return a->bonus == NULL || scan_check_tokens("bonus", a->bonus, d_k, H, 1, 1, err);
}

// b, x and the state define the sizes; all other tensors must match. Sets the number of heads.
static bool check(const struct ggml_signed_scan_args * a, int64_t * H, struct transition * t,
        struct lrnn_error * err) {
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
    if (!scan_check_state(a->state, a->ids, -1, err)) {
        return false;
    }
    if (a->b == NULL || a->x == NULL) {
        return scan_refuse(err, "%s is missing", a->b == NULL ? "b" : "x");
    }
    const int64_t d_k = a->b->ne[0], d_v = a->x->ne[0], T = a->b->ne[3];
    if (!scan_check_tokens("b", a->b, d_k, -1, 1, T, err) ||
            !scan_check_tokens("x", a->x, d_v, -1, 1, T, err)) {
        return false;
    }
    *H = scan_heads(a->state->ne[0], d_k, d_v, mlstm ? d_k + 1 : 0);
    if (*H == 0) {
        return scan_refuse(err,
                "state has %" PRId64
                " floats per slot; expected a multiple of %s for d_k = %" PRId64 ", d_v = %" PRId64,
                a->state->ne[0], mlstm ? "d_k·d_v + d_k + 1" : "d_k·d_v", d_k, d_v);
    }
    if (!scan_check_tokens("b", a->b, d_k, *H, 1, T, err) ||
            !scan_check_tokens("c", a->c, d_k, *H, 1, T, err) ||
            !scan_check_tokens("x", a->x, d_v, *H, 1, T, err) || !check_transition(a, *H, t, err)) {
        return false;
    }
    return a->path != GGML_SCAN_PATH_CHUNK || t->kind != SIGNED_SCAN_ELEMENT ||
           scan_refuse(err,
                   "path is chunk; expected auto, step or reference with a transition per element");
}

struct ggml_tensor * ggml_signed_scan(struct ggml_context * ctx,
        const struct ggml_signed_scan_args * a, struct lrnn_error * err) {
    struct transition t = { 0 };
    int64_t           H = 0;
    if (!check(a, &H, &t, err)) {
        return NULL;
    }
    const struct scan_params params = {
        .scale = a->scale,
        .eps = a->eps,
        .path = a->path,
        .kind = t.kind,
        .form = a->form,
        .bonus = a->bonus != NULL,
    };
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [SIGNED_SRC_C] = a->c,
        [SIGNED_SRC_B] = a->b,
        [SIGNED_SRC_X] = a->x,
        [SIGNED_SRC_GATE] = t.gate,
        [SIGNED_SRC_AUX] = t.aux,
    };
    return scan_node(ctx, GGML_OP_SIGNED_SCAN, a->x->ne[0], H, a->b->ne[3], &params, src, 7);
}
