#include "scan-common.h"

#include "lrnn.h" // struct lrnn_error

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Parameters and sizes of a node -------------------------------------------------------------

_Static_assert(sizeof(struct scan_params) <= GGML_MAX_OP_PARAMS, "scan_params must fit op_params");

struct scan_params ggml_scan_params_get(const struct ggml_tensor * op) {
    struct scan_params params;
    memcpy(&params, op->op_params, sizeof(params));
    return params;
}

bool ggml_is_scan(const struct ggml_tensor * op) {
    return op->op == GGML_OP_HOUSEHOLDER_SCAN || op->op == GGML_OP_SIGNED_SCAN ||
           op->op == GGML_OP_LSTM_SCAN || op->op == GGML_OP_SHORT_CONV;
}

struct scan_dims ggml_scan_dims_get(const struct ggml_tensor * op) {
    const struct ggml_tensor * state = op->src[SCAN_SRC_STATE];
    const struct ggml_tensor * ids = op->src[SCAN_SRC_IDS];

    struct scan_dims dims = {
        .n_h = 1,
        .n_seqs = ids->ne[1],
        .n_snap = ids->ne[0] - GGML_SCAN_SNAPS,
        .n_slots = state->ne[1],
    };

    if (op->op == GGML_OP_SHORT_CONV) { // one head: width − 1 rows, the channels are columns
        dims.d_v = op->ne[0];
        dims.n_head = 1;
        dims.n_tokens = op->ne[1];
        dims.d_k = state->ne[0] / dims.d_v;
        dims.head_size = state->ne[0];
        return dims;
    }

    dims.d_v = op->ne[0];
    dims.n_head = op->ne[1];
    dims.n_tokens = op->ne[2];
    dims.head_size = state->ne[0] / dims.n_head;
    switch (op->op) {
        case GGML_OP_HOUSEHOLDER_SCAN:
            dims.n_h = op->src[HOUSEHOLDER_SRC_K]->ne[2];
            dims.d_k = op->src[HOUSEHOLDER_SRC_K]->ne[0];
            break;
        case GGML_OP_LSTM_SCAN: dims.d_k = dims.head_size / dims.d_v; break;
        default: dims.d_k = op->src[SIGNED_SRC_B]->ne[0]; break;
    }
    return dims;
}

// ---- Sequences and slots ------------------------------------------------------------------------

bool ggml_scan_seq_get(const struct ggml_tensor * op, int64_t s, struct scan_seq * seq) {
    const struct scan_dims dims = ggml_scan_dims_get(op);
    const int32_t *        id =
            (const int32_t *) op->src[SCAN_SRC_IDS]->data + s * (GGML_SCAN_SNAPS + dims.n_snap);

    *seq = (struct scan_seq) {
        .slot_in = id[GGML_SCAN_SLOT_IN],
        .slot_out = id[GGML_SCAN_SLOT_OUT],
        .first = id[GGML_SCAN_FIRST],
        .count = id[GGML_SCAN_COUNT],
        .snaps = id + GGML_SCAN_SNAPS,
    };

    bool ok = seq->slot_in >= -1 && seq->slot_in < dims.n_slots && seq->slot_out >= 0 &&
              seq->slot_out < dims.n_slots && seq->first >= 0 && seq->count >= 0 &&
              seq->first + seq->count <= dims.n_tokens;
    for (int64_t i = 0; i < dims.n_snap; ++i) {
        ok = ok && seq->snaps[i] >= -1 && seq->snaps[i] < dims.n_slots;
    }
    return ok;
}

// Index after i of the slots that a sequence writes: SLOT_OUT, then the snapshots.
static int64_t next_written(int64_t i) {
    return i == GGML_SCAN_SLOT_OUT ? GGML_SCAN_SNAPS : i + 1;
}

enum { NOBODY = -1, SEVERAL = -2 }; // in place of a sequence that reads, writes or owns

bool ggml_scan_ids_check(const int32_t * ids, int64_t n_snap, int64_t n_seqs, int64_t n_slots,
        int64_t n_tokens, struct lrnn_error * err) {
    const int64_t stride = GGML_SCAN_SNAPS + n_snap;

    if (n_snap < 0 || n_seqs < 0 || n_slots < 0 || n_tokens < 0) {
        return scan_refuse(err,
                "negative size: %" PRId64 " snapshots, %" PRId64 " sequences, %" PRId64
                " slots, %" PRId64 " tokens",
                n_snap, n_seqs, n_slots, n_tokens);
    }

    // ranges
    for (int64_t s = 0; s < n_seqs; ++s) {
        const int32_t * id = ids + s * stride;
        if (id[GGML_SCAN_SLOT_IN] < -1 || id[GGML_SCAN_SLOT_IN] >= n_slots) {
            return scan_refuse(err, "sequence %" PRId64 " reads slot %d; expected -1 to %" PRId64,
                    s, id[GGML_SCAN_SLOT_IN], n_slots - 1);
        }
        for (int64_t i = GGML_SCAN_SLOT_OUT; i < stride; i = next_written(i)) {
            const int32_t least = i == GGML_SCAN_SLOT_OUT ? 0 : -1; // -1: no snapshot
            if (id[i] < least || id[i] >= n_slots) {
                return scan_refuse(err,
                        "sequence %" PRId64 " writes slot %d; expected %d to %" PRId64, s, id[i],
                        least, n_slots - 1);
            }
        }
        if (id[GGML_SCAN_FIRST] < 0 || id[GGML_SCAN_COUNT] < 0 ||
                (int64_t) id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT] > n_tokens) {
            return scan_refuse(err,
                    "sequence %" PRId64 " has %d tokens from token %d; expected tokens of a batch "
                    "of %" PRId64,
                    s, id[GGML_SCAN_COUNT], id[GGML_SCAN_FIRST], n_tokens);
        }
    }

    // the sequence that reads and the one that writes each slot; the owner of each token
    int32_t * marks = malloc((size_t) (2 * n_slots + n_tokens + 1) * sizeof(int32_t));
    if (marks == NULL) {
        return scan_refuse(err, "out of memory to check %" PRId64 " slots and %" PRId64 " tokens",
                n_slots, n_tokens);
    }
    for (int64_t i = 0; i < 2 * n_slots + n_tokens; ++i) {
        marks[i] = NOBODY;
    }
    int32_t * reader = marks;
    int32_t * writer = marks + n_slots;
    int32_t * owner = marks + 2 * n_slots;

    bool ok = true;

    for (int64_t s = 0; s < n_seqs; ++s) {
        const int32_t slot = ids[s * stride + GGML_SCAN_SLOT_IN];
        if (slot >= 0) {
            reader[slot] = reader[slot] == NOBODY ? (int32_t) s : SEVERAL;
        }
    }
    for (int64_t s = 0; ok && s < n_seqs; ++s) {
        const int32_t * id = ids + s * stride;
        for (int64_t i = GGML_SCAN_SLOT_OUT; ok && i < stride; i = next_written(i)) {
            const int32_t slot = id[i];
            if (slot < 0) {
                continue;
            }
            if (writer[slot] != NOBODY) {
                ok = scan_refuse(err,
                        "slot %d is written twice, by sequence %d and by sequence %" PRId64, slot,
                        writer[slot], s);
            } else if (reader[slot] != NOBODY && reader[slot] != s) {
                ok = scan_refuse(err,
                        "slot %d is written by sequence %" PRId64 " and read by another sequence",
                        slot, s);
            }
            writer[slot] = (int32_t) s;
        }
    }

    for (int64_t s = 0; ok && s < n_seqs; ++s) {
        const int32_t * id = ids + s * stride;
        for (int64_t t = id[GGML_SCAN_FIRST];
                ok && t < (int64_t) id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT]; ++t) {
            if (owner[t] != NOBODY) {
                ok = scan_refuse(err,
                        "token %" PRId64 " belongs to sequence %d and to sequence %" PRId64, t,
                        owner[t], s);
            }
            owner[t] = (int32_t) s;
        }
    }
    for (int64_t t = 0; ok && t < n_tokens; ++t) {
        if (owner[t] == NOBODY) {
            ok = scan_refuse(err, "token %" PRId64 " belongs to no sequence", t);
        }
    }

    free(marks);
    return ok;
}

struct ggml_tensor * ggml_scan_state_after(struct ggml_context * ctx, struct ggml_tensor * op) {
    struct ggml_tensor * state = op->src[SCAN_SRC_STATE];
    struct ggml_tensor * after =
            ggml_view_2d(ctx, state, state->ne[0], state->ne[1], state->nb[1], 0);
    after->src[0] = op; // the data of the state, a dependency on the op
    ggml_format_name(after, "%s (after)", state->name);
    return after;
}

// ---- For the builders ---------------------------------------------------------------------------

int64_t scan_heads(int64_t slot_size, int64_t d_k, int64_t d_v, int64_t extra) {
    // after this d_k·d_v cannot overflow
    if (d_k < 1 || d_v < 1 || slot_size < 1 || d_k > slot_size || d_v > slot_size / d_k) {
        return 0;
    }
    const int64_t head_size = d_k * d_v + extra;
    return slot_size % head_size == 0 ? slot_size / head_size : 0;
}

struct ggml_tensor * scan_node(struct ggml_context * ctx, enum ggml_op op, int64_t ne0, int64_t ne1,
        int64_t ne2, const struct scan_params * params, struct ggml_tensor * const * src,
        int n_src) {
    struct ggml_tensor * node = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, ne0, ne1, ne2);
    node->op = op;
    memcpy(node->op_params, params, sizeof(*params));
    memcpy(node->src, src, (size_t) n_src * sizeof(*src));
    return node;
}

bool scan_refuse(struct lrnn_error * err, const char * fmt, ...) {
    if (err != NULL) {
        va_list args;
        va_start(args, fmt);
        err->kind = LRNN_ERROR_BAD_INPUT;
        vsnprintf(err->text, sizeof(err->text), fmt, args);
        va_end(args);
    }
    return false;
}

bool scan_check_tokens(const char * name, const struct ggml_tensor * x, int64_t width,
        int64_t n_head, int64_t factors, int64_t tokens, struct lrnn_error * err) {
    if (x == NULL) {
        return scan_refuse(err, "%s is missing", name);
    }
    if (x->type != GGML_TYPE_F32) {
        return scan_refuse(err, "%s has type %s; expected f32", name, ggml_type_name(x->type));
    }
    if (x->nb[0] != sizeof(float)) {
        return scan_refuse(
                err, "%s has elements %zu bytes apart; expected contiguous rows", name, x->nb[0]);
    }
    for (int i = 1; i < GGML_MAX_DIMS; ++i) {
        if (x->nb[i] % sizeof(float) != 0) {
            return scan_refuse(err, "%s has a stride of %zu bytes; expected a multiple of %zu",
                    name, x->nb[i], sizeof(float));
        }
    }
    if (x->ne[0] < 1 || x->ne[1] < 1 || x->ne[2] < 1 || x->ne[3] < 1) {
        return scan_refuse(err,
                "%s has shape " SCAN_SHAPE "; expected at least 1 in each dimension", name,
                SCAN_SHAPE_OF(x));
    }
    const bool heads_fit = n_head < 0 || (x->ne[1] > 0 && n_head % x->ne[1] == 0);
    if ((width >= 0 && x->ne[0] != width) || !heads_fit || x->ne[2] != factors ||
            (tokens >= 0 && x->ne[3] != tokens)) {
        char want_width[24], want_heads[48], want_tokens[24];
        snprintf(want_width, sizeof(want_width), width >= 0 ? "%" PRId64 : "any", width);
        snprintf(want_heads, sizeof(want_heads), n_head >= 0 ? "a divisor of %" PRId64 : "any",
                n_head);
        snprintf(want_tokens, sizeof(want_tokens), tokens >= 0 ? "%" PRId64 : "any", tokens);
        return scan_refuse(err, "%s has shape " SCAN_SHAPE "; expected [%s, %s, %" PRId64 ", %s]",
                name, SCAN_SHAPE_OF(x), want_width, want_heads, factors, want_tokens);
    }
    return true;
}

bool scan_check_state(const struct ggml_tensor * state, const struct ggml_tensor * ids,
        int64_t slot_size, struct lrnn_error * err) {
    if (state == NULL || ids == NULL) {
        return scan_refuse(err, "%s is missing", state == NULL ? "state" : "ids");
    }
    if (state->type != GGML_TYPE_F32 || state->nb[0] != sizeof(float) || state->ne[2] != 1 ||
            state->ne[3] != 1) {
        return scan_refuse(err,
                "state is %s " SCAN_SHAPE
                "; expected f32 [floats per slot, slots] with contiguous rows",
                ggml_type_name(state->type), SCAN_SHAPE_OF(state));
    }
    // ggml-rpc sends strides as 32-bit numbers; overlapping slots would let one sequence write the
    // state of another
    if (state->nb[1] < state->nb[0] * (size_t) state->ne[0] || state->nb[1] > UINT32_MAX ||
            state->nb[1] % sizeof(float) != 0) {
        return scan_refuse(err,
                "state has slots %zu bytes apart; expected a multiple of 4, at least %" PRId64
                " floats and less than 4 GiB",
                state->nb[1], state->ne[0]);
    }
    if (slot_size >= 0 && state->ne[0] != slot_size) {
        return scan_refuse(err, "state has %" PRId64 " floats per slot; expected %" PRId64,
                state->ne[0], slot_size);
    }
    if (state->ne[0] < 1 || state->ne[1] < 1) {
        return scan_refuse(err,
                "state has %" PRId64 " slots of %" PRId64 " floats; expected at least 1 of each",
                state->ne[1], state->ne[0]);
    }
    if (ids->ne[1] < 1) {
        return scan_refuse(err, "ids has %" PRId64 " sequences; expected at least 1", ids->ne[1]);
    }
    if (ids->type != GGML_TYPE_I32 || !ggml_is_contiguous(ids) || ids->ne[0] < GGML_SCAN_SNAPS ||
            ids->ne[2] != 1 || ids->ne[3] != 1) {
        return scan_refuse(err,
                "ids is %s " SCAN_SHAPE "; expected contiguous i32 [%d + snapshots, sequences]",
                ggml_type_name(ids->type), SCAN_SHAPE_OF(ids), GGML_SCAN_SNAPS);
    }
    return true;
}
