// Builder of GGML_OP_SHORT_CONV: checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

static bool check(struct ggml_tensor * const * src, int32_t activation, struct lrnn_error * err) {
    const struct ggml_tensor * x = src[CONV_SRC_X], *bias = src[CONV_SRC_BIAS];
    const struct ggml_tensor * weight = src[CONV_SRC_WEIGHT];
    if (x == NULL) {
        return scan_refuse(err, "x is missing");
    }
    if (x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float) || x->nb[1] % sizeof(float) != 0 ||
            x->ne[0] < 1 || x->ne[1] < 1 || x->ne[2] != 1 || x->ne[3] != 1) {
        return scan_refuse(err,
                "x is %s " SCAN_SHAPE "; expected f32 [channels, tokens] with contiguous rows",
                ggml_type_name(x->type), SCAN_SHAPE_OF(x));
    }
    const int64_t channels = x->ne[0];
    int64_t       width = 2; // token shift

    if (weight != NULL) {
        width = weight->ne[0];
        if (weight->type != GGML_TYPE_F32 || !ggml_is_contiguous(weight) || width < 2 ||
                weight->ne[1] != channels || weight->ne[2] != 1 || weight->ne[3] != 1) {
            return scan_refuse(err,
                    "weight is %s " SCAN_SHAPE "; expected contiguous f32 [2 or more, %" PRId64 "]",
                    ggml_type_name(weight->type), SCAN_SHAPE_OF(weight), channels);
        }
    } else if (bias != NULL || activation != GGML_SHORT_CONV_NONE) {
        return scan_refuse(err, "%s is given without weight; a token shift has none",
                bias != NULL ? "bias" : "activation");
    }
    if (activation < 0 || activation >= GGML_SHORT_CONV_ACTIVATIONS) {
        return scan_refuse(err, "activation is %d; expected 0 to %d", activation,
                GGML_SHORT_CONV_ACTIVATIONS - 1);
    }
    if (bias != NULL && (bias->type != GGML_TYPE_F32 || !ggml_is_contiguous(bias) ||
                                ggml_nelements(bias) != channels)) {
        return scan_refuse(err,
                "bias is %s with %" PRId64 " elements; expected contiguous f32 with %" PRId64,
                ggml_type_name(bias->type), ggml_nelements(bias), channels);
    }
    return scan_check_state(src[SCAN_SRC_STATE], src[SCAN_SRC_IDS], channels * (width - 1), err);
}

struct ggml_tensor * short_conv_node(struct ggml_context * ctx, struct ggml_tensor * const * src,
        struct scan_params p, struct lrnn_error * err) {
    const struct ggml_tensor * x = src[CONV_SRC_X];
    if (!check(src, p.activation, err)) {
        return NULL;
    }
    return scan_node(ctx, GGML_OP_SHORT_CONV, x->ne[0], x->ne[1], 1,
            &(struct scan_params) { .activation = p.activation }, src, 5);
}

struct ggml_tensor * ggml_short_conv(
        struct ggml_context * ctx, const struct ggml_short_conv_args * a, struct lrnn_error * err) {
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [CONV_SRC_X] = a->x,
        [CONV_SRC_WEIGHT] = a->weight,
        [CONV_SRC_BIAS] = a->bias,
    };
    const struct scan_params params = { .activation = (int32_t) a->activation };
    return short_conv_node(ctx, src, params, err);
}
