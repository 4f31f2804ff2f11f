// GGML_OP_SIGNED_SCAN on the CPU: reads the node, computes the gates of a head.

#include "signed.h"

#include <stddef.h>

// Computes the gates per head of all tokens of a sequence before any tile is touched. They do not
// depend on the tile, and those of mLSTM are a recurrence of their own, over n and m.
static void head_gates(const struct signed_scan * op, const struct ggml_tensor * dst,
        const struct scan_seq * seq, int64_t h, struct head_gate * gates) {
    const struct scan_dims * dims = &op->dims;
    const int64_t            d_k = dims->d_k;

    if (op->p.kind != SIGNED_SCAN_MLSTM) {
        const bool  ssm = op->p.kind == SIGNED_SCAN_SCALAR;
        const float A = ssm ? *(const float *) head_A(op, h) : 0.0f;
        for (int64_t t = seq->first; t < seq->first + seq->count; ++t) {
            const float        g = tokens_row(&op->gate, h, 0, t)[0];
            struct head_gate * out = &gates[t * dims->n_head + h];
            *out = (struct head_gate) { .a = g, .in = 1.0f, .den = 1.0f };
            if (ssm) { // A_t = exp(dt A) or 2 exp(dt A) − 1; the input is dt b xᵀ
                const float e = expf(g * A);
                out->a = op->p.form == GGML_SIGNED_SCAN_EXP ? e : 2.0f * e - 1.0f;
                out->in = g;
            }
        }
        return;
    }

    // mLSTM: m' = max(log_f + m, log_i),  f' = exp(log_f + m − m'),  i' = exp(log_i − m')
    //        n ← f' n + i' b,  den = max(|scale · n·c|, exp(−m')) + eps
    const int64_t tail = d_k * dims->d_v; // offset of n and m in a head
    float *       n_out = slot_head(dst, seq->slot_out, h, dims->head_size) + tail;
    if (seq->slot_in < 0) {
        memset(n_out, 0, (size_t) (d_k + 1) * sizeof(float));
    } else if (seq->slot_in != seq->slot_out) {
        memcpy(n_out, slot_head(dst, seq->slot_in, h, dims->head_size) + tail,
                (size_t) (d_k + 1) * sizeof(float));
    }
    float * m = n_out + d_k;
    for (int64_t i = 0; i < seq->count; ++i) {
        const int64_t back = seq->count - i;
        if (back <= dims->n_snap && seq->snaps[back - 1] >= 0) {
            memcpy(slot_head(dst, seq->snaps[back - 1], h, dims->head_size) + tail, n_out,
                    (size_t) (d_k + 1) * sizeof(float));
        }
        const int64_t t = seq->first + i;
        const float * b = tokens_row(&op->b, h, 0, t);
        const float   log_f = tokens_row(&op->gate, h, 0, t)[0];
        const float   log_i = tokens_row(&op->log_i, h, 0, t)[0];
        const float   m_new = fmaxf(log_f + *m, log_i);

        // in double: f' compensates the rounding of m'; in F32 a difference of 70 has an error of
        // 4e-6, which i' would inherit
        const float f = (float) exp((double) log_f + (double) *m - (double) m_new);
        const float in = (float) exp((double) log_i - (double) m_new);

        *m = m_new;
        for (int64_t k = 0; k < d_k; ++k) {
            n_out[k] = fma1(in, b[k], f * n_out[k]);
        }
        const float nc = op->p.scale * vec_dot(n_out, tokens_row(&op->c, h, 0, t), d_k);
        gates[t * dims->n_head + h] = (struct head_gate) {
            .a = f, .in = in, .den = fmaxf(fabsf(nc), expf(-m_new)) + op->p.eps
        };
    }
}

// ---- The node -----------------------------------------------------------------------------------

// The chunk path: several tokens at a time, for a gate per head or per key channel.
static struct scan_chunk chunk_of(const struct signed_scan * op) {
    struct scan_chunk chunk = {
        .dims = op->dims, .k = op->b, .q = op->c, .bonus = op->bonus, .scale = op->p.scale
    };
    if (op->p.kind == SIGNED_SCAN_CHANNEL) {
        chunk.gate = op->gate;
        chunk.gate_kind = GATE_CHANNEL;
    } else if (has_head_gates(op->p.kind)) {
        chunk.gate = (struct tokens) {
            .data = (const char *) op->gates,
            .nb_head = sizeof(struct head_gate),
            .nb_token = (size_t) op->dims.n_head * sizeof(struct head_gate),
            .share = 1,
        };
        chunk.in = chunk.gate;
        chunk.in.data += offsetof(struct head_gate, in);
        chunk.gate_kind = GATE_HEAD;
    }
    return chunk;
}

static void chunk_prepare(const void * op, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const struct scan_chunk chunk = chunk_of(op);
    scan_chunk_prepare(&chunk, h, t0, t1, prep);
}

static void chunk_run(const void * ctx, const struct tile * tile, const float * prep) {
    const struct signed_scan * op = ctx;
    const struct scan_chunk    chunk = chunk_of(op);
    scan_chunk_run(&chunk, tile, prep);

    for (int64_t t = tile->t0; op->p.kind == SIGNED_SCAN_MLSTM && t < tile->t1; ++t) {
        float * y = tile->y + (t - tile->t0) * tile->y_row;
        vec2_store(y, vec2_div(vec2_load(y), vec2_set1(head_gate_at(op, tile->h, t)->den)));
    }
}

static const struct tile_kernel kernel_step = { 1, signed_step_prepare, signed_step_run,
    signed_token_run };
static const struct tile_kernel kernel_chunk = { CHUNK, chunk_prepare, chunk_run,
    signed_token_run };

static int64_t prep_floats(const struct scan_dims * dims) {
    return most_of(signed_step_size(dims), scan_chunk_size(dims), signed_token_size(dims));
}

// What all threads share: the gates per head, or A in the order of tiles.
static int64_t shared_floats(const struct scan_dims * dims, int32_t kind) {
    const int64_t floats = kind == SIGNED_SCAN_ELEMENT
                                   ? dims->n_head * signed_step_A_size(dims)
                                   : dims->n_tokens * dims->n_head *
                                             (int64_t) (sizeof(struct head_gate) / sizeof(float));
    return (floats + VEC - 1) / VEC * VEC;
}

size_t signed_work_size(const struct ggml_tensor * op, int n_threads) {
    const struct scan_dims dims = ggml_scan_dims_get(op);
    const int64_t          tiles = tile_scan_floats(&dims, prep_floats(&dims));
    return (size_t) (n_threads * (tiles > dims.head_size ? tiles : dims.head_size) +
                     shared_floats(&dims, ggml_scan_params_get(op).kind)) *
                   sizeof(float) +
           VEC_BYTES;
}

void signed_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct scan_dims   dims = ggml_scan_dims_get(dst);
    const struct scan_params p = ggml_scan_params_get(dst);
    struct ggml_tensor *     aux = dst->src[SIGNED_SRC_AUX];
    float *                  work = work_aligned(params->wdata);
    struct head_gate *       gates = (struct head_gate *) work;

    const struct signed_scan op = {
        .dims = dims,
        .p = p,
        .A = aux,
        .c = tokens_of(dst->src[SIGNED_SRC_C], dims.n_head),
        .b = tokens_of(dst->src[SIGNED_SRC_B], dims.n_head),
        .x = tokens_of(dst->src[SIGNED_SRC_X], dims.n_head),
        .gate = tokens_of(dst->src[SIGNED_SRC_GATE], dims.n_head),
        .bonus = tokens_of(p.bonus ? aux : NULL, dims.n_head),
        .log_i = tokens_of(p.kind == SIGNED_SCAN_MLSTM ? aux : NULL, dims.n_head),
        .gates = gates,
        .tiles_A = work,
    };

    if (has_head_gates(p.kind)) { // tile_scan_forward has a barrier before they are used
        for (int64_t sh = params->ith; sh < dims.n_seqs * dims.n_head; sh += params->nth) {
            struct scan_seq seq;
            if (ggml_scan_seq_get(dst, sh / dims.n_head, &seq)) {
                head_gates(&op, dst, &seq, sh % dims.n_head, gates);
            }
        }
    }
    if (p.kind == SIGNED_SCAN_ELEMENT && dims.n_tokens > 1) { // so has this
        signed_step_A(&op, params->ith, params->nth);
    }
    const bool step = p.path == GGML_SCAN_PATH_STEP || p.kind == SIGNED_SCAN_ELEMENT;

    struct tile_scan scan = {
        .op = &op,
        .dims = dims,
        .x = { op.x, p.kind == SIGNED_SCAN_ELEMENT ? op.gate : (struct tokens) { 0 } },
        .inputs = { { op.c, dims.d_k, 1 }, { op.b, dims.d_k, 1 }, { op.x, dims.d_v, 1 } },
        .prep_floats = prep_floats(&dims),
        .kernel = step ? &kernel_step : &kernel_chunk,
    };

    if (!has_head_gates(p.kind) && op.gate.data != NULL) {
        const bool element = p.kind == SIGNED_SCAN_ELEMENT;
        scan.inputs[3] = (struct input) { op.gate, element ? dims.d_v : dims.d_k, 1 };
    }
    tile_scan_forward(params, dst, &scan, work + shared_floats(&dims, p.kind));
}
