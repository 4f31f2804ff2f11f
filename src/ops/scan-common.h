#pragma once

// Shared by the builders and all backends: the sources and parameters of a scan node. Functions
// with GGML_API are exported for the backends; no header with them is installed.

#include "lrnn-ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sources of the ops. 0 is always the state, which is written; 1 is always the ids.
enum scan_src {
    SCAN_SRC_STATE = 0,
    SCAN_SRC_IDS = 1,

    HOUSEHOLDER_SRC_Q = 2,
    HOUSEHOLDER_SRC_K = 3,
    HOUSEHOLDER_SRC_V = 4,
    HOUSEHOLDER_SRC_BETA = 5, // NULL in the form with r and w
    HOUSEHOLDER_SRC_GATE = 6, // NULL: 1
    HOUSEHOLDER_SRC_R = 7,
    HOUSEHOLDER_SRC_W = 8,

    SIGNED_SRC_C = 2,
    SIGNED_SRC_B = 3,
    SIGNED_SRC_X = 4,
    SIGNED_SRC_GATE = 5, // gate, dt or log_f; NULL: 1
    SIGNED_SRC_AUX = 6,  // bonus, A or log_i

    LSTM_SRC_X = 2,
    LSTM_SRC_R = 3,

    CONV_SRC_X = 2,
    CONV_SRC_WEIGHT = 3, // NULL: token shift
    CONV_SRC_BIAS = 4,
};

// The transition of a signed-gate scan.
enum signed_scan_kind {
    SIGNED_SCAN_NONE,    // A = 1
    SIGNED_SCAN_HEAD,    // one gate per head
    SIGNED_SCAN_CHANNEL, // one gate per key channel
    SIGNED_SCAN_ELEMENT, // from dt [d_v] and A [d_v, d_k]: Mamba
    SIGNED_SCAN_SCALAR,  // from dt [1] and A [1]: Mamba-2
    SIGNED_SCAN_MLSTM,
};

struct scan_params { // stored in op_params, at most 64 bytes
    float   scale;
    float   eps;
    int32_t path;       // enum ggml_scan_path
    int32_t kind;       // enum signed_scan_kind
    int32_t form;       // enum ggml_signed_scan_form or ggml_lstm_scan_form
    int32_t bonus;      // SIGNED_SRC_AUX is a bonus: read before the update
    int32_t activation; // enum ggml_short_conv_activation
};

GGML_API struct scan_params ggml_scan_params_get(const struct ggml_tensor * op);

// The name of source i in lrnn-ops.h: "q", "beta", "log_f", …
GGML_API const char * ggml_scan_src_name(const struct ggml_tensor * op, int i);

// The sizes of a scan, taken from its sources.
struct scan_dims {
    int64_t d_k, d_v;
    int64_t n_head; // H, of the state
    int64_t n_h;    // factors per token
    int64_t n_tokens;
    int64_t n_seqs;
    int64_t n_snap;
    int64_t n_slots;
    int64_t head_size; // floats of one head in a slot
};

GGML_API struct scan_dims ggml_scan_dims_get(const struct ggml_tensor * op);

// One sequence of a batch, as defined by the ids.
struct scan_seq {
    int64_t         slot_in, slot_out;
    int64_t         first, count;
    const int32_t * snaps; // n_snap slots
};

// Reads sequence s. Returns false if a slot or a token is out of range; such a sequence must not be
// computed.
GGML_API bool ggml_scan_seq_get(const struct ggml_tensor * op, int64_t s, struct scan_seq * seq);

// ---- For the builders ---------------------------------------------------------------------------

// Formats a message into err and returns false.
bool scan_refuse(struct lrnn_error * err, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;

// Makes the node of an op, F32 [ne0, ne1, ne2].
struct ggml_tensor * scan_node(struct ggml_context * ctx, enum ggml_op op, int64_t ne0, int64_t ne1,
        int64_t ne2, const struct scan_params * params, struct ggml_tensor * const * src,
        int n_src);

// What the builders make of their arguments, and what a node of another process must be equal to:
// the node with these sources and the parameters that the op uses. NULL: they are not valid. Of
// p.kind only the class counts: a gate, dt and A, or mLSTM.
typedef struct ggml_tensor * scan_builder(struct ggml_context * ctx,
        struct ggml_tensor * const * src, struct scan_params p, struct lrnn_error * err);
scan_builder householder_node, signed_node, lstm_node, short_conv_node;

// The shape of a tensor in a message
#define SCAN_SHAPE       "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]"
#define SCAN_SHAPE_OF(x) (x)->ne[0], (x)->ne[1], (x)->ne[2], (x)->ne[3]

// Checks that tensor `x` is F32 [width, heads | n_head, factors, tokens] with contiguous rows. A
// negative width or token count is not checked.
bool scan_check_tokens(const char * name, const struct ggml_tensor * x, int64_t width,
        int64_t n_head, int64_t factors, int64_t tokens, struct lrnn_error * err);

// The number of heads of d_k·d_v + extra floats in a slot; 0 if they do not fill it.
int64_t scan_heads(int64_t slot_size, int64_t d_k, int64_t d_v, int64_t extra);

// Checks state and ids. Each slot must have `slot_size` floats; slot_size < 0: any size.
bool scan_check_state(const struct ggml_tensor * state, const struct ggml_tensor * ids,
        int64_t slot_size, struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
