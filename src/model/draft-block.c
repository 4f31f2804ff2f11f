// The draft block (multi-token prediction): one more attention layer after those of the model. It
// guesses the token after x_p from x_p and from what the model computed for the token before it:
//
//     u_p = W (RMSNorm(embedding of x_p), RMSNorm(h_{p−1}))   h: the last layer after the last norm
//     h'_p = RMSNorm(layer(u_p))                              its logits are the guess of x_{p+1}
//
// A longer draft takes h' of the last guess in place of h. The cache of the block always has the
// rows of h: every call of the model writes those of its tokens, over what a draft wrote. The state
// of the block is h of the last token.

#include "model/families.h"

bool draft_block_load(struct loader * l) {
    struct draft_block * b = l->model->draft;
    const int32_t        il = l->model->n_layer;
    const int64_t        D = l->model->n_embd;
    const int64_t        V = l->model->info.n_vocab;
    struct layer *       layer = &l->model->layers[il];

    l->device = layer->device;
    b->project = loader_tensor_2d(l, il, "nextn.eh_proj.weight", TENSOR_REQUIRED, 2 * D, D);
    b->embd_norm = loader_tensor_1d(l, il, "nextn.enorm.weight", TENSOR_F32, D);
    b->hidden_norm = loader_tensor_1d(l, il, "nextn.hnorm.weight", TENSOR_F32, D);
    b->output_norm = loader_tensor_1d(
            l, il, "nextn.shared_head_norm.weight", TENSOR_F32 | TENSOR_OPTIONAL, D);
    b->output = loader_tensor_2d(l, il, "nextn.shared_head_head.weight", TENSOR_OPTIONAL, D, V);
    loader_state(l, layer, D);
    const bool ok = !l->failed && layer_load(l, il, layer);
    l->device = 0; // as the embedding of the model
    b->token_embd = loader_tensor_2d(l, il, "nextn.embed_tokens.weight", TENSOR_OPTIONAL, D, V);

    // what the block shares with the model
    b->output_norm = b->output_norm != NULL ? b->output_norm : l->model->output_norm;
    b->output = b->output != NULL ? b->output : l->model->output;
    b->token_embd = b->token_embd != NULL ? b->token_embd : l->model->token_embd;
    return ok && !l->failed;
}

// h [D, T] of the tokens before those of the batch → u [D, T]
static struct ggml_tensor * build_input(struct graph * g, struct ggml_tensor * h) {
    const struct draft_block * b = g->model->draft;
    struct ggml_tensor *       e = ggml_get_rows(g->ctx, b->token_embd, g->inputs->tokens);
    e = layer_norm(g, b->embd_norm, NULL, e);
    h = layer_norm(g, b->hidden_norm, NULL, h);
    return graph_product(g, b->project, ggml_concat(g->ctx, e, h, 0));
}

void draft_block_follow(struct graph * g, struct ggml_tensor * h) {
    layer_store(g, &g->model->layers[g->model->n_layer], build_input(g, graph_shift(g, 0, h)));
}

struct ggml_tensor * draft_block_build(struct graph * g) {
    struct ggml_tensor * u = build_input(g, g->inputs->hidden);
    u = layer_build(g, &g->model->layers[g->model->n_layer], u);
    return layer_norm(g, g->model->draft->output_norm, NULL, u);
}
