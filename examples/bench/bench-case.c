#include "bench-case.h"

#include "base/random.h"
#include "ggml-backend.h"
#include "program.h"

#include <math.h>
#include <stdlib.h>

float op_random(uint64_t * seed, float lo, float hi) {
    return lo + (hi - lo) * (float) (splitmix64(seed) >> 40) / (float) (1 << 24);
}

struct ggml_tensor * op_input_of(struct op_inputs * in, enum ggml_type type, enum op_fill fill,
        float lo, float hi, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    GGML_ASSERT(in->n < OP_INPUTS_MAX);
    struct ggml_tensor * t = ggml_new_tensor_4d(in->ctx, type, ne0, ne1, ne2, ne3);
    in->list[in->n].tensor = t;
    in->list[in->n].fill = fill;
    in->list[in->n].lo = lo;
    in->list[in->n].hi = hi;
    in->n++;
    return t;
}

struct ggml_tensor * op_input(struct op_inputs * in, enum op_fill fill, float lo, float hi,
        int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return op_input_of(in, GGML_TYPE_F32, fill, lo, hi, ne0, ne1, ne2, ne3);
}

void op_floats_set(struct ggml_tensor * t, const float * data, size_t offset, int64_t n) {
    if (t->type == GGML_TYPE_F32) {
        ggml_backend_tensor_set(t, data, offset, (size_t) n * sizeof(*data));
    } else {
        ggml_fp16_t * half = program_alloc((size_t) n, sizeof(*half));
        ggml_fp32_to_fp16_row(data, half, n);
        ggml_backend_tensor_set(t, half, offset, (size_t) n * sizeof(*half));
        free(half);
    }
}

float * op_floats_get(const struct ggml_tensor * t) {
    const int64_t n = ggml_nelements(t);
    float *       data = program_alloc((size_t) n, sizeof(*data));
    if (t->type == GGML_TYPE_F32) {
        ggml_backend_tensor_get(t, data, 0, ggml_nbytes(t));
    } else {
        ggml_fp16_t * half = program_alloc((size_t) n, sizeof(*half));
        ggml_backend_tensor_get(t, half, 0, ggml_nbytes(t));
        ggml_fp16_to_fp32_row(half, data, n);
        free(half);
    }
    return data;
}

// Stores numbers in a tensor of any type, and leaves them as the type rounds them.
static void store(struct ggml_tensor * t, float * data) {
    if (t->type == GGML_TYPE_F32) {
        ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
        return;
    }
    void * rounded = program_alloc(ggml_nbytes(t), 1);
    ggml_quantize_chunk(t->type, data, rounded, 0, ggml_nrows(t), t->ne[0], NULL);
    ggml_get_type_traits(t->type)->to_float(rounded, data, ggml_nelements(t));
    ggml_backend_tensor_set(t, rounded, 0, ggml_nbytes(t));
    free(rounded);
}

static void make_unit(float * row, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        sum += (double) row[i] * row[i];
    }
    const float scale = (float) (1.0 / sqrt(sum));
    for (int64_t i = 0; i < n; ++i) {
        row[i] *= scale;
    }
}

void op_inputs_fill(struct op_inputs * in, const struct op_shape * s) {
    uint64_t seed = 1;
    float *  prev = NULL;

    for (int l = 0; l < in->n; ++l) {
        struct ggml_tensor * t = in->list[l].tensor;
        const enum op_fill   fill = in->list[l].fill;
        const int64_t        n = ggml_nelements(t);
        const int64_t        row = t->ne[0];

        float * data = program_alloc((size_t) n, sizeof(*data));
        for (int64_t i = 0; i < n; ++i) {
            data[i] = op_random(&seed, in->list[l].lo, in->list[l].hi);
        }
        switch (fill) {
            case OP_FILL_UNIFORM: break;
            case OP_FILL_UNIT: {
                for (int64_t i = 0; i < n; i += row) {
                    make_unit(data + i, row);
                }
            } break;
            case OP_FILL_TIMES: {
                for (int64_t i = 0; i < n; ++i) {
                    data[i] *= prev[i];
                }
            } break;
            case OP_FILL_FIRST:
            case OP_FILL_LAST: {
                const int64_t n_h = t->ne[2];
                const int64_t width = row * t->ne[1]; // values of one factor
                for (int64_t i = 0; i < n; ++i) {
                    const int64_t token = i / (width * n_h);
                    const int64_t factor = i / width % n_h;
                    data[i] = factor == (fill == OP_FILL_FIRST ? 0 : n_h - 1)
                                      ? prev[token * width + i % width]
                                      : 0.0f;
                }
            } break;
            case OP_FILL_CAUSAL: {
                for (int64_t i = 0; i < n; ++i) {
                    data[i] = i % row <= row - t->ne[1] + i / row ? 0.0f : -INFINITY;
                }
            } break;
        }
        store(t, data);
        free(prev);
        prev = data;
    }
    free(prev);

    for (int64_t i = 0; i < s->seqs; ++i) {
        const int32_t ids[GGML_SCAN_SNAPS] = {
            [GGML_SCAN_SLOT_IN] = (int32_t) i,
            [GGML_SCAN_SLOT_OUT] = (int32_t) i,
            [GGML_SCAN_FIRST] = (int32_t) (i * s->tokens),
            [GGML_SCAN_COUNT] = (int32_t) s->tokens,
        };
        ggml_backend_tensor_set(in->ids, ids, (size_t) i * sizeof(ids), sizeof(ids));
        ggml_backend_tensor_set(in->stock_ids, ids, (size_t) i * sizeof(ids[0]), sizeof(ids[0]));
    }
}

int64_t op_state_size(const struct bench_case * c, const struct op_shape * s) {
    return c->state != NULL ? c->state(s) : s->d_k * s->d_v * s->heads;
}

bool op_has_stock(const struct bench_case * c, const struct op_shape * s, const char ** why) {
    *why = c->stock == NULL ? "no stock op computes this" : c->limit != NULL ? c->limit(s) : NULL;
    return *why == NULL;
}

struct op_output op_stock_output(const struct op_build * b, struct ggml_tensor * result) {
    const struct op_shape * s = b->s;
    const int64_t           n = ggml_nelements(b->state);
    const int64_t           width = s->d_v * s->heads; // of the output of a factor
    const int64_t           first = width * s->n_h * s->tokens * s->seqs;
    struct ggml_tensor *    tail = ggml_view_1d(b->ctx, result, n, (size_t) first * sizeof(float));

    return (struct op_output) {
        .tensor = result,
        .store = ggml_cpy(b->ctx, tail, ggml_reshape_1d(b->ctx, b->state, n)),
        .first = width * (s->n_h - 1), // the output of a token is that of its last factor
        .stride = width * s->n_h,
    };
}
