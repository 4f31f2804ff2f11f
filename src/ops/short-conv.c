// Builder of GGML_OP_SHORT_CONV: checks the shapes and makes the node.

#include "scan-common.h"

#include <inttypes.h>

static bool check(const struct ggml_short_conv_args * a, struct lrnn_error * err) {
    if (a->x == NULL) {
        return scan_refuse(err, "x is missing");
    }
    if (a->x->type != GGML_TYPE_F32 || a->x->nb[0] != sizeof(float) ||
            a->x->nb[1] % sizeof(float) != 0 || a->x->ne[0] < 1 || a->x->ne[1] < 1 ||
            a->x->ne[2] != 1 || a->x->ne[3] != 1) {
        return scan_refuse(err,
                "x is %s " SCAN_SHAPE "; expected f32 [channels, tokens] with contiguous rows",
                ggml_type_name(a->x->type), SCAN_SHAPE_OF(a->x));
    }
    const int64_t channels = a->x->ne[0];
    int64_t       width = 2; // token shift

    if (a->weight != NULL) {
        width = a->weight->ne[0];
        if (a->weight->type != GGML_TYPE_F32 || !ggml_is_contiguous(a->weight) || width < 2 ||
                a->weight->ne[1] != channels || a->weight->ne[2] != 1 || a->weight->ne[3] != 1) {
            return scan_refuse(err,
                    "weight is %s " SCAN_SHAPE "; expected contiguous f32 [2 or more, %" PRId64 "]",
                    ggml_type_name(a->weight->type), SCAN_SHAPE_OF(a->weight), channels);
        }
    } else if (a->bias != NULL || a->activation != GGML_SHORT_CONV_NONE) {
        return scan_refuse(err, "%s is given without weight; a token shift has none",
                a->bias != NULL ? "bias" : "activation");
    }
    if ((int) a->activation < 0 || a->activation >= GGML_SHORT_CONV_ACTIVATIONS) {
        return scan_refuse(err, "activation is %d; expected 0 to %d", (int) a->activation,
                GGML_SHORT_CONV_ACTIVATIONS - 1);
    }
    if (a->bias != NULL && (a->bias->type != GGML_TYPE_F32 || !ggml_is_contiguous(a->bias) ||
                                   ggml_nelements(a->bias) != channels)) {
        return scan_refuse(err,
                "bias is %s with %" PRId64 " elements; expected contiguous f32 with %" PRId64,
                ggml_type_name(a->bias->type), ggml_nelements(a->bias), channels);
    }
    return scan_check_state(a->state, a->ids, channels * (width - 1), err);
}

struct ggml_tensor * ggml_short_conv(
        struct ggml_context * ctx, const struct ggml_short_conv_args * a, struct lrnn_error * err) {
    if (!check(a, err)) {
        return NULL;
    }
    struct ggml_tensor * const src[] = {
        [SCAN_SRC_STATE] = a->state,
        [SCAN_SRC_IDS] = a->ids,
        [CONV_SRC_X] = a->x,
        [CONV_SRC_WEIGHT] = a->weight,
        [CONV_SRC_BIAS] = a->bias,
    };
    return scan_node(ctx, GGML_OP_SHORT_CONV, a->x->ne[0], a->x->ne[1], 1,
            &(struct scan_params) { .activation = a->activation }, src, 5);
}
