// The builders return NULL and a sentence that names the tensor for every invalid shape, type and
// combination, and accept the limits of the valid ones. Only the last test computes, so tensors
// have no data.

#include "lrnn.h"
#include "kit/scan-case.h"

static struct ggml_tensor * new_f32(
        struct ggml_context * ctx, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return ggml_new_tensor_4d(ctx, GGML_TYPE_F32, ne0, ne1, ne2, ne3);
}

static struct ggml_tensor * new_i32(
        struct ggml_context * ctx, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return ggml_new_tensor_4d(ctx, GGML_TYPE_I32, ne0, ne1, ne2, ne3);
}

// A tensor with the shape of x and another type
static struct ggml_tensor * typed(
        struct ggml_context * ctx, const struct ggml_tensor * x, enum ggml_type type) {
    return ggml_new_tensor(ctx, type, 4, x->ne);
}

// A tensor like x, with n elements in dimension d
static struct ggml_tensor * sized(
        struct ggml_context * ctx, const struct ggml_tensor * x, int d, int64_t n) {
    int64_t ne[4] = { x->ne[0], x->ne[1], x->ne[2], x->ne[3] };
    ne[d] = n;
    return ggml_new_tensor(ctx, x->type, 4, ne);
}

// A tensor like x, with another stride
static struct ggml_tensor * strided(
        struct ggml_context * ctx, const struct ggml_tensor * x, int d, size_t nb) {
    struct ggml_tensor * y = ggml_new_tensor(ctx, x->type, 4, x->ne);
    y->nb[d] = nb;
    return y;
}

static void check_refused(struct test * t, const struct ggml_tensor * op, const char * err,
        const char * name, const char * what) {
    test_check(t, op == NULL, "accepted: %s", what);
    if (op == NULL) {
        test_check(t, test_has_word(err, name), "the message does not name %s: \"%s\": %s", name,
                err, what);
        test_check(t, strlen(err) >= 10 && strchr(err, '\n') == NULL,
                "expected one sentence, got \"%s\": %s", err, what);
    }
}

// One case: the valid arguments of `make`, a statement that changes them, and the name that the
// message about an invalid one must contain. ARGS, BUILD and IS_RIGHT are those of the op.
#define REFUSE(make, spoil, name)                                \
    do {                                                         \
        ARGS              a = make(ctx);                         \
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };         \
        spoil;                                                   \
        struct ggml_tensor * op = BUILD(ctx, &a, &err);          \
        check_refused(t, op, err.text, name, #make ", " #spoil); \
    } while (0)

#define ACCEPT(make, change)                                                                       \
    do {                                                                                           \
        ARGS              a = make(ctx);                                                           \
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };                                           \
        change;                                                                                    \
        struct ggml_tensor * op = BUILD(ctx, &a, &err);                                            \
        test_check(t, op != NULL, "refused (%s): " #make ", " #change, err.text);                  \
        test_check(t,                                                                              \
                op == NULL || (op->type == GGML_TYPE_F32 && op->src[0] == a.state &&               \
                                      op->src[1] == a.ids && ggml_is_scan(op) && IS_RIGHT(op, a)), \
                "wrong node: " #make ", " #change);                                                \
    } while (0)

//
// Householder scan: d_k 8, d_v 12, H 4, n_h 2, T 5
//

enum { D_K = 8, D_V = 12, H = 4, N_H = 2, T = 5, SLOTS = 3, SEQS = 2 };

static struct ggml_householder_scan_args householder_args(struct ggml_context * ctx) {
    return (struct ggml_householder_scan_args) {
        .state = new_f32(ctx, D_K * D_V * H, SLOTS, 1, 1),
        .ids = new_i32(ctx, GGML_SCAN_SNAPS + 1, SEQS, 1, 1),
        .q = new_f32(ctx, D_K, 2, 1, T),
        .k = new_f32(ctx, D_K, 1, N_H, T),
        .v = new_f32(ctx, D_V, 4, N_H, T),
        .beta = new_f32(ctx, 1, 2, N_H, T),
        .gate = new_f32(ctx, 1, 4, 1, T),
        .scale = 1.0f,
    };
}

static struct ggml_householder_scan_args rwkv7_args(struct ggml_context * ctx) {
    struct ggml_householder_scan_args args = householder_args(ctx);
    args.k = new_f32(ctx, D_K, 1, 1, T);
    args.v = new_f32(ctx, D_V, 4, 1, T);
    args.gate = new_f32(ctx, D_K, 4, 1, T);
    args.beta = NULL;
    args.r = new_f32(ctx, D_K, 2, 1, T);
    args.w = new_f32(ctx, D_K, 4, 1, T);
    return args;
}

static void test_householder(struct test * t) {
    struct ggml_context * ctx =
            ggml_init((struct ggml_init_params) { .mem_size = 4u << 20, .no_alloc = true });
    const int64_t n0 = t->n_checks;

#define ARGS  struct ggml_householder_scan_args
#define BUILD ggml_householder_scan
#define IS_RIGHT(op, a)                                                                  \
    (op->ne[0] == a.v->ne[0] && op->ne[1] * a.k->ne[0] * a.v->ne[0] == a.state->ne[0] && \
            op->ne[2] == a.q->ne[3] && op->ne[3] == 1)

    // only the gate is optional
    REFUSE(householder_args, a.state = NULL, "state");
    REFUSE(householder_args, a.ids = NULL, "ids");
    REFUSE(householder_args, a.q = NULL, "q");
    REFUSE(householder_args, a.k = NULL, "k");
    REFUSE(householder_args, a.v = NULL, "v");
    REFUSE(householder_args, a.beta = NULL, "beta");
    REFUSE(rwkv7_args, a.r = NULL, "r");
    REFUSE(rwkv7_args, a.w = NULL, "w");
    REFUSE(rwkv7_args, a.beta = new_f32(ctx, 1, 2, 1, T), "beta"); // beta or r and w, not both
    ACCEPT(householder_args, a.gate = NULL);
    ACCEPT(rwkv7_args, a.gate = NULL);

    // types
    REFUSE(householder_args, a.state = typed(ctx, a.state, GGML_TYPE_F16), "state");
    REFUSE(householder_args, a.ids = typed(ctx, a.ids, GGML_TYPE_F32), "ids");
    REFUSE(householder_args, a.ids = typed(ctx, a.ids, GGML_TYPE_I64), "ids");
    REFUSE(householder_args, a.q = typed(ctx, a.q, GGML_TYPE_F16), "q");
    REFUSE(householder_args, a.k = typed(ctx, a.k, GGML_TYPE_BF16), "k");
    REFUSE(householder_args, a.v = typed(ctx, a.v, GGML_TYPE_F16), "v");
    REFUSE(householder_args, a.beta = typed(ctx, a.beta, GGML_TYPE_F16), "beta");
    REFUSE(householder_args, a.gate = typed(ctx, a.gate, GGML_TYPE_I32), "gate");
    REFUSE(rwkv7_args, a.r = typed(ctx, a.r, GGML_TYPE_F16), "r");
    REFUSE(rwkv7_args, a.w = typed(ctx, a.w, GGML_TYPE_F16), "w");

    // widths
    REFUSE(householder_args, a.q = sized(ctx, a.q, 0, D_K + 1), "q");
    REFUSE(householder_args, a.q = sized(ctx, a.q, 0, D_V), "q");
    REFUSE(householder_args, a.beta = sized(ctx, a.beta, 0, 2), "beta");
    REFUSE(householder_args, a.gate = sized(ctx, a.gate, 0, 2), "gate");
    REFUSE(householder_args, a.gate = sized(ctx, a.gate, 0, D_V), "gate");
    REFUSE(rwkv7_args, a.r = sized(ctx, a.r, 0, 1), "r");
    REFUSE(rwkv7_args, a.w = sized(ctx, a.w, 0, D_K - 1), "w");
    REFUSE(householder_args, a.k = sized(ctx, a.k, 0, 0), "k");
    REFUSE(householder_args, a.v = sized(ctx, a.v, 0, 0), "v");
    ACCEPT(householder_args, a.gate = sized(ctx, a.gate, 0, D_K));
    ACCEPT(rwkv7_args, a.gate = sized(ctx, a.gate, 0, 1));

    // heads: a divisor of those of the state
    REFUSE(householder_args, a.q = sized(ctx, a.q, 1, 3), "q");
    REFUSE(householder_args, a.k = sized(ctx, a.k, 1, 3), "k");
    REFUSE(householder_args, a.v = sized(ctx, a.v, 1, 2 * H), "v");
    REFUSE(householder_args, a.beta = sized(ctx, a.beta, 1, 3), "beta");
    REFUSE(householder_args, a.gate = sized(ctx, a.gate, 1, 0), "gate");
    REFUSE(rwkv7_args, a.r = sized(ctx, a.r, 1, 3), "r");
    REFUSE(rwkv7_args, a.w = sized(ctx, a.w, 1, 8), "w");
    ACCEPT(householder_args, a.q = sized(ctx, a.q, 1, 1); a.v = sized(ctx, a.v, 1, 1);
            a.k = sized(ctx, a.k, 1, 4); a.beta = sized(ctx, a.beta, 1, 1));

    // factors
    REFUSE(householder_args, a.q = sized(ctx, a.q, 2, N_H), "q");
    REFUSE(householder_args, a.v = sized(ctx, a.v, 2, 1), "v");
    REFUSE(householder_args, a.v = sized(ctx, a.v, 2, 3), "v");
    REFUSE(householder_args, a.beta = sized(ctx, a.beta, 2, 1), "beta");
    REFUSE(householder_args, a.gate = sized(ctx, a.gate, 2, N_H), "gate");
    REFUSE(householder_args, a.k = sized(ctx, a.k, 2, 0), "k");
    REFUSE(rwkv7_args, a.k = sized(ctx, a.k, 2, 2);
            a.v = sized(ctx, a.v, 2, 2), "k"); // r and w allow one factor
    REFUSE(rwkv7_args, a.r = sized(ctx, a.r, 2, 2), "r");
    ACCEPT(householder_args, a.k = sized(ctx, a.k, 2, 7); a.v = sized(ctx, a.v, 2, 7);
            a.beta = sized(ctx, a.beta, 2, 7));

    // tokens
    REFUSE(householder_args, a.q = sized(ctx, a.q, 3, T + 1), "q");
    REFUSE(householder_args, a.v = sized(ctx, a.v, 3, T - 1), "v");
    REFUSE(householder_args, a.beta = sized(ctx, a.beta, 3, 1), "beta");
    REFUSE(householder_args, a.gate = sized(ctx, a.gate, 3, 1), "gate");
    REFUSE(rwkv7_args, a.r = sized(ctx, a.r, 3, T + 1), "r");
    REFUSE(rwkv7_args, a.w = sized(ctx, a.w, 3, 0), "w");

    // strides: rows are contiguous, other strides are any multiple of a float
    REFUSE(householder_args, a.q = strided(ctx, a.q, 0, 8), "q");
    REFUSE(householder_args, a.k = strided(ctx, a.k, 0, 32), "k");
    REFUSE(householder_args, a.v = strided(ctx, a.v, 0, 0), "v");
    REFUSE(householder_args, a.k = strided(ctx, a.k, 3, 66), "k");
    REFUSE(rwkv7_args, a.w = strided(ctx, a.w, 0, 8), "w");
    ACCEPT(householder_args, a.k = strided(ctx, a.k, 3, 4000));
    ACCEPT(householder_args, a.q = strided(ctx, a.q, 1, 4000));
    ACCEPT(householder_args, a.v = strided(ctx, a.v, 2, 0)); // one value for all factors

    // state and ids
    REFUSE(householder_args, a.state = sized(ctx, a.state, 0, D_K * D_V * H + 1), "state");
    REFUSE(householder_args, a.state = sized(ctx, a.state, 0, 0), "state");
    REFUSE(householder_args, a.state = sized(ctx, a.state, 1, 0), "state");
    REFUSE(householder_args, a.state = sized(ctx, a.state, 2, 2), "state");
    REFUSE(householder_args, a.state = sized(ctx, a.state, 3, 2), "state");
    REFUSE(householder_args, a.state = strided(ctx, a.state, 0, 8), "state");
    REFUSE(householder_args, a.state = strided(ctx, a.state, 1, 4 * D_K * D_V * H - 4),
            "state"); // slots overlap
    REFUSE(householder_args, a.state = strided(ctx, a.state, 1, 0), "state");
    REFUSE(householder_args, a.ids = sized(ctx, a.ids, 0, GGML_SCAN_SNAPS - 1), "ids");
    REFUSE(householder_args, a.ids = sized(ctx, a.ids, 1, 0), "ids");
    REFUSE(householder_args, a.ids = sized(ctx, a.ids, 2, 2), "ids");
    REFUSE(householder_args, a.ids = strided(ctx, a.ids, 1, 64), "ids");
    ACCEPT(householder_args, a.state = sized(ctx, a.state, 1, 1));
    ACCEPT(householder_args, a.ids = sized(ctx, a.ids, 0, GGML_SCAN_SNAPS));
    ACCEPT(householder_args, a.ids = sized(ctx, a.ids, 1, 100));

    // no tokens: ggml would skip the node, and also the fork of a sequence without tokens
    REFUSE(householder_args, a.q = sized(ctx, a.q, 3, 0); a.k = sized(ctx, a.k, 3, 0);
            a.v = sized(ctx, a.v, 3, 0); a.beta = sized(ctx, a.beta, 3, 0); a.gate = NULL, "k");
    // sizes whose product exceeds 64 bits
    REFUSE(householder_args, a.k = new_f32(ctx, (int64_t) 1 << 32, 1, N_H, T);
            a.v = new_f32(ctx, (int64_t) 1 << 32, 1, N_H, T), "state");
    REFUSE(householder_args, a.k = new_f32(ctx, ((int64_t) 1 << 33) + 1, 1, N_H, T);
            a.v = new_f32(ctx, (int64_t) 1 << 31, 1, N_H, T), "state");

    // paths
    ACCEPT(rwkv7_args, a.path = GGML_SCAN_PATH_CHUNK);
    ACCEPT(rwkv7_args, a.path = GGML_SCAN_PATH_STEP);
    ACCEPT(rwkv7_args, a.path = GGML_SCAN_PATH_REFERENCE);
    ACCEPT(householder_args, a.path = GGML_SCAN_PATH_CHUNK);

    // no error object
    {
        struct ggml_householder_scan_args a = householder_args(ctx);
        a.q = NULL;
        test_check(t, ggml_householder_scan(ctx, &a, NULL) == NULL, "accepted without an error");
    }
#undef ARGS
#undef BUILD
#undef IS_RIGHT
    printf("builder of the Householder scan: %lld checks\n", (long long) (t->n_checks - n0));
    ggml_free(ctx);
}

//
// Signed-gate scan: d_k 8, d_v 12, H 4, T 5
//

static struct ggml_signed_scan_args gate_args(struct ggml_context * ctx) {
    return (struct ggml_signed_scan_args) {
        .state = new_f32(ctx, D_K * D_V * H, SLOTS, 1, 1),
        .ids = new_i32(ctx, GGML_SCAN_SNAPS, SEQS, 1, 1),
        .c = new_f32(ctx, D_K, 2, 1, T),
        .b = new_f32(ctx, D_K, 1, 1, T),
        .x = new_f32(ctx, D_V, 4, 1, T),
        .gate = new_f32(ctx, D_K, 4, 1, T),
        .scale = 1.0f,
    };
}

static struct ggml_signed_scan_args bonus_args(struct ggml_context * ctx) {
    struct ggml_signed_scan_args args = gate_args(ctx);
    args.bonus = new_f32(ctx, D_K, 2, 1, 1);
    return args;
}

static struct ggml_signed_scan_args mamba_args(struct ggml_context * ctx) {
    struct ggml_signed_scan_args args = gate_args(ctx);
    args.gate = NULL;
    args.dt = new_f32(ctx, D_V, 4, 1, T);
    args.A = new_f32(ctx, D_V, D_K, 2, 1);
    return args;
}

static struct ggml_signed_scan_args mamba2_args(struct ggml_context * ctx) {
    struct ggml_signed_scan_args args = gate_args(ctx);
    args.gate = NULL;
    args.dt = new_f32(ctx, 1, 4, 1, T);
    args.A = new_f32(ctx, 1, 1, 4, 1);
    args.form = GGML_SIGNED_SCAN_TWO_EXP_M1;
    return args;
}

static struct ggml_signed_scan_args mlstm_args(struct ggml_context * ctx) {
    struct ggml_signed_scan_args args = gate_args(ctx);
    args.state = new_f32(ctx, (D_K * D_V + D_K + 1) * H, SLOTS, 1, 1);
    args.gate = NULL;
    args.log_f = new_f32(ctx, 1, 4, 1, T);
    args.log_i = new_f32(ctx, 1, 2, 1, T);
    return args;
}

static void test_signed(struct test * t) {
    struct ggml_context * ctx =
            ggml_init((struct ggml_init_params) { .mem_size = 4u << 20, .no_alloc = true });
    const int64_t n0 = t->n_checks;

#define ARGS  struct ggml_signed_scan_args
#define BUILD ggml_signed_scan
#define IS_RIGHT(op, a) \
    (op->ne[0] == a.x->ne[0] && op->ne[1] == H && op->ne[2] == a.c->ne[3] && op->ne[3] == 1)

    ACCEPT(gate_args, (void) a);
    ACCEPT(bonus_args, (void) a);
    ACCEPT(mamba_args, (void) a);
    ACCEPT(mamba2_args, (void) a);
    ACCEPT(mlstm_args, (void) a);

    // exactly one complete transition
    REFUSE(gate_args, a.state = NULL, "state");
    REFUSE(gate_args, a.ids = NULL, "ids");
    REFUSE(gate_args, a.c = NULL, "c");
    REFUSE(gate_args, a.b = NULL, "b");
    REFUSE(gate_args, a.x = NULL, "x");
    REFUSE(mamba_args, a.A = NULL, "A");
    REFUSE(mamba_args, a.dt = NULL, "dt");
    REFUSE(mamba2_args, a.A = NULL, "A");
    REFUSE(mlstm_args, a.log_f = NULL, "log_f");
    REFUSE(mlstm_args, a.log_i = NULL, "log_i");
    REFUSE(mamba_args, a.gate = new_f32(ctx, D_K, 4, 1, T), "gate");
    REFUSE(mlstm_args, a.gate = new_f32(ctx, D_K, 4, 1, T), "gate");
    REFUSE(mlstm_args, a.dt = new_f32(ctx, 1, 4, 1, T); a.A = new_f32(ctx, 1, 1, 4, 1), "dt");
    REFUSE(mamba_args, a.bonus = new_f32(ctx, D_K, 2, 1, 1), "bonus");
    REFUSE(mlstm_args, a.bonus = new_f32(ctx, D_K, 2, 1, 1), "bonus");
    ACCEPT(gate_args, a.gate = NULL);
    ACCEPT(bonus_args, a.gate = NULL);

    // types
    REFUSE(gate_args, a.state = typed(ctx, a.state, GGML_TYPE_F16), "state");
    REFUSE(gate_args, a.ids = typed(ctx, a.ids, GGML_TYPE_F32), "ids");
    REFUSE(gate_args, a.c = typed(ctx, a.c, GGML_TYPE_F16), "c");
    REFUSE(gate_args, a.b = typed(ctx, a.b, GGML_TYPE_F16), "b");
    REFUSE(gate_args, a.x = typed(ctx, a.x, GGML_TYPE_F16), "x");
    REFUSE(gate_args, a.gate = typed(ctx, a.gate, GGML_TYPE_F16), "gate");
    REFUSE(bonus_args, a.bonus = typed(ctx, a.bonus, GGML_TYPE_F16), "bonus");
    REFUSE(mamba_args, a.dt = typed(ctx, a.dt, GGML_TYPE_F16), "dt");
    REFUSE(mamba_args, a.A = typed(ctx, a.A, GGML_TYPE_F16), "A");
    REFUSE(mlstm_args, a.log_f = typed(ctx, a.log_f, GGML_TYPE_F16), "log_f");
    REFUSE(mlstm_args, a.log_i = typed(ctx, a.log_i, GGML_TYPE_I32), "log_i");

    // widths
    REFUSE(gate_args, a.c = sized(ctx, a.c, 0, D_V), "c");
    REFUSE(gate_args, a.gate = sized(ctx, a.gate, 0, D_V), "gate");
    REFUSE(bonus_args, a.bonus = sized(ctx, a.bonus, 0, D_K + 1), "bonus");
    REFUSE(bonus_args, a.bonus = sized(ctx, a.bonus, 0, 1), "bonus");
    REFUSE(mamba_args, a.dt = sized(ctx, a.dt, 0, D_K), "dt");
    REFUSE(mamba_args, a.dt = sized(ctx, a.dt, 0, 1), "dt");    // dt of Mamba-2, A of Mamba
    REFUSE(mamba2_args, a.dt = sized(ctx, a.dt, 0, D_V), "dt"); // dt of Mamba, A of Mamba-2
    REFUSE(mamba_args, a.A = sized(ctx, a.A, 0, D_K), "A");
    REFUSE(mamba_args, a.A = sized(ctx, a.A, 1, D_V), "A");
    REFUSE(mamba_args, a.A = sized(ctx, a.A, 1, 1), "A");
    REFUSE(mlstm_args, a.log_f = sized(ctx, a.log_f, 0, D_K), "log_f");
    REFUSE(mlstm_args, a.log_i = sized(ctx, a.log_i, 0, 2), "log_i");
    REFUSE(gate_args, a.b = sized(ctx, a.b, 0, 0), "b");
    REFUSE(gate_args, a.x = sized(ctx, a.x, 0, 0), "x");
    ACCEPT(gate_args, a.gate = sized(ctx, a.gate, 0, 1));

    // heads
    REFUSE(gate_args, a.c = sized(ctx, a.c, 1, 3), "c");
    REFUSE(gate_args, a.b = sized(ctx, a.b, 1, 8), "b");
    REFUSE(gate_args, a.x = sized(ctx, a.x, 1, 3), "x");
    REFUSE(gate_args, a.gate = sized(ctx, a.gate, 1, 3), "gate");
    REFUSE(bonus_args, a.bonus = sized(ctx, a.bonus, 1, 3), "bonus");
    REFUSE(mamba_args, a.dt = sized(ctx, a.dt, 1, 3), "dt");
    REFUSE(mamba_args, a.A = sized(ctx, a.A, 2, 3), "A");
    REFUSE(mamba_args, a.A = sized(ctx, a.A, 2, 0), "A");
    REFUSE(mamba_args, a.A = sized(ctx, a.A, 3, 2), "A");
    REFUSE(mlstm_args, a.log_f = sized(ctx, a.log_f, 1, 3), "log_f");
    REFUSE(mlstm_args, a.log_i = sized(ctx, a.log_i, 1, 0), "log_i");

    // factors and tokens
    REFUSE(gate_args, a.c = sized(ctx, a.c, 2, 2), "c");
    REFUSE(gate_args, a.b = sized(ctx, a.b, 2, 2), "b");
    REFUSE(gate_args, a.gate = sized(ctx, a.gate, 2, 2), "gate");
    REFUSE(bonus_args, a.bonus = sized(ctx, a.bonus, 2, T), "bonus");
    REFUSE(gate_args, a.c = sized(ctx, a.c, 3, T + 1), "c");
    REFUSE(gate_args, a.x = sized(ctx, a.x, 3, T - 1), "x");
    REFUSE(gate_args, a.gate = sized(ctx, a.gate, 3, 2), "gate");
    REFUSE(mamba_args, a.dt = sized(ctx, a.dt, 3, 1), "dt");
    REFUSE(mlstm_args, a.log_f = sized(ctx, a.log_f, 3, 1), "log_f");
    REFUSE(mlstm_args, a.log_i = sized(ctx, a.log_i, 3, T + 1), "log_i");
    ACCEPT(gate_args, a.gate = sized(ctx, a.gate, 3, 1)); // a constant gate
    ACCEPT(bonus_args, a.gate = sized(ctx, a.gate, 3, 1));

    // strides
    REFUSE(gate_args, a.c = strided(ctx, a.c, 0, 8), "c");
    REFUSE(gate_args, a.b = strided(ctx, a.b, 0, 8), "b");
    REFUSE(gate_args, a.x = strided(ctx, a.x, 0, 8), "x");
    REFUSE(gate_args, a.gate = strided(ctx, a.gate, 0, 8), "gate");
    REFUSE(gate_args, a.x = strided(ctx, a.x, 3, 50), "x");
    REFUSE(mamba_args, a.dt = strided(ctx, a.dt, 0, 8), "dt");
    REFUSE(mamba_args, a.A = strided(ctx, a.A, 1, 50), "A");
    ACCEPT(gate_args, a.x = strided(ctx, a.x, 3, 4000));
    ACCEPT(mamba_args, a.A = ggml_permute(ctx, new_f32(ctx, D_K, D_V, 2, 1), 1, 0, 2,
                               3)); // as in checkpoints

    // state
    REFUSE(gate_args, a.state = sized(ctx, a.state, 0, D_K * D_V * H + 1), "state");
    REFUSE(mlstm_args, a.state = sized(ctx, a.state, 0, D_K * D_V * H), "state");
    REFUSE(gate_args, a.state = sized(ctx, a.state, 0, (D_K * D_V + D_K + 1) * H), "state");
    REFUSE(gate_args, a.state = sized(ctx, a.state, 1, 0), "state");
    REFUSE(gate_args, a.ids = sized(ctx, a.ids, 1, 0), "ids");
    REFUSE(gate_args, a.ids = sized(ctx, a.ids, 0, 3), "ids");
    REFUSE(gate_args, a.c = sized(ctx, a.c, 3, 0); a.b = sized(ctx, a.b, 3, 0);
            a.x = sized(ctx, a.x, 3, 0); a.gate = NULL, "b");
    REFUSE(gate_args, a.b = new_f32(ctx, (int64_t) 1 << 32, 1, 1, T);
            a.x = new_f32(ctx, (int64_t) 1 << 32, 1, 1, T), "state");
    REFUSE(mlstm_args, a.b = new_f32(ctx, (int64_t) 1 << 40, 1, 1, T);
            a.x = new_f32(ctx, (int64_t) 1 << 24, 1, 1, T), "state");

    // paths
    REFUSE(mamba_args, a.path = GGML_SCAN_PATH_CHUNK,
            "path is chunk"); // no chunk path with a transition per element
    ACCEPT(mamba_args, a.path = GGML_SCAN_PATH_STEP);
    ACCEPT(mamba2_args, a.path = GGML_SCAN_PATH_CHUNK);
    ACCEPT(gate_args, a.path = GGML_SCAN_PATH_CHUNK);
    ACCEPT(mlstm_args, a.path = GGML_SCAN_PATH_REFERENCE);
#undef ARGS
#undef BUILD
#undef IS_RIGHT
    printf("builder of the signed-gate scan: %lld checks\n", (long long) (t->n_checks - n0));
    ggml_free(ctx);
}

//
// Short convolution: 12 channels, width 4, T 5
//

static struct ggml_short_conv_args conv_args(struct ggml_context * ctx) {
    return (struct ggml_short_conv_args) {
        .state = new_f32(ctx, 12 * 3, SLOTS, 1, 1),
        .ids = new_i32(ctx, GGML_SCAN_SNAPS, SEQS, 1, 1),
        .x = new_f32(ctx, 12, T, 1, 1),
        .weight = new_f32(ctx, 4, 12, 1, 1),
        .bias = new_f32(ctx, 12, 1, 1, 1),
        .activation = GGML_SHORT_CONV_SILU,
    };
}

static struct ggml_short_conv_args shift_args(struct ggml_context * ctx) {
    struct ggml_short_conv_args args = conv_args(ctx);
    args.state = new_f32(ctx, 12, SLOTS, 1, 1);
    args.weight = NULL;
    args.bias = NULL;
    args.activation = GGML_SHORT_CONV_NONE;
    return args;
}

static void test_conv(struct test * t) {
    struct ggml_context * ctx =
            ggml_init((struct ggml_init_params) { .mem_size = 4u << 20, .no_alloc = true });
    const int64_t n0 = t->n_checks;

#define ARGS  struct ggml_short_conv_args
#define BUILD ggml_short_conv
#define IS_RIGHT(op, a) \
    (op->ne[0] == a.x->ne[0] && op->ne[1] == a.x->ne[1] && op->ne[2] == 1 && op->ne[3] == 1)

    ACCEPT(conv_args, (void) a);
    ACCEPT(shift_args, (void) a);
    ACCEPT(conv_args, a.bias = NULL);
    ACCEPT(conv_args, a.activation = GGML_SHORT_CONV_NONE);
    ACCEPT(conv_args, a.x = strided(ctx, a.x, 1, 4000));
    ACCEPT(conv_args, a.weight = new_f32(ctx, 2, 12, 1, 1);
            a.state = new_f32(ctx, 12, SLOTS, 1, 1));
    ACCEPT(conv_args, a.weight = new_f32(ctx, 30, 12, 1, 1);
            a.state = new_f32(ctx, 12 * 29, SLOTS, 1, 1));

    REFUSE(conv_args, a.state = NULL, "state");
    REFUSE(conv_args, a.ids = NULL, "ids");
    REFUSE(conv_args, a.x = NULL, "x");
    REFUSE(conv_args, a.state = typed(ctx, a.state, GGML_TYPE_F16), "state");
    REFUSE(conv_args, a.ids = typed(ctx, a.ids, GGML_TYPE_F32), "ids");
    REFUSE(conv_args, a.x = typed(ctx, a.x, GGML_TYPE_F16), "x");
    REFUSE(conv_args, a.weight = typed(ctx, a.weight, GGML_TYPE_F16), "weight");
    REFUSE(conv_args, a.bias = typed(ctx, a.bias, GGML_TYPE_F16), "bias");
    REFUSE(conv_args, a.x = strided(ctx, a.x, 0, 8), "x");
    REFUSE(conv_args, a.x = strided(ctx, a.x, 1, 50), "x");
    REFUSE(conv_args, a.x = sized(ctx, a.x, 2, 2), "x");
    REFUSE(conv_args, a.x = sized(ctx, a.x, 0, 0), "x");
    REFUSE(conv_args, a.x = sized(ctx, a.x, 1, 0), "x");
    REFUSE(conv_args, a.weight = sized(ctx, a.weight, 0, 1), "weight");
    REFUSE(conv_args, a.weight = sized(ctx, a.weight, 1, 11), "weight");
    REFUSE(conv_args, a.weight = sized(ctx, a.weight, 2, 2), "weight");
    REFUSE(conv_args, a.weight = ggml_transpose(ctx, new_f32(ctx, 12, 4, 1, 1)), "weight");
    REFUSE(conv_args, a.bias = sized(ctx, a.bias, 0, 11), "bias");
    REFUSE(conv_args, a.bias = strided(ctx, a.bias, 0, 8), "bias");
    REFUSE(conv_args, a.state = sized(ctx, a.state, 0, 12 * 4), "state");
    REFUSE(conv_args, a.state = sized(ctx, a.state, 1, 0), "state");
    REFUSE(conv_args, a.ids = sized(ctx, a.ids, 1, 0), "ids");
    REFUSE(conv_args, a.ids = sized(ctx, a.ids, 0, 2), "ids");
    REFUSE(shift_args, a.state = sized(ctx, a.state, 0, 24), "state");
    REFUSE(shift_args, a.bias = new_f32(ctx, 12, 1, 1, 1), "bias");
    REFUSE(shift_args, a.activation = GGML_SHORT_CONV_SILU, "activation");
    REFUSE(conv_args, a.activation = GGML_SHORT_CONV_ACTIVATIONS, "activation");
#undef ARGS
#undef BUILD
#undef IS_RIGHT
    printf("builder of the short convolution: %lld checks\n", (long long) (t->n_checks - n0));
    ggml_free(ctx);
}

//
// ggml_scan_state_after
//

// A reader through ggml_scan_state_after sees the new state, even if only its node is added to the
// graph: the view depends on the op.
static void test_state_after(struct test * t) {
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = {
        .op = TEST_CONV, .batch = { .n_seqs = 1, .len = { 3 } }, .text = "state after"
    };
    s.conv.state = test_tensor(
            &a, GGML_TYPE_F32, TEST_DENSE, "state", 2, test_batch_slots(&s.batch), 1, 1);
    s.conv.ids = test_batch_ids(&a, &s.batch);
    s.conv.x = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "x", 2, 3, 1, 1);
    test_fill(s.conv.state, 1.0f);
    test_fill(s.conv.x, 5.0f);
    struct ggml_tensor * op = test_scan_build(t, &a, &s, GGML_SCAN_PATH_STEP);
    struct ggml_tensor * after = ggml_scan_state_after(a.ctx, op);
    test_check(t,
            after->view_src == s.conv.state && after->src[0] == op &&
                    ggml_are_same_shape(after, s.conv.state),
            "expected a view of the whole state that depends on the op");
    test_check(t, ggml_is_scan(op) && !ggml_is_scan(after), "ggml_is_scan");
    struct ggml_tensor * copy = ggml_dup(a.ctx, after);
    test_alloc(&a, op);
    test_compute(&a, copy, 2);
    const int64_t slot = ((int32_t *) s.conv.ids->data)[GGML_SCAN_SLOT_OUT];
    for (int64_t i = 0; i < copy->ne[1]; ++i) {
        test_check(t, test_get(copy, 0, i, 0, 0) == (i == slot ? 5.0f : 1.0f),
                "a reader of the state after the op saw %g in slot %d",
                (double) test_get(copy, 0, i, 0, 0), (int) i);
    }
    test_arena_free(&a);
    printf("ggml_scan_state_after: a reader depends on the op and sees the new state\n");
}

int main(void) {
    struct test t = { 0 };
    test_householder(&t);
    test_signed(&t);
    test_conv(&t);
    test_state_after(&t);
    return test_end(&t, "test-op-builders");
}
