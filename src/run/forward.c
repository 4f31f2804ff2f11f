#include "run/forward.h"

#include "base/error.h"
#include "model/families.h"
#include "model/context.h"

size_t forward_max_nodes(const struct lrnn_model * model, int32_t n_seqs) {
    // No family builds more. Attention builds a part of its graph for each sequence, a mixture for
    // each expert of a token.
    const int64_t layer = 160 + 2 * model->n_expert_used;
    return (size_t) (256 + model->n_layer * layer + model->info.n_layer_attention * n_seqs * 24);
}

// The layers: x [D, T] → [D, T]
static struct ggml_tensor * build_layers(
        struct graph * g, const struct states * states, struct ggml_tensor * x) {
    for (int32_t il = 0; il < g->model->n_layer; ++il) {
        const struct layer * layer = &g->model->layers[il];
        g->states = states->state[il];
        g->cache_k = states->cache_k[il];
        g->cache_v = states->cache_v[il];
        x = layer_build(g, layer, x);
    }
    return x;
}

// The logits of the output tokens: x [D, T] → [V, outputs]
static struct ggml_tensor * build_output(
        struct graph * g, struct ggml_tensor * outputs, struct ggml_tensor * x) {
    const struct lrnn_model * model = g->model;
    x = ggml_get_rows(g->ctx, x, outputs); // [D, outputs]
    if (model->final_norm) {
        x = layer_norm(g, model->output_norm, model->output_norm_b, x);
    }
    x = graph_product(g, model->output, x);
    x = graph_scale(g, x, model->logit_scale > 0.0f ? 1.0f / model->logit_scale : 0.0f);
    return graph_soft_cap(g, x, model->logit_soft_cap);
}

bool forward_build(struct forward * f, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, enum ggml_scan_path path,
        struct lrnn_error * err) {
    const size_t max_nodes = forward_max_nodes(model, batch->n_seqs);

    forward_free(f);
    f->ctx = context_new(2 * max_nodes, max_nodes);
    if (f->ctx == NULL ||
            !graph_inputs_declare(&f->inputs, f->ctx, model, batch, states->size.n_rewind)) {
        return error_no_memory(err, "a graph of %zu nodes", max_nodes);
    }
    f->graph = ggml_new_graph_custom(f->ctx, max_nodes, false);

    struct graph g = {
        .ctx = f->ctx,
        .gf = f->graph,
        .model = model,
        .inputs = &f->inputs,
        .seqs = batch->seqs,
        .n_seqs = batch->n_seqs,
        .n_tokens = batch->n_tokens,
        .path = path,
        .err = err,
    };
    struct ggml_tensor * x = ggml_get_rows(f->ctx, model->token_embd, f->inputs.tokens); // [D, T]
    x = graph_scale(&g, x, model->embd_scale);
    if (model->embd_norm != NULL) {
        x = graph_layer_norm(&g, x, model->embd_norm, model->embd_norm_b, model->norm_eps);
    }
    x = build_layers(&g, states, x);
    if (batch->n_outputs > 0) {
        x = f->logits = build_output(&g, f->inputs.outputs, x);
    }
    ggml_set_output(x);
    ggml_build_forward_expand(f->graph, x);
    return !g.failed;
}

void forward_free(struct forward * f) {
    context_free(f->ctx);
    graph_inputs_free(&f->inputs);
    *f = (struct forward) { 0 };
}
