#include "run/forward.h"

#include "base/error.h"
#include "model/families.h"
#include "model/context.h"

size_t forward_max_nodes(const struct lrnn_model * model, int32_t n_seqs, bool draft) {
    // No family builds more. Attention builds a part of its graph for each sequence, a mixture for
    // each expert of a token.
    const int64_t layer = 160 + 2 * model->n_expert_used;
    const int64_t n_layer = draft ? 1 : model->n_layer + 1;
    const int64_t n_attention = draft ? 1 : model->info.n_layer_attention;
    return (size_t) (256 + n_layer * layer + n_attention * n_seqs * 24);
}

// The graph uses the memory of this layer from now on.
static void use_layer(struct graph * g, const struct states * states, int32_t il) {
    g->states = states->state[il];
    g->cache_k = states->cache_k[il];
    g->cache_v = states->cache_v[il];
}

static struct ggml_tensor * final_norm(struct graph * g, struct ggml_tensor * x) {
    const struct lrnn_model * model = g->model;
    return model->final_norm ? layer_norm(g, model->output_norm, model->output_norm_b, x) : x;
}

// The whole model → logits of the output tokens [V, outputs]; NULL: there are none
static struct ggml_tensor * build_model(struct graph * g, const struct states * states) {
    const struct lrnn_model * model = g->model;
    struct ggml_tensor *      outputs = g->inputs->outputs;
    struct ggml_tensor * x = ggml_get_rows(g->ctx, model->token_embd, g->inputs->tokens); // [D, T]
    x = graph_scale(g, x, model->embd_scale);
    if (model->embd_norm != NULL) {
        x = graph_layer_norm(g, x, model->embd_norm, model->embd_norm_b, model->norm_eps);
    }
    for (int32_t il = 0; il < model->n_layer; ++il) {
        use_layer(g, states, il);
        x = layer_build(g, &model->layers[il], x);
    }
    if (states->size.draft_block) {
        x = final_norm(g, x);
        use_layer(g, states, model->n_layer);
        draft_block_follow(g, x);
    }
    ggml_build_forward_expand(g->gf, x);
    if (outputs == NULL) {
        ggml_set_output(x);
        return NULL;
    }
    x = ggml_get_rows(g->ctx, x, outputs); // [D, outputs]
    x = graph_product(g, model->output, states->size.draft_block ? x : final_norm(g, x));
    x = graph_scale(g, x, model->logit_scale > 0.0f ? 1.0f / model->logit_scale : 0.0f);
    return graph_soft_cap(g, x, model->logit_soft_cap);
}

bool forward_build(struct forward * f, const struct lrnn_model * model,
        const struct states * states, const struct batch * batch, enum ggml_scan_path path,
        struct lrnn_error * err) {
    const bool   draft = batch->hidden != NULL;
    const size_t max_nodes = forward_max_nodes(model, batch->n_seqs, draft);

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
    if (draft) {
        use_layer(&g, states, model->n_layer);
        f->hidden = draft_block_build(&g);
        ggml_set_output(f->hidden);
        f->logits = graph_product(&g, model->draft->output, f->hidden);
    } else {
        f->logits = build_model(&g, states);
    }
    if (f->logits != NULL) {
        ggml_set_output(f->logits);
        ggml_build_forward_expand(f->graph, f->logits);
    }
    return !g.failed;
}

void forward_free(struct forward * f) {
    context_free(f->ctx);
    graph_inputs_free(&f->inputs);
    *f = (struct forward) { 0 };
}
