#include "run/forward.h"

#include "base/error.h"
#include "ops/lrnn-ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ggml_tensor * declare(
        struct ggml_context * ctx, enum ggml_type type, int64_t ne0, int64_t ne1) {
    struct ggml_tensor * t = ggml_new_tensor_2d(ctx, type, ne0, ne1);
    ggml_set_input(t);
    return t;
}

bool graph_inputs_declare(struct graph_inputs * in, struct ggml_context * ctx,
        const struct lrnn_model * model, const struct batch * batch, int32_t n_rewind) {
    const int64_t T = batch->n_tokens;
    in->tokens = declare(ctx, GGML_TYPE_I32, T, 1);
    in->positions = declare(ctx, GGML_TYPE_I32, T, 1);
    in->rows = declare(ctx, GGML_TYPE_I64, T, 1);
    in->ids = declare(ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS + n_rewind, batch->n_seqs);
    in->outputs = batch->n_outputs > 0 ? declare(ctx, GGML_TYPE_I32, batch->n_outputs, 1) : NULL;
    in->hidden = batch->hidden != NULL ? declare(ctx, GGML_TYPE_F32, model->n_embd, T) : NULL;
    in->masks = NULL;
    if (model->info.n_layer_attention > 0 || batch->hidden != NULL) {
        in->masks = calloc((size_t) batch->n_seqs, sizeof(*in->masks));
        if (in->masks == NULL) {
            return false;
        }
        for (int32_t i = 0; i < batch->n_seqs; ++i) {
            const struct graph_seq * s = &batch->seqs[i];
            in->masks[i] = declare(ctx, GGML_TYPE_F16, s->visible, s->count);
        }
    }
    return true;
}

void graph_inputs_free(struct graph_inputs * in) {
    free(in->masks);
    *in = (struct graph_inputs) { 0 };
}

// Inputs that no node reads are not allocated: positions without RoPE, ids without scans.
static void set(struct ggml_tensor * t, const void * data) {
    if (t->buffer != NULL) {
        ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    }
}

static void fill_tokens(struct ggml_tensor * t, const struct batch * batch, int32_t * data) {
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        const struct graph_seq * s = &batch->seqs[i];
        memcpy(data + s->first, s->tokens, (size_t) s->count * sizeof(*data));
    }
    set(t, data);
}

static bool fill_positions(struct ggml_tensor * t, const struct batch * batch, int32_t * data,
        struct lrnn_error * err) {
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        const struct graph_seq * s = &batch->seqs[i];
        if (t->buffer != NULL && s->position > INT32_MAX - s->count) {
            return error_bad_input(
                    err, "sequence %d is too long: its positions have 32 bits", s->seq);
        }
        for (int64_t j = 0; j < s->count; ++j) {
            data[s->first + j] = (int32_t) (s->position + j);
        }
    }
    set(t, data);
    return true;
}

static void fill_rows(struct ggml_tensor * t, const struct states * states,
        const struct batch * batch, int64_t * data) {
    const int64_t n_rows = cache_round_up(states->size.n_cache); // per sequence
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        const struct graph_seq * s = &batch->seqs[i];
        for (int64_t j = 0; j < s->count; ++j) {
            data[s->first + j] = s->seq * n_rows + s->position + j;
        }
    }
    set(t, data);
}

static bool fill_ids(struct ggml_tensor * t, const struct states * states,
        const struct batch * batch, int32_t * data, struct lrnn_error * err) {
    const int32_t n_rewind = states->size.n_rewind;
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        const struct graph_seq * s = &batch->seqs[i];
        int32_t *                ids = data + i * (GGML_SCAN_SNAPS + n_rewind);
        const int64_t            end = s->position + s->count;
        ids[GGML_SCAN_SLOT_IN] =
                s->position == 0 ? -1 : (int32_t) states_slot(states, s->seq, s->position);
        ids[GGML_SCAN_SLOT_OUT] = (int32_t) states_slot(states, s->seq, end);
        ids[GGML_SCAN_FIRST] = (int32_t) s->first;
        ids[GGML_SCAN_COUNT] = (int32_t) s->count;
        for (int64_t back = 1; back <= n_rewind; ++back) { // earlier states are in their slots
            ids[GGML_SCAN_SNAPS + back - 1] =
                    back < s->count ? (int32_t) states_slot(states, s->seq, end - back) : -1;
        }
    }
    if (!ggml_scan_ids_check(data, n_rewind, batch->n_seqs, states->size.n_seqs * (n_rewind + 1),
                batch->n_tokens, err)) {
        return false;
    }
    set(t, data);
    return true;
}

static void fill_outputs(struct ggml_tensor * t, const struct batch * batch, int32_t * data) {
    int64_t n = 0;
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        const struct graph_seq * s = &batch->seqs[i];
        for (int64_t j = s->count - s->n_outputs; j < s->count; ++j) {
            data[n++] = (int32_t) (s->first + j);
        }
    }
    set(t, data);
}

// mask[t][j] = 0 if token t sees row j of the cache, else -inf
static void fill_mask(
        struct ggml_tensor * t, const struct graph_seq * s, int64_t window, ggml_fp16_t * data) {
    const ggml_fp16_t zero = ggml_fp32_to_fp16(0.0f), minus_inf = ggml_fp32_to_fp16(-INFINITY);
    const int64_t     visible = t->ne[0];
    for (int64_t i = 0; i < s->count; ++i) {
        const int64_t now = s->position + i;
        for (int64_t j = 0; j < visible; ++j) {
            const bool hidden =
                    j > now || (window > 0 && j <= now - window) || (j < s->hidden && j != now);
            data[i * visible + j] = hidden ? minus_inf : zero;
        }
    }
    set(t, data);
}

// The bytes of the largest input, which is filled in memory and then copied to its device.
static size_t largest(const struct graph_inputs * in, const struct batch * batch) {
    size_t most = ggml_nbytes(in->rows);
    most = ggml_nbytes(in->ids) > most ? ggml_nbytes(in->ids) : most;
    for (int32_t i = 0; i < batch->n_seqs && in->masks != NULL; ++i) {
        most = ggml_nbytes(in->masks[i]) > most ? ggml_nbytes(in->masks[i]) : most;
    }
    return most;
}

bool graph_inputs_fill(const struct graph_inputs * in, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, struct lrnn_error * err) {
    const size_t size = largest(in, batch);
    void *       data = malloc(size);
    if (data == NULL) {
        return error_no_memory(err, "%zu bytes of graph inputs", size);
    }
    const bool ok = fill_ids(in->ids, states, batch, data, err) &&
                    fill_positions(in->positions, batch, data, err);
    if (ok) {
        fill_tokens(in->tokens, batch, data);
        fill_rows(in->rows, states, batch, data);
        if (in->hidden != NULL) {
            set(in->hidden, batch->hidden);
        }
        if (in->outputs != NULL) {
            fill_outputs(in->outputs, batch, data);
        }
        for (int32_t i = 0; i < batch->n_seqs && in->masks != NULL; ++i) {
            fill_mask(in->masks[i], &batch->seqs[i], model->attention_window, data);
        }
    }
    free(data);
    return ok;
}
