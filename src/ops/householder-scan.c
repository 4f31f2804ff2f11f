// Builder of GGML_OP_HOUSEHOLDER_SCAN: checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

// k, v and the state define the sizes; all other tensors must match. Sets the number of heads.
static bool check(
        const struct ggml_householder_scan_args * a, int64_t * H, struct lrnn_error * err) {
    if (!scan_check_state(a->state, a->ids, -1, err)) {
        return false;
    }
    if (a->k == NULL || a->v == NULL) {
        return scan_refuse(err, "%s is missing", a->k == NULL ? "k" : "v");
    }
    const int64_t d_k = a->k->ne[0], n_h = a->k->ne[2], T = a->k->ne[3];
    const int64_t d_v = a->v->ne[0];
    if (!scan_check_tokens("k", a->k, d_k, -1, n_h, T, err) ||
            !scan_check_tokens("v", a->v, d_v, -1, n_h, T, err)) {
        return false;
    }
    *H = scan_heads(a->state->ne[0], d_k, d_v, 0);
    if (*H == 0) {
        return scan_refuse(err,
                "state has %" PRId64 " floats per slot; expected a multiple of d_k·d_v = %" PRId64
                "·%" PRId64,
                a->state->ne[0], d_k, d_v);
    }
    const bool rw = a->r != NULL || a->w != NULL;
    if (!scan_check_tokens("k", a->k, d_k, *H, n_h, T, err) ||
            !scan_check_tokens("v", a->v, d_v, *H, n_h, T, err) ||
            !scan_check_tokens("q", a->q, d_k, *H, 1, T, err) ||
            (a->gate != NULL && !scan_check_tokens("gate", a->gate, a->gate->ne[0] == 1 ? 1 : d_k,
                                        *H, 1, T, err))) {
        return false;
    }
    if (!rw) {
        return scan_check_tokens("beta", a->beta, 1, *H, n_h, T, err);
    }
    if (a->beta != NULL) {
        return scan_refuse(err, "beta is given with r and w; expected either beta or r and w");
    }
    if (n_h != 1) {
        return scan_refuse(err, "k has %" PRId64 " factors; expected 1 with r and w", n_h);
    }
    return scan_check_tokens("r", a->r, d_k, *H, 1, T, err) &&
           scan_check_tokens("w", a->w, d_k, *H, 1, T, err);
}

struct ggml_tensor * ggml_householder_scan(struct ggml_context * ctx,
        const struct ggml_householder_scan_args * a, struct lrnn_error * err) {
    int64_t H = 0;
    if (!check(a, &H, err)) {
        return NULL;
    }
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [HOUSEHOLDER_SRC_Q] = a->q,
        [HOUSEHOLDER_SRC_K] = a->k,
        [HOUSEHOLDER_SRC_V] = a->v,
        [HOUSEHOLDER_SRC_BETA] = a->beta,
        [HOUSEHOLDER_SRC_GATE] = a->gate,
        [HOUSEHOLDER_SRC_R] = a->r,
        [HOUSEHOLDER_SRC_W] = a->w,
    };
    return scan_node(ctx, GGML_OP_HOUSEHOLDER_SCAN, a->v->ne[0], H, a->k->ne[3],
            &(struct scan_params) { .scale = a->scale, .path = a->path }, src, 9);
}
