// Cases of matrix products. d_k is the length of a row, d_v the number of rows; a token is a
// column.
//
//     y[r, t] = Σ_k w[r, k] x[k, t]
//
// ggml's product of the same types is not in this program; the reference is the product with the
// same weights in F32.

#include "bench-case.h"

static void product_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    in->x = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->tokens * s->seqs, 1, 1);
    in->weight = op_input_of(in, c->type, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->d_v, 1, 1);
    in->weight_f32 = op_input(in, OP_FILL_TIMES, 1.0f, 1.0f, s->d_k, s->d_v, 1, 1);
}

static struct op_output product_ours(const struct op_build * b) {
    const bool is_reference = b->path == GGML_SCAN_PATH_REFERENCE;
    return (struct op_output) {
        .tensor = ggml_mul_mat(b->ctx, is_reference ? b->in->weight_f32 : b->in->weight, b->in->x),
        .stride = b->s->d_v,
    };
}

static int64_t product_state(const struct op_shape * s) {
    (void) s;
    return 1; // not used
}

static double product_flops(const struct bench_case * c, const struct op_shape * s) {
    (void) c;
    return 2.0 * (double) (s->d_k * s->d_v);
}

// Most types round the columns to 8 bits.
#define PRODUCT(name_, type_)                         \
    { .name = "mul-mat-" name_,                       \
        .what = "matrix product, weights in " #type_, \
        .type = GGML_TYPE_##type_,                    \
        .shape = { 768, 3072, 1, 1, 512, 1, 1 },      \
        .nmse_max = 3e-4,                             \
        .inputs = product_inputs,                     \
        .ours = product_ours,                         \
        .state = product_state,                       \
        .flops = product_flops }

const struct bench_case cases_mul_mat[] = {
    PRODUCT("f32", F32),
    PRODUCT("f16", F16),
    PRODUCT("bf16", BF16),
    PRODUCT("q8_0", Q8_0),
    PRODUCT("q6_k", Q6_K),
    PRODUCT("q5_k", Q5_K),
    PRODUCT("q5_1", Q5_1),
    PRODUCT("q5_0", Q5_0),
    PRODUCT("q4_k", Q4_K),
    PRODUCT("q4_1", Q4_1),
    PRODUCT("q4_0", Q4_0),
    PRODUCT("iq4_xs", IQ4_XS),
    PRODUCT("iq4_nl", IQ4_NL),
    PRODUCT("q3_k", Q3_K),
    PRODUCT("iq3_s", IQ3_S),
    PRODUCT("q2_k", Q2_K),
    { .name = NULL },
};
