// Cases of attention, with the heads of Qwen3.5-0.8B and a cache in F16. The state is the cache of
// a layer: keys and values of ROWS tokens, the last of which are those of the call.
//
//     o_t = Σ_s p_ts v_s,   p_t = softmax_s(d_k^-1/2 q_t·k_s)   over s ≤ t
//
// There is no stock side: ggml's op has our kernel. It is checked against the equation in F32.

#include "base/error.h"
#include "bench-case.h"

#include <math.h>
#include <stdio.h>

enum {
    ROWS = 4096,
    GROUP = 4, // heads that share a head of the cache
};

static int64_t cache_heads(const struct op_shape * s) {
    return s->heads / GROUP;
}

static int64_t cache_state(const struct op_shape * s) {
    return (s->d_k + s->d_v) * cache_heads(s) * ROWS;
}

static void attention_inputs(
        const struct bench_case * c, const struct op_shape * s, struct op_inputs * in) {
    (void) c;
    in->q = op_input(in, OP_FILL_UNIFORM, -1.0f, 1.0f, s->d_k, s->tokens, s->heads, 1);
    // the tokens are the last rows
    in->mask = op_input_of(in, GGML_TYPE_F16, OP_FILL_CAUSAL, 0.0f, 0.0f, ROWS, s->tokens, 1, 1);
}

// Keys or values of the cache, [d, ROWS, heads / GROUP]
static struct ggml_tensor * cache_part(const struct op_build * b, int64_t d, int64_t first) {
    const size_t size = ggml_type_size(b->state->type);
    return ggml_view_3d(b->ctx, b->state, d, ROWS, cache_heads(b->s),
            (size_t) (d * cache_heads(b->s)) * size, (size_t) d * size, (size_t) first * size);
}

// The equation: [d_v, heads, tokens]
static struct ggml_tensor * equation(
        const struct op_build * b, struct ggml_tensor * k, struct ggml_tensor * v, float scale) {
    struct ggml_context * ctx = b->ctx;

    k = ggml_cast(ctx, k, GGML_TYPE_F32);
    v = ggml_cast(ctx, v, GGML_TYPE_F32);
    v = ggml_cont(ctx, ggml_permute(ctx, v, 1, 0, 2, 3));    // [ROWS, d_v, …]
    struct ggml_tensor * p = ggml_mul_mat(ctx, k, b->in->q); // [ROWS, tokens, heads]
    p = ggml_soft_max_ext(ctx, p, b->in->mask, scale, 0.0f);
    return ggml_cont(ctx, ggml_permute(ctx, ggml_mul_mat(ctx, v, p), 0, 2, 1, 3));
}

static struct op_output attention_ours(const struct op_build * b) {
    const struct op_shape * s = b->s;
    const float             scale = 1.0f / sqrtf((float) s->d_k);
    if (s->heads % GROUP != 0 || s->tokens > ROWS || s->seqs > 1) {
        error_bad_input(b->err,
                "expected a multiple of %d heads, at most %d tokens and one sequence", GROUP, ROWS);
        return (struct op_output) { 0 };
    }
    struct ggml_tensor * k = cache_part(b, s->d_k, 0);
    struct ggml_tensor * v = cache_part(b, s->d_v, s->d_k * cache_heads(s) * ROWS);
    return (struct op_output) {
        .tensor = b->path == GGML_SCAN_PATH_REFERENCE ? equation(b, k, v, scale)
                                                      : ggml_flash_attn_ext(b->ctx, b->in->q, k, v,
                                                                b->in->mask, scale, 0.0f, 0.0f),
        .stride = s->d_v * s->heads,
    };
}

// A multiply-add per row that a token sees and number of its key and value, on average.
static double attention_flops(const struct bench_case * c, const struct op_shape * s) {
    (void) c;
    return 2.0 * (double) ((s->d_k + s->d_v) * s->heads) * (ROWS - 0.5 * (double) (s->tokens - 1));
}

#define ATTENTION                                                                 \
    .inputs = attention_inputs, .ours = attention_ours, .flops = attention_flops, \
    .state = cache_state, .state_type = GGML_TYPE_F16, .keeps_state = true

//               d_k  d_v heads n_h T  seqs layers
#define SHAPE(...) .shape = { __VA_ARGS__ }

const struct bench_case cases_attention[] = {
    { SHAPE(256, 256, 8, 1, 512, 1, 1), ATTENTION, .name = "attn",
            .what = "attention, the last tokens of 4096" },
    { SHAPE(256, 256, 8, 1, 1, 1, 6), ATTENTION, .name = "attn-decode",
            .what = "attention, one token after 4095" },
    { .name = NULL },
};
