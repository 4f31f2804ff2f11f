// Qwen3.5 and Qwen3-Next: Gated DeltaNet layers, every fourth layer gated attention (attention.c);
// each with an MLP, or with a mixture of experts (moe.c)
//
//     (q, k, v) = silu(conv(W_qkv x))   β = σ(W_β x)
//     q, k / ‖·‖                        g = exp(−exp(A_log) softplus(W_α x + dt_bias))
//     S ← g S;   S ← S + β k (v − Sᵀ k)ᵀ;   o = K^-1/2 Sᵀ q
//     out = W_o (RMSNorm(o) ∘ silu(W_z x))
//
// β and g are per value head. There are HV value heads, a multiple of the H heads of q and k. The
// file is one of llama.cpp, whose converter puts the value heads of Qwen3.5 in the order of ggml's
// broadcast: value head h uses key head h mod H. Those of Qwen3-Next use key head h / (HV/H), and
// W_β and W_α are one matrix: for each key head HV/H rows of β, then as many of α.

#include "lrnn.h"
#include "file/model-file.h"
#include "model/families.h"

#include <math.h>

struct qwen35 {
    int64_t H, HV, K, W;
    bool    grouped; // Qwen3-Next
};

struct qwen35_layer {
    struct ggml_tensor * qkv;  // [D, C], C = 2·H·K + HV·K: rows q, k, v
    struct ggml_tensor * conv; // [W, C]
    int32_t              conv_state;
    struct ggml_tensor * beta; // [D, HV]; grouped: [D, 2HV], β and α
    struct head_gate     gate; // [D, HV] or NULL, [HV], [HV]
    struct readout       readout;
};

static int64_t channels(const struct qwen35 * f) {
    return (2 * f->H + f->HV) * f->K;
}

static bool load(struct loader * l) {
    struct qwen35 * f = l->model->shared;

    const char * groups = loader_key(l, "ssm.group_count");
    const char * heads = loader_key(l, "ssm.time_step_rank");

    f->grouped = l->model->family == &family_qwen3next;
    f->H = loader_int(l, groups, 1, 4096);
    f->HV = loader_int(l, heads, 1, 4096);
    loader_multiple(l, heads, f->HV, groups, f->H);
    f->K = loader_int(l, loader_key(l, "ssm.state_size"), 1, 65536);
    f->W = loader_int(l, loader_key(l, "ssm.conv_kernel"), 2, 64);

    const char *  inner = loader_key(l, "ssm.inner_size");
    const int64_t E = loader_int(l, inner, 1, 1 << 24);
    if (!l->failed && E != f->HV * f->K) {
        loader_fail(l,
                "key '%s' is %lld; expected %lld, the product of time_step_rank and state_size",
                inner, (long long) E, (long long) (f->HV * f->K));
    }
    l->model->info.n_householder = 1;
    return !l->failed;
}

static bool load_layer(struct loader * l, int32_t il, struct layer * layer) {
    const struct qwen35 * f = l->model->shared;
    struct qwen35_layer * w = layer->weights;
    const int64_t         D = l->model->n_embd;
    const int64_t         C = channels(f);
    const int64_t         E = f->HV * f->K;

    loader_recurrence(l, layer, f->HV, f->K, f->K, 0);
    w->conv_state = loader_state(l, layer, (f->W - 1) * C);
    w->qkv = loader_tensor_2d(l, il, "attn_qkv.weight", TENSOR_REQUIRED, D, C);
    w->conv = loader_tensor_2d(l, il, "ssm_conv1d.weight", TENSOR_F32, f->W, C);
    if (f->grouped) {
        w->beta = loader_tensor_2d(l, il, "ssm_ba.weight", TENSOR_REQUIRED, D, 2 * f->HV);
        head_gate_load_parts(l, il, f->HV, &w->gate);
    } else {
        w->beta = loader_tensor_2d(l, il, "ssm_beta.weight", TENSOR_REQUIRED, D, f->HV);
        head_gate_load(l, il, f->HV, &w->gate);
    }
    w->readout = (struct readout) {
        .norm = loader_tensor_1d(l, il, "ssm_norm.weight", TENSOR_F32, f->K),
        .gate = loader_tensor_2d(l, il, "attn_gate.weight", TENSOR_REQUIRED, D, E),
        .output = loader_tensor_2d(l, il, "ssm_out.weight", TENSOR_REQUIRED, E, D),
        .eps = l->model->norm_eps,
        .activation = OUTPUT_GATE_SILU,
    };
    return !l->failed;
}

// Half 0, β, or 1, α, of all key heads of a grouped projection [2HV, T] → [HV, T]
static struct ggml_tensor * grouped_half(
        struct graph * g, const struct qwen35 * f, struct ggml_tensor * ba, int half) {
    const size_t         size = (size_t) (f->HV / f->H) * sizeof(float); // of one key head
    struct ggml_tensor * x = ggml_view_3d(
            g->ctx, ba, f->HV / f->H, f->H, g->n_tokens, 2 * size, ba->nb[1], (size_t) half * size);
    return ggml_reshape_2d(g->ctx, ggml_cont(g->ctx, x), f->HV, g->n_tokens);
}

// q or k at column `first` of the fused projection, normalized → [K, HV, 1, T]; grouped: H heads
static struct ggml_tensor * keys(
        struct graph * g, const struct qwen35 * f, struct ggml_tensor * qkv, int64_t first) {
    struct ggml_tensor * x = graph_heads(g, columns(g, qkv, first, f->H * f->K), f->K, f->H, 1);
    x = graph_l2_norm(g, x, 1e-6f); // [K, H, 1, T]
    return f->H == f->HV || f->grouped ? x : ggml_repeat_4d(g->ctx, x, f->K, f->HV, 1, g->n_tokens);
}

static struct ggml_tensor * mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x) {
    const struct qwen35 *       f = g->model->shared;
    const struct qwen35_layer * w = layer->weights;
    const int64_t               HK = f->H * f->K;

    struct ggml_tensor * qkv = graph_conv(g, w->conv_state, w->conv, NULL, GGML_SHORT_CONV_SILU,
            graph_linear(g, w->qkv, NULL, x));              // [C, T]
    struct ggml_tensor * ba = graph_product(g, w->beta, x); // [HV, T] or [2HV, T]
    struct ggml_tensor * beta = graph_beta(g, f->grouped ? grouped_half(g, f, ba, 0) : ba);
    struct ggml_tensor * gate = // [HV, T]
            head_gate_build(g, &w->gate, f->grouped ? grouped_half(g, f, ba, 1) : x);

    const struct ggml_householder_scan_args args = {
        .q = keys(g, f, qkv, 0),
        .k = keys(g, f, qkv, HK),
        .v = graph_heads(g, columns(g, qkv, 2 * HK, f->HV * f->K), f->K, f->HV, 1),
        .beta = graph_heads(g, beta, 1, f->HV, 1),
        .gate = graph_heads(g, gate, 1, f->HV, 1),
        .scale = 1.0f / sqrtf((float) f->K),
    };
    struct ggml_tensor * o = graph_householder(g, args); // [K, HV, T]
    return readout_build(g, &w->readout, o, x);
}

// The file lists the recurrent layers, or else every interval-th layer is attention.
static void layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    const struct model_key * recurrent;
    struct lrnn_error        why;
    const char *             key = loader_key(l, "attention.recurrent_layers");
    if (model_file_bools(l->file, key, &recurrent, &why) == KEY_OK) {
        if ((size_t) il >= recurrent->n) {
            loader_fail(l, "key '%s' has %zu elements; expected %d", key, recurrent->n,
                    l->model->n_layer + (l->model->draft != NULL));
        }
        layer->attention = !model_key_bool(recurrent, (size_t) il);
    } else {
        key = loader_key(l, "full_attention_interval");
        layer->attention = (il + 1) % loader_int_or(l, key, 1, 4096, 4) == 0;
    }
    layer->recurrent = !layer->attention;
}

const struct family family_qwen35 = {
    .name = "qwen35",
    .llama_cpp = "qwen35",
    .shared_size = sizeof(struct qwen35),
    .layer_size = sizeof(struct qwen35_layer),
    .load = load,
    .load_layer = load_layer,
    .mix = mix,
    .layer_kind = layer_kind,
    .attention = ATTENTION_ROPE | ATTENTION_QK_NORM | ATTENTION_GATE,
    .draft = true,
    .ffn_norm = "post_attention_norm.weight", // in spite of its name
};

static void moe_layer_kind(struct loader * l, int32_t il, struct layer * layer) {
    layer_kind(l, il, layer);
    layer->ffn = FFN_SWIGLU_EXPERTS;
}

const struct family family_qwen35moe = {
    .name = "qwen35moe",
    .llama_cpp = "qwen35moe",
    .mixer = &family_qwen35,
    .layer_kind = moe_layer_kind,
    .attention = ATTENTION_ROPE | ATTENTION_QK_NORM | ATTENTION_GATE,
    .draft = true,
    .ffn_norm = "post_attention_norm.weight",
};

const struct family family_qwen3next = {
    .name = "qwen3next",
    .llama_cpp = "qwen3next",
    .mixer = &family_qwen35,
    .layer_kind = moe_layer_kind,
    .attention = ATTENTION_ROPE | ATTENTION_QK_NORM | ATTENTION_GATE,
    .draft = true,
    .ffn_norm = "post_attention_norm.weight",
};
