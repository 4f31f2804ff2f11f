// Checks of received messages, for the RPC server. ggml checks shapes when a graph is built and
// asserts them when it is computed. A graph that arrives from a client was built elsewhere, if at
// all, so that every rule of a kernel is checked here before it runs.
//
// A server computes the ops that graphs of lrnn contain, with the types and layouts that they have
// there, and no others.

#include "glue.h"
#include "lrnn-ops.h"

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    TENSORS_MAX = 1 << 20, // of a graph
    BUFFERS_MAX = 1 << 16,
    IDS_MAX = 256, // different tensors of ids in a graph
};

static const uint64_t BYTES_MAX = UINT64_C(1) << 60; // sums of a few of them do not overflow

// ---- Tensors ------------------------------------------------------------------------------------

struct rule;
static const struct rule * rule_of(uint32_t op); // NULL: not in graphs of lrnn

// The alignment of every element, if the first one is aligned: the largest power of two that
// divides the size of an element or block, at most 8.
static uint64_t type_alignment(enum ggml_type type) {
    const uint64_t size = ggml_type_size(type);
    const uint64_t align = size & (~size + 1);
    return align < 8 ? align : 8;
}

bool ggml_lrnn_rpc_tensor_ok(
        uint32_t type, uint32_t op, const uint32_t * ne, const uint32_t * nb, uint64_t data) {
    if (type >= GGML_TYPE_COUNT || ggml_blck_size((enum ggml_type) type) == 0 ||
            ggml_type_size((enum ggml_type) type) == 0 || rule_of(op) == NULL) {
        return false;
    }
    const uint64_t align = type_alignment((enum ggml_type) type);
    uint64_t       bytes = ggml_type_size((enum ggml_type) type); // of as many elements, contiguous
    bool           ok = data % align == 0 && ne[0] % ggml_blck_size((enum ggml_type) type) == 0;
    for (int i = 0; ok && i < GGML_MAX_DIMS; ++i) {
        const uint64_t n = ne[i] > 0 ? ne[i] : 1;
        ok = nb[i] % align == 0 && n <= BYTES_MAX / bytes && (nb[i] == 0 || n <= BYTES_MAX / nb[i]);
        bytes *= n;
    }
    return ok;
}

// The bytes [from, to) of a tensor.
struct range {
    uint64_t from, to;
};

static struct range range_of(const struct ggml_tensor * x) {
    const uint64_t from = (uint64_t) (uintptr_t) x->data;
    return (struct range) { from, from + ggml_nbytes(x) };
}

static bool ranges_overlap(struct range a, struct range b) {
    return a.from < b.to && b.from < a.to;
}

static bool same_layout(const struct ggml_tensor * a, const struct ggml_tensor * b) {
    bool same = a->type == b->type;
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        same = same && a->ne[i] == b->ne[i] && (a->ne[i] == 1 || a->nb[i] == b->nb[i]);
    }
    return same;
}

bool ggml_lrnn_rpc_copy_ok(const struct ggml_tensor * from, const struct ggml_tensor * to) {
    return same_layout(from, to) &&
           (from->data == to->data || !ranges_overlap(range_of(from), range_of(to)));
}

bool ggml_lrnn_rpc_alloc_ok(
        ggml_backend_t backend, uint64_t size, uint64_t n_buffers, uint64_t in_use) {
    size_t free, total;
    ggml_backend_dev_memory(ggml_backend_get_device(backend), &free, &total);
    const uint64_t limit = total > 0 && total < BYTES_MAX ? total : BYTES_MAX;
    return n_buffers < BUFFERS_MAX && in_use <= limit && size <= limit - in_use;
}

bool ggml_lrnn_rpc_init_ok(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor) {
    tensor->op = GGML_OP_NONE; // its sources are not known here
    const uint64_t end = (uint64_t) (uintptr_t) ggml_backend_buffer_get_base(buffer) + buffer->size;
    return ggml_backend_buffer_get_alloc_size(buffer, tensor) <= end - range_of(tensor).from;
}

// ---- Nodes --------------------------------------------------------------------------------------

static bool is_f32(const struct ggml_tensor * x) {
    return x != NULL && x->type == GGML_TYPE_F32;
}

static bool is_f32_rows(const struct ggml_tensor * x) {
    return is_f32(x) && x->nb[0] == sizeof(float);
}

static bool same_shape(const struct ggml_tensor * a, const struct ggml_tensor * b) {
    return ggml_are_same_shape(a, b);
}

static bool shape_is(
        const struct ggml_tensor * x, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return x->ne[0] == ne0 && x->ne[1] == ne1 && x->ne[2] == ne2 && x->ne[3] == ne3;
}

// Every dimension of `whole` is a multiple of that of `part`, from dimension `first` on.
static bool repeats(const struct ggml_tensor * whole, const struct ggml_tensor * part, int first) {
    bool ok = true;
    for (int i = first; i < GGML_MAX_DIMS; ++i) {
        ok = ok && whole->ne[i] % part->ne[i] == 0;
    }
    return ok;
}

// A matrix of weights: rows of floats or blocks that ggml can multiply. Q8_1 and Q8_K only hold
// intermediate results.
static bool is_matrix(const struct ggml_tensor * x) {
    const struct ggml_type_traits * traits = ggml_get_type_traits(x->type);
    const bool type_ok = x->type == GGML_TYPE_F32 || x->type == GGML_TYPE_F16 ||
                         x->type == GGML_TYPE_BF16 ||
                         (traits->is_quantized && traits->to_float != NULL &&
                                 x->type != GGML_TYPE_Q8_1 && x->type != GGML_TYPE_Q8_K);
    const size_t size = ggml_type_size(x->type);
    return type_ok && x->nb[0] == size && x->nb[1] % size == 0 && x->nb[2] % size == 0 &&
           x->nb[3] % size == 0;
}

static int32_t param_i32(const struct ggml_tensor * op, int i) {
    return op->op_params[i];
}

static float param_f32(const struct ggml_tensor * op, int i) {
    float value;
    memcpy(&value, op->op_params + i, sizeof(value));
    return value;
}

static bool map_ok(const struct ggml_tensor * op) {
    return is_f32_rows(op->src[0]) && same_shape(op, op->src[0]);
}

static bool unary_ok(const struct ggml_tensor * op) {
    switch (param_i32(op, 0)) {
        case GGML_UNARY_OP_NEG:
        case GGML_UNARY_OP_TANH:
        case GGML_UNARY_OP_ELU:
        case GGML_UNARY_OP_RELU:
        case GGML_UNARY_OP_SIGMOID:
        case GGML_UNARY_OP_SILU:
        case GGML_UNARY_OP_EXP:
        case GGML_UNARY_OP_SOFTPLUS: return map_ok(op);
        default: return false;
    }
}

// The result of a product is not transposed, also where a dimension is 1.
static bool strides_rise(const struct ggml_tensor * op) {
    return op->nb[0] <= op->nb[1] && op->nb[1] <= op->nb[2] && op->nb[2] <= op->nb[3];
}

static bool mul_mat_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor * a = op->src[0];
    const struct ggml_tensor * b = op->src[1];
    return is_matrix(a) && is_f32_rows(b) && a->ne[0] == b->ne[0] && repeats(b, a, 2) &&
           shape_is(op, a->ne[1], b->ne[1], b->ne[2], b->ne[3]) && strides_rise(op) &&
           param_i32(op, 1) == 0; // no hint about the matrix
}

// y [out, k, T] = matrices ids[k, T] of a [in, out, X], times x [in, 1 or k, T]
static bool mul_mat_id_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    return is_matrix(a) && a->ne[3] == 1 && is_f32_rows(b) && b->ne[3] == 1 &&
           a->ne[0] == b->ne[0] && ids->type == GGML_TYPE_I32 && ids->nb[0] == sizeof(int32_t) &&
           shape_is(ids, ids->ne[0], b->ne[2], 1, 1) && ids->ne[0] % b->ne[1] == 0 &&
           shape_is(op, a->ne[1], ids->ne[0], b->ne[2], 1) && strides_rise(op);
}

static bool get_rows_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor * a = op->src[0];
    const struct ggml_tensor * ids = op->src[1];
    return is_matrix(a) && ids->type == GGML_TYPE_I32 && a->ne[2] == ids->ne[1] &&
           a->ne[3] == ids->ne[2] && ids->ne[3] == 1 &&
           shape_is(op, a->ne[0], ids->ne[0], ids->ne[1], ids->ne[2]);
}

// The types of attention caches.
static bool is_cache_format(enum ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_Q8_0;
}

static bool set_rows_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor * rows = op->src[0];
    const struct ggml_tensor * ids = op->src[1];
    const struct ggml_tensor * into = op->src[2];
    return is_cache_format(into->type) && into->ne[0] % ggml_blck_size(into->type) == 0 &&
           into->nb[0] == ggml_type_size(into->type) && into->data == op->data &&
           same_layout(into, op) && is_f32_rows(rows) &&
           shape_is(op, rows->ne[0], op->ne[1], rows->ne[2], rows->ne[3]) &&
           (ids->type == GGML_TYPE_I32 || ids->type == GGML_TYPE_I64) &&
           ids->ne[0] == rows->ne[1] && ids->ne[3] == 1 && rows->ne[2] % ids->ne[1] == 0 &&
           rows->ne[3] % ids->ne[2] == 0;
}

static bool concat_ok(const struct ggml_tensor * op) {
    const int32_t dim = param_i32(op, 0);
    if (!is_f32(op->src[0]) || !is_f32(op->src[1]) || dim < 0 || dim >= GGML_MAX_DIMS) {
        return false;
    }
    bool ok = true;
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        const int64_t a = op->src[0]->ne[i];
        const int64_t b = op->src[1]->ne[i];
        ok = ok && (i == dim ? op->ne[i] == a + b : op->ne[i] == a && a == b);
    }
    return ok;
}

static bool rope_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor * positions = op->src[1];
    const struct ggml_tensor * factors = op->src[2];
    const int32_t              n_dims = param_i32(op, 1);
    const int32_t              mode = param_i32(op, 2);
    bool ok = is_f32_rows(op->src[0]) && same_shape(op, op->src[0]) && op->ne[0] % 2 == 0 &&
              n_dims > 0 && n_dims % 2 == 0 && n_dims <= op->ne[0] &&
              (mode == GGML_ROPE_TYPE_NORMAL || mode == GGML_ROPE_TYPE_NEOX) &&
              positions->type == GGML_TYPE_I32 && ggml_is_contiguous(positions) &&
              shape_is(positions, op->ne[2], 1, 1, 1) &&
              (factors == NULL || (is_f32(factors) && ggml_is_contiguous(factors) &&
                                          factors->ne[0] >= op->ne[0] / 2));
    for (int i = 11; i < 16; ++i) { // sections and offset of other modes
        ok = ok && param_i32(op, i) == 0;
    }
    return ok;
}

// o [P, H, n] = attention of q [L, n, H] to k [L, rows, HK] and v [P, rows, HK], with mask F16
// [rows, n]
static bool flash_attn_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return is_f32_rows(q) && q->ne[3] == 1 && is_cache_format(k->type) && is_matrix(k) &&
           v->type == k->type && is_matrix(v) && k->ne[0] == q->ne[0] &&
           shape_is(v, v->ne[0], k->ne[1], k->ne[2], k->ne[3]) && repeats(q, k, 2) &&
           mask->type == GGML_TYPE_F16 && ggml_is_contiguous(mask) &&
           shape_is(mask, k->ne[1], q->ne[1], 1, 1) &&
           shape_is(op, v->ne[0], q->ne[2], q->ne[1], 1) && isfinite(param_f32(op, 0)) &&
           param_f32(op, 1) == 0.0f && param_f32(op, 2) == 0.0f && // ALiBi, soft cap
           param_i32(op, 3) == GGML_PREC_F32;
}

static bool arange_ok(const struct ggml_tensor * op) {
    const float n = ceilf((param_f32(op, 1) - param_f32(op, 0)) / param_f32(op, 2));
    return n >= 1.0f && n <= (float) (1 << 24) && ggml_nelements(op) == (int64_t) n;
}

// Both halves in two tensors, or side by side in the rows of one
static bool glu_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t             kind = param_i32(op, 0);
    if ((kind != GGML_GLU_OP_SWIGLU && kind != GGML_GLU_OP_GEGLU_ERF) || !is_f32_rows(a) ||
            !ggml_is_contiguous_1(a)) {
        return false;
    }
    return b == NULL ? shape_is(a, 2 * op->ne[0], op->ne[1], op->ne[2], op->ne[3])
                     : is_f32_rows(b) && ggml_is_contiguous_1(b) && same_shape(op, a) &&
                               same_shape(op, b);
}

// Without a mask
static bool soft_max_ok(const struct ggml_tensor * op) {
    return map_ok(op) && isfinite(param_f32(op, 0)) && param_f32(op, 1) == 0.0f;
}

static bool argsort_ok(const struct ggml_tensor * op) {
    return op->type == GGML_TYPE_I32 && is_f32(op->src[0]) && ggml_is_contiguous(op->src[0]) &&
           same_shape(op, op->src[0]) && param_i32(op, 0) == GGML_SORT_ORDER_DESC;
}

static bool binary_ok(const struct ggml_tensor * op) {
    return is_f32_rows(op->src[0]) && is_f32(op->src[1]) && same_shape(op, op->src[0]) &&
           repeats(op->src[0], op->src[1], 0);
}

static bool scale_ok(const struct ggml_tensor * op) {
    return map_ok(op) && ggml_is_contiguous(op->src[0]);
}

static bool norm_ok(const struct ggml_tensor * op) {
    return map_ok(op) && param_f32(op, 0) >= 0.0f;
}

static bool sum_rows_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor * a = op->src[0];
    return is_f32_rows(a) && shape_is(op, 1, a->ne[1], a->ne[2], a->ne[3]);
}

static bool repeat_ok(const struct ggml_tensor * op) {
    return is_f32_rows(op->src[0]) && repeats(op, op->src[0], 0);
}

static bool cont_ok(const struct ggml_tensor * op) {
    return op->src[0]->type == op->type && ggml_nelements(op->src[0]) == ggml_nelements(op) &&
           ggml_nelements(op) <= INT32_MAX;
}

static bool fill_ok(const struct ggml_tensor * op) {
    return is_f32(op->src[0]) && same_shape(op, op->src[0]);
}

static bool scan_ok(const struct ggml_tensor * op) {
    return ggml_scan_check_node(op, NULL);
}

// The ops that graphs of lrnn contain. A new op needs a row.
struct rule {
    enum ggml_op op;
    int          min, max;                     // sources
    bool (*ok)(const struct ggml_tensor * op); // types, shapes and parameters; NULL: not computed
};

// clang-format off
static const struct rule RULES[] = {
    { GGML_OP_NONE,             0, GGML_MAX_SRC, NULL },
    { GGML_OP_VIEW,             0, GGML_MAX_SRC, NULL },
    { GGML_OP_RESHAPE,          0, GGML_MAX_SRC, NULL },
    { GGML_OP_PERMUTE,          0, GGML_MAX_SRC, NULL },
    { GGML_OP_TRANSPOSE,        0, GGML_MAX_SRC, NULL },
    { GGML_OP_ADD,              2, 2, binary_ok },
    { GGML_OP_SUB,              2, 2, binary_ok },
    { GGML_OP_MUL,              2, 2, binary_ok },
    { GGML_OP_DIV,              2, 2, binary_ok },
    { GGML_OP_SQR,              1, 1, map_ok },
    { GGML_OP_SCALE,            1, 1, scale_ok },
    { GGML_OP_CLAMP,            1, 1, scale_ok },
    { GGML_OP_UNARY,            1, 1, unary_ok },
    { GGML_OP_GLU,              1, 2, glu_ok },
    { GGML_OP_SUM_ROWS,         1, 1, sum_rows_ok },
    { GGML_OP_REPEAT,           1, 1, repeat_ok },
    { GGML_OP_NORM,             1, 1, norm_ok },
    { GGML_OP_RMS_NORM,         1, 1, norm_ok },
    { GGML_OP_L2_NORM,          1, 1, norm_ok },
    { GGML_OP_FLASH_ATTN_EXT,   4, 4, flash_attn_ok },
    { GGML_OP_MUL_MAT,          2, 2, mul_mat_ok },
    { GGML_OP_MUL_MAT_ID,       3, 3, mul_mat_id_ok },
    { GGML_OP_SOFT_MAX,         1, 1, soft_max_ok },
    { GGML_OP_ARGSORT,          1, 1, argsort_ok },
    { GGML_OP_GET_ROWS,         2, 2, get_rows_ok },
    { GGML_OP_SET_ROWS,         3, 3, set_rows_ok },
    { GGML_OP_CONCAT,           2, 2, concat_ok },
    { GGML_OP_CONT,             1, 1, cont_ok },
    { GGML_OP_ROPE,             2, 3, rope_ok },
    { GGML_OP_FILL,             1, 1, fill_ok },
    { GGML_OP_ARANGE,           0, 0, arange_ok },
    { GGML_OP_HOUSEHOLDER_SCAN, 0, GGML_MAX_SRC, scan_ok }, // which looks at its sources
    { GGML_OP_SIGNED_SCAN,      0, GGML_MAX_SRC, scan_ok },
    { GGML_OP_LSTM_SCAN,        0, GGML_MAX_SRC, scan_ok },
    { GGML_OP_SHORT_CONV,       0, GGML_MAX_SRC, scan_ok },
};
// clang-format on

static const struct rule * rule_of(uint32_t op) {
    for (size_t i = 0; i < sizeof(RULES) / sizeof(RULES[0]); ++i) {
        if (RULES[i].op == op) {
            return &RULES[i];
        }
    }
    return NULL;
}

static bool sources_exist(const struct ggml_tensor * op, const struct rule * rule) {
    bool ok = true;
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        ok = ok && (op->src[i] != NULL ? i < rule->max : i >= rule->min);
    }
    return ok;
}

// The tensor is in a buffer of the backend and has elements, and no two of them share memory that
// would make it larger than its buffer.
static bool memory_ok(ggml_backend_t backend, const struct ggml_tensor * x) {
    if (x->buffer == NULL || (x->view_src != NULL && x->view_src->buffer != x->buffer) ||
            x->data == NULL || ggml_is_empty(x) || x->ne[0] > INT32_MAX ||
            ggml_nrows(x) > INT32_MAX) {
        return false;
    }
    const uint64_t n_blocks = (uint64_t) ggml_nelements(x) / (uint64_t) ggml_blck_size(x->type);
    return n_blocks <= x->buffer->size / ggml_type_size(x->type) &&
           ggml_backend_supports_buft(backend, x->buffer->buft);
}

// A node may be computed in place of a source of the same layout. Otherwise it must not share
// memory with its sources, and a scan not even then.
static bool places_ok(const struct ggml_tensor * op) {
    const struct ggml_tensor * state = ggml_is_scan(op) ? op->src[0] : NULL;
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        const struct ggml_tensor * x = op->src[i];
        if (x == NULL) {
            continue;
        }
        const bool in_place = state == NULL && x->data == op->data && same_layout(x, op);
        if (!in_place && ranges_overlap(range_of(op), range_of(x))) {
            return false;
        }
        if (state != NULL && i > 0 && ranges_overlap(range_of(state), range_of(x))) {
            return false;
        }
    }
    return true;
}

static bool is_computed(const struct ggml_tensor * x) {
    const struct rule * rule = rule_of((uint32_t) x->op);
    return rule == NULL || rule->ok != NULL;
}

static bool node_ok(ggml_backend_t backend, const struct ggml_tensor * op) {
    const struct rule * rule = rule_of((uint32_t) op->op);
    if (rule != NULL && rule->ok == NULL) {
        return true;
    }
    if (rule == NULL || !sources_exist(op, rule) || !memory_ok(backend, op)) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        if (op->src[i] != NULL && !memory_ok(backend, op->src[i])) {
            return false;
        }
    }
    const bool own = op->op != GGML_OP_SET_ROWS; // not a view
    return (!own || (ggml_is_contiguous(op) && op->nb[0] == ggml_type_size(op->type) &&
                            (op->type == GGML_TYPE_F32 || op->op == GGML_OP_CONT ||
                                    op->op == GGML_OP_ARGSORT))) &&
           rule->ok(op) && places_ok(op) && ggml_backend_supports_op(backend, op);
}

//
// Ids: numbers of rows, slots, tokens and experts. They are data, so that a call may change them,
// or the graph computes them: ARGSORT gives a permutation of the numbers below the length of a row.
//

struct ids {
    const struct ggml_tensor * tensors[IDS_MAX];
    void *                     values[IDS_MAX];
    int                        last_use[IDS_MAX]; // index of a node
    int                        n;
};

static const struct ggml_tensor * ids_of(const struct ggml_tensor * op) {
    const bool has = ggml_is_scan(op) || op->op == GGML_OP_GET_ROWS || op->op == GGML_OP_SET_ROWS;
    return has ? op->src[1] : op->op == GGML_OP_MUL_MAT_ID ? op->src[2] : NULL;
}

static bool node_writes(const struct ggml_tensor * op, struct range range) {
    return is_computed(op) &&
           (ranges_overlap(range, range_of(op)) ||
                   (ggml_is_scan(op) && ranges_overlap(range, range_of(op->src[0]))));
}

// Ids that the graph computes
static bool is_argsort(const struct ggml_tensor * x) {
    return (x->view_src != NULL ? x->view_src : x)->op == GGML_OP_ARGSORT;
}

// The last node before i_node that writes to x is the ARGSORT that computes it, and its numbers are
// below n.
static bool computed_ids_ok(
        const struct ggml_cgraph * graph, const struct ggml_tensor * x, int i_node, int64_t n) {
    const struct range part = range_of(x);
    int                i = i_node - 1;
    while (i >= 0 && !node_writes(graph->nodes[i], part)) {
        i--;
    }
    if (i < 0) {
        return false;
    }
    const struct ggml_tensor * sort = graph->nodes[i];
    const struct range         all = range_of(sort);
    return sort->op == GGML_OP_ARGSORT && (sort->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 &&
           x->type == GGML_TYPE_I32 && all.from <= part.from && part.to <= all.to &&
           sort->ne[0] <= n;
}

// Copies the ids of node i_node from their device, once.
static const void * ids_get(struct ids * ids, const struct ggml_tensor * x, int i_node) {
    for (int i = 0; i < ids->n; ++i) {
        const struct ggml_tensor * y = ids->tensors[i];
        if (y == x || (y->data == x->data && same_layout(y, x))) {
            ids->last_use[i] = i_node;
            return ids->values[i];
        }
    }
    void * values = ids->n < IDS_MAX ? malloc(ggml_nbytes(x)) : NULL;
    if (values != NULL) {
        ggml_backend_tensor_get(x, values, 0, ggml_nbytes(x));
        ids->tensors[ids->n] = x;
        ids->last_use[ids->n] = i_node;
        ids->values[ids->n++] = values;
    }
    return values;
}

// values: the bytes of ids. Its rows may be apart: the best of all experts.
static bool rows_in_range(const struct ggml_tensor * ids, const char * values, int64_t n_rows) {
    bool ok = true;
    for (int64_t i = 0; ok && i < ggml_nelements(ids); ++i) {
        const int64_t r = i / ids->ne[0]; // of the rows
        const char *  at = values + (size_t) (i % ids->ne[0]) * ids->nb[0] +
                          (size_t) (r % ids->ne[1]) * ids->nb[1] +
                          (size_t) (r / ids->ne[1] % ids->ne[2]) * ids->nb[2] +
                          (size_t) (r / ids->ne[1] / ids->ne[2]) * ids->nb[3];
        const int64_t row =
                ids->type == GGML_TYPE_I64 ? *(const int64_t *) at : *(const int32_t *) at;
        ok = row >= 0 && row < n_rows;
    }
    return ok;
}

static bool node_ids_ok(
        struct ids * ids, const struct ggml_cgraph * graph, int i_node, bool computed_before) {
    const struct ggml_tensor * op = graph->nodes[i_node];
    const struct ggml_tensor * x = ids_of(op);
    if (x == NULL) {
        return true;
    }
    const int64_t n = op->op == GGML_OP_MUL_MAT_ID ? op->src[0]->ne[2]
                      : op->op == GGML_OP_GET_ROWS ? op->src[0]->ne[1]
                                                   : op->ne[1];
    if (is_argsort(x)) {
        return !ggml_is_scan(op) && (computed_before || computed_ids_ok(graph, x, i_node, n));
    }
    const void * values =
            ggml_is_contiguous(x) || !ggml_is_scan(op) ? ids_get(ids, x, i_node) : NULL;
    if (values == NULL) {
        return false;
    }
    if (ggml_is_scan(op)) {
        const int64_t n_tokens = op->op == GGML_OP_SHORT_CONV ? op->ne[1] : op->ne[2];
        return ggml_scan_ids_check(
                values, x->ne[0] - GGML_SCAN_SNAPS, x->ne[1], op->src[0]->ne[1], n_tokens, NULL);
    }
    return rows_in_range(x, values, n);
}

// The graph must not write the ids that were checked before their last use. Later it may: the
// allocator of a graph reuses memory.
static bool ids_stay(const struct ids * ids, const struct ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        const struct ggml_tensor * op = graph->nodes[i];
        for (int k = 0; k < ids->n; ++k) {
            if (i <= ids->last_use[k] && node_writes(op, range_of(ids->tensors[k]))) {
                return false;
            }
        }
    }
    return true;
}

// ---- Graphs -------------------------------------------------------------------------------------

bool ggml_lrnn_rpc_graph_size_ok(uint64_t n_nodes, uint64_t n_tensors) {
    return n_nodes > 0 && n_nodes <= n_tensors && n_tensors <= TENSORS_MAX;
}

bool ggml_lrnn_rpc_graph_ok(
        ggml_backend_t backend, const struct ggml_cgraph * graph, bool computed_before) {
    struct ids ids = { .n = 0 };
    bool       ok = true;
    for (int i = 0; ok && i < graph->n_nodes; ++i) {
        const struct ggml_tensor * op = graph->nodes[i];
        ok = (computed_before || node_ok(backend, op)) &&
             node_ids_ok(&ids, graph, i, computed_before);
        if (!ok) {
            GGML_LOG_ERROR("[%s] node %d (%s) is malformed\n", __func__, i, ggml_op_name(op->op));
        }
    }
    if (ok && !computed_before && !ids_stay(&ids, graph)) {
        GGML_LOG_ERROR("[%s] the graph writes ids before their last use\n", __func__);
        ok = false;
    }
    for (int i = 0; i < ids.n; ++i) {
        free(ids.values[i]);
    }
    return ok;
}
