// The MLP of a layer, with SwiGLU, GEGLU or ReLU²:
//
//     mlp(x) = W_down (silu(W_gate x) ∘ W_up x)                  each product with an optional bias
//     mlp(x) = W_down (gelu(W_gate x) ∘ W_up x)
//     mlp(x) = W_down relu(W_up x)²
//
// Some SwiGLU have a limit m: min(silu(W_gate x), m) ∘ min(max(W_up x, −m), m)

#include "model/families.h"

#include <math.h>

bool mlp_load(struct loader * l, int32_t il, const struct layer * layer, struct mlp * mlp) {
    const int64_t D = l->model->n_embd;
    const int64_t F = layer->n_ff;
    if (F == 0) {
        return loader_fail(l, "key '%s' is missing", loader_key(l, "feed_forward_length"));
    }
    mlp->gelu = layer->ffn == FFN_GEGLU;
    mlp->limit = layer->glu_limit;
    if (layer->ffn != FFN_RELU2) {
        mlp->gate = loader_tensor_2d(l, il, "ffn_gate.weight", TENSOR_REQUIRED, D, F);
        mlp->gate_b = loader_tensor_1d(l, il, "ffn_gate.bias", TENSOR_F32 | TENSOR_OPTIONAL, F);
    }
    mlp->up = loader_tensor_2d(l, il, "ffn_up.weight", TENSOR_REQUIRED, D, F);
    mlp->down = loader_tensor_2d(l, il, "ffn_down.weight", TENSOR_REQUIRED, F, D);
    mlp->up_b = loader_tensor_1d(l, il, "ffn_up.bias", TENSOR_F32 | TENSOR_OPTIONAL, F);
    mlp->down_b = loader_tensor_1d(l, il, "ffn_down.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    return !l->failed;
}

struct ggml_tensor * swiglu_build(
        struct graph * g, struct ggml_tensor * gate, struct ggml_tensor * up, float limit) {
    if (limit == 0.0f) {
        return ggml_swiglu_split(g->ctx, gate, up);
    }
    gate = ggml_clamp(g->ctx, ggml_silu(g->ctx, gate), -INFINITY, limit);
    return ggml_mul(g->ctx, gate, ggml_clamp(g->ctx, up, -limit, limit));
}

struct ggml_tensor * mlp_build(struct graph * g, const struct mlp * mlp, struct ggml_tensor * x) {
    if (mlp->gate == NULL) {
        struct ggml_tensor * up = graph_linear(g, mlp->up, mlp->up_b, x); // [F, T]
        return graph_linear(g, mlp->down, mlp->down_b, ggml_sqr(g->ctx, ggml_relu(g->ctx, up)));
    }
    struct ggml_tensor * gate = graph_linear(g, mlp->gate, mlp->gate_b, x); // [F, T]
    struct ggml_tensor * up = graph_linear(g, mlp->up, mlp->up_b, x);       // [F, T]
    return graph_linear(g, mlp->down, mlp->down_b,
            mlp->gelu ? ggml_geglu_erf_split(g->ctx, gate, up)
                      : swiglu_build(g, gate, up, mlp->limit));
}
