// Builder of GGML_OP_HOUSEHOLDER_SCAN: checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

// k, v and the state define the sizes; all other tensors must match. Sets the number of heads.
static bool check(struct ggml_tensor * const * src, int64_t * H, struct lrnn_error * err) {
    const struct ggml_tensor * state = src[SCAN_SRC_STATE];
    const struct ggml_tensor * q = src[HOUSEHOLDER_SRC_Q], *k = src[HOUSEHOLDER_SRC_K];
    const struct ggml_tensor * v = src[HOUSEHOLDER_SRC_V], *beta = src[HOUSEHOLDER_SRC_BETA];
    const struct ggml_tensor * gate = src[HOUSEHOLDER_SRC_GATE];
    const struct ggml_tensor * r = src[HOUSEHOLDER_SRC_R], *w = src[HOUSEHOLDER_SRC_W];
    if (!scan_check_state(state, src[SCAN_SRC_IDS], -1, err)) {
        return false;
    }
    if (k == NULL || v == NULL) {
        return scan_refuse(err, "%s is missing", k == NULL ? "k" : "v");
    }
    const int64_t d_k = k->ne[0], n_h = k->ne[2], T = k->ne[3];
    const int64_t d_v = v->ne[0];
    if (!scan_check_tokens("k", k, d_k, -1, n_h, T, err) ||
            !scan_check_tokens("v", v, d_v, -1, n_h, T, err)) {
        return false;
    }
    *H = scan_heads(state->ne[0], d_k, d_v, 0);
    if (*H == 0) {
        return scan_refuse(err,
                "state has %" PRId64 " floats per slot; expected a multiple of d_k·d_v = %" PRId64
                "·%" PRId64,
                state->ne[0], d_k, d_v);
    }
    if (!scan_check_tokens("k", k, d_k, *H, n_h, T, err) ||
            !scan_check_tokens("v", v, d_v, *H, n_h, T, err) ||
            !scan_check_tokens("q", q, d_k, *H, 1, T, err) ||
            (gate != NULL &&
                    !scan_check_tokens("gate", gate, gate->ne[0] == 1 ? 1 : d_k, *H, 1, T, err))) {
        return false;
    }
    if (r == NULL && w == NULL) {
        return scan_check_tokens("beta", beta, 1, *H, n_h, T, err);
    }
    if (beta != NULL) {
        return scan_refuse(err, "beta is given with r and w; expected either beta or r and w");
    }
    if (n_h != 1) {
        return scan_refuse(err, "k has %" PRId64 " factors; expected 1 with r and w", n_h);
    }
    return scan_check_tokens("r", r, d_k, *H, 1, T, err) &&
           scan_check_tokens("w", w, d_k, *H, 1, T, err);
}

struct ggml_tensor * householder_node(struct ggml_context * ctx, struct ggml_tensor * const * src,
        struct scan_params p, struct lrnn_error * err) {
    int64_t H = 0;
    if (!check(src, &H, err)) {
        return NULL;
    }
    return scan_node(ctx, GGML_OP_HOUSEHOLDER_SCAN, src[HOUSEHOLDER_SRC_V]->ne[0], H,
            src[HOUSEHOLDER_SRC_K]->ne[3],
            &(struct scan_params) { .scale = p.scale, .path = p.path }, src, 9);
}

struct ggml_tensor * ggml_householder_scan(struct ggml_context * ctx,
        const struct ggml_householder_scan_args * a, struct lrnn_error * err) {
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
    const struct scan_params params = { .scale = a->scale, .path = a->path };
    return householder_node(ctx, src, params, err);
}
