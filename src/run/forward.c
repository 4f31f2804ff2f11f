#include "run/forward.h"

#include "models/models.h"

#include <stdio.h>
#include <stdlib.h>

size_t forward_max_nodes(const struct lrnn_model * model, int32_t n_seqs) {
    // no family builds more than this; an attention layer builds its part for every sequence
    return (size_t) (256 + model->n_layer * 160 + model->info.n_layer_attention * n_seqs * 24);
}

static struct ggml_tensor * input(
        struct ggml_context * ctx, enum ggml_type type, int64_t ne0, int64_t ne1) {
    struct ggml_tensor * t = ggml_new_tensor_2d(ctx, type, ne0, ne1);
    ggml_set_input(t);
    return t;
}

// The layers, one after the other: x [D, T] → [D, T]
static struct ggml_tensor * build_layers(
        struct graph * g, const struct memory * memory, struct ggml_tensor * x) {
    for (int32_t il = 0; il < g->model->n_layer; ++il) {
        const struct layer * layer = &g->model->layers[il];
        g->states                  = memory->states[il];
        g->cache_k                 = memory->cache_k[il];
        g->cache_v                 = memory->cache_v[il];
        x                          = layer->attention ? attention_build_layer(g, layer, x)
                                                      : g->model->family->build_layer(g, layer, x);
    }
    return x;
}

// The logits of some tokens: x [D, T] → [V, outputs]
static struct ggml_tensor * build_output(
        struct graph * g, struct ggml_tensor * out_ids, struct ggml_tensor * x) {
    const struct lrnn_model * model = g->model;
    x                               = ggml_get_rows(g->ctx, x, out_ids); // [D, outputs]
    if (model->final_norm) {
        x = model->output_norm_b != NULL
                    ? graph_layer_norm(
                              g, x, model->output_norm, model->output_norm_b, model->norm_eps)
                    : graph_rms_norm(g, x, model->output_norm, model->norm_eps);
    }
    return graph_soft_cap(g, ggml_mul_mat(g->ctx, model->output, x), model->logit_soft_cap);
}

bool forward_build(struct forward * f, const struct lrnn_model * model,
        const struct memory * memory, const struct forward_call * call, char * err,
        size_t err_size) {
    const size_t max_nodes = forward_max_nodes(model, call->n_seqs);

    forward_free(f);
    f->masks = calloc((size_t) call->n_seqs, sizeof(*f->masks));
    f->ctx   = ggml_init((struct ggml_init_params) {
              .mem_size = ggml_tensor_overhead() * 2 * max_nodes +
                        ggml_graph_overhead_custom(max_nodes, false),
              .no_alloc = true,
    });
    if (f->ctx == NULL || f->masks == NULL) {
        snprintf(err, err_size, "out of memory for a graph of %zu nodes", max_nodes);
        return false;
    }
    f->graph     = ggml_new_graph_custom(f->ctx, max_nodes, false);
    f->tokens    = input(f->ctx, GGML_TYPE_I32, call->n_tokens, 1);
    f->positions = input(f->ctx, GGML_TYPE_I32, call->n_tokens, 1);
    f->rows      = input(f->ctx, GGML_TYPE_I64, call->n_tokens, 1);
    f->ids       = input(f->ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS + call->n_rewind, call->n_seqs);
    f->out_ids   = call->n_outputs > 0 ? input(f->ctx, GGML_TYPE_I32, call->n_outputs, 1) : NULL;

    struct graph g = {
        .ctx       = f->ctx,
        .gf        = f->graph,
        .model     = model,
        .n_tokens  = call->n_tokens,
        .ids       = f->ids,
        .positions = f->positions,
        .rows      = f->rows,
        .seqs      = call->seqs,
        .n_seqs    = call->n_seqs,
        .path      = call->path,
        .masks     = f->masks,
        .err       = err,
        .err_size  = err_size,
    };
    struct ggml_tensor * x = ggml_get_rows(f->ctx, model->token_embd, f->tokens); // [D, T]
    if (model->embd_norm != NULL) {
        x = graph_layer_norm(&g, x, model->embd_norm, model->embd_norm_b, model->norm_eps);
    }
    x = build_layers(&g, memory, x);
    if (call->n_outputs > 0) {
        x = f->logits = build_output(&g, f->out_ids, x);
    }
    f->window = g.window;
    ggml_set_output(x);
    ggml_build_forward_expand(f->graph, x);
    return !g.failed;
}

void forward_free(struct forward * f) {
    ggml_free(f->ctx);
    free(f->masks);
    *f = (struct forward) { 0 };
}
