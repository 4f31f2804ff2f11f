#pragma once

// The families of models, one file each, and the layer parts they share.
//
// A family file begins with the equation. Then it loads: keys that all layers share, weights of a
// layer, with checks. Then it builds the graph: prepare the inputs of the recurrence, run the op,
// finish with norm, gate and projection. Letters in shapes:
//
//     T  tokens of the batch        H  heads                     W  width of the short convolution
//     D  embedding length           K  length of a key, d_k      F  width of the MLP
//     V  vocabulary                 P  length of a value, d_v

#include "model/load-tensors.h"
#include "model/graph.h"

// ---- families.c ---------------------------------------------------------------------------------

// Every family, by its name in lrnn.family. Its file defines family_<name>.
#define FAMILIES(X)        \
    X(arwkv7)              \
    X(bailingmoe3)         \
    X(delta_net)           \
    X(falcon_h1)           \
    X(gated_delta_net)     \
    X(gated_delta_net_2)   \
    X(gated_delta_product) \
    X(gla)                 \
    X(granitehybrid)       \
    X(hgrn2)               \
    X(jamba)               \
    X(kda)                 \
    X(kimi_linear)         \
    X(lfm2)                \
    X(lfm2moe)             \
    X(mamba)               \
    X(mamba2)              \
    X(mlstm)               \
    X(nemotron_h)          \
    X(nemotron_h_moe)      \
    X(qwen3next)           \
    X(qwen35)              \
    X(qwen35moe)           \
    X(retnet)              \
    X(rwkv6)               \
    X(rwkv6qwen2)          \
    X(rwkv7)               \
    X(transformer)         \
    X(xlstm)

// x [D, T] → [D, T]
typedef struct ggml_tensor * (*build_function)(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x);

struct family {
    const char * name;           // lrnn.family
    const char * llama_cpp;      // llama.cpp's architecture whose files load as well; NULL: none
    bool         signed_form;    // there is a form with eigenvalues in [-1,1]
    bool         own_range;      // eigenvalues neither in [0,1] nor in [-1,1]: "family"
    bool         attention_only; // no recurrent layers
    bool         layer_norm;     // LayerNorms without a bias instead of RMSNorms

    size_t shared_size; // bytes of model->shared, the keys that all layers share
    size_t layer_size;  // bytes of layer->weights

    // Reads the keys into model->shared, and the weights of layer il into layer->weights. Declares
    // the states of the layer. The memory is zeroed.
    bool (*load)(struct loader * l);
    bool (*load_layer)(struct loader * l, int32_t il, struct layer * layer);

    // One of the two: the mixer, to which layer.c adds norms, MLP and residuals; or a whole layer.
    build_function mix;
    build_function build_layer;
    bool           no_mlp; // layers with the mixer have no MLP

    // A hybrid with the mixer of another family, in place of the functions and sizes above.
    const struct family * mixer;

    // In files of llama.cpp: what layer il has, if layers differ; features of their attention; and
    // the names of the norm before the MLP, NULL: "ffn_norm.weight", and of the last one.
    void (*layer_kind)(struct loader * l, int32_t il, struct layer * layer);
    int          attention; // bits of enum attention_feature
    int          router;    // of mixtures: bits of enum router_feature
    bool         draft;     // may have a draft block
    const char * ffn_norm;
    const char * output_norm; // NULL: "output_norm.weight"
};

#define FAMILY_DECLARE(name) extern const struct family family_##name;
FAMILIES(FAMILY_DECLARE)
#undef FAMILY_DECLARE

// The family whose mixer the recurrent layers of a family have: itself, unless it is a hybrid.
const struct family * family_mixer(const struct family * family);

// NULL if there is no family of this name, or of this architecture of llama.cpp.
const struct family * family_find(const char * name, bool llama_cpp);

// The names of all families, or the architectures of llama.cpp: "mamba, mamba2, qwen35, ...".
void family_names(bool llama_cpp, char * text, size_t size);

// ---- layer.c: layers of all kinds ---------------------------------------------------------------

// What the layers of a model have, before their tensors are read.
bool layer_kinds_load(struct loader * l);

// In files of llama.cpp: a layer with key heads is attention, others are recurrent. The first
// layers have an MLP, the others experts if there are any.
void layer_kind_by_heads(struct loader * l, int32_t il, struct layer * layer);

bool layer_load(struct loader * l, int32_t il, struct layer * layer);

// x [D, T] → [D, T]
struct ggml_tensor * layer_build(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x);

// Writes x [D, T], the input of an attention layer, to its caches, and computes nothing else.
void layer_store(struct graph * g, const struct layer * layer, struct ggml_tensor * x);

// The norm of a model, over the first dimension: LayerNorm if the family has it or if there is a
// bias b, otherwise RMSNorm
struct ggml_tensor * layer_norm(
        struct graph * g, struct ggml_tensor * w, struct ggml_tensor * b, struct ggml_tensor * x);

// lrnn.block_style. The attention layers of OLMo-Hybrid have their norms after mixer and MLP, its
// recurrent layers before. Single: a layer is a mixer or an MLP with ReLU², as in Nemotron-H.
enum layer_style { LAYER_STYLE_PRE_NORM, LAYER_STYLE_OLMO_HYBRID, LAYER_STYLE_SINGLE };

enum layer_style layer_style_load(struct loader * l);

// ---- mlp.c: the MLP of a layer, x [D, T] → [D, T] -----------------------------------------------
struct mlp {
    struct ggml_tensor *gate, *gate_b; // [D, F], [F] or NULL; ReLU²: NULL
    struct ggml_tensor *up, *up_b;     // [D, F], [F] or NULL
    struct ggml_tensor *down, *down_b; // [F, D], [D] or NULL
    bool                gelu;          // of the gate; otherwise SiLU
    float               limit;         // of SwiGLU, 0: none
};

// silu(gate) ∘ up, of the same shape. With a limit m: min(silu(gate), m) ∘ min(max(up, −m), m)
struct ggml_tensor * swiglu_build(
        struct graph * g, struct ggml_tensor * gate, struct ggml_tensor * up, float limit);

bool mlp_load(struct loader * l, int32_t il, const struct layer * layer, struct mlp * mlp);
struct ggml_tensor * mlp_build(struct graph * g, const struct mlp * mlp, struct ggml_tensor * x);

// ---- moe.c: a mixture of experts, x [D, T] → [D, T]; gated: SwiGLU, otherwise ReLU² -------------
enum router_feature {             // of files of llama.cpp that do not say it
    ROUTER_SIGMOID = 1 << 0,      // otherwise softmax
    ROUTER_UNNORMALIZED = 1 << 1, // the weights of the chosen experts do not add up to 1
};

struct moe * moe_load(struct loader * l, int32_t il, const struct layer * layer, bool gated);
struct ggml_tensor * moe_build(struct graph * g, const struct moe * moe, struct ggml_tensor * x);

// ---- layer-parts.c: a projection with its short convolution, y = f(conv(W x)) -------------------
struct conv_proj {
    struct ggml_tensor * proj;  // [D, channels]
    struct ggml_tensor * conv;  // [W, channels], NULL: none
    struct ggml_tensor * bias;  // [channels] or NULL
    int32_t              state; // its number in the layer
};

// lrnn.conv_width: 0 for none, at least 2 otherwise.
int64_t conv_width_load(struct loader * l);

// lrnn.head_count, lrnn.key_length and lrnn.value_length
void heads_load(struct loader * l, int64_t * H, int64_t * K, int64_t * P);

// Reads the projection `weight` ("attn_q.weight") and the convolution "ssm_conv1d_<name>.weight".
bool conv_proj_load(struct loader * l, int32_t il, struct layer * layer, const char * weight,
        const char * name, int64_t width, int64_t channels, struct conv_proj * proj);

// The projections attn_q, attn_k and attn_v, with n_q, n_k and n_v channels
struct qkv {
    struct conv_proj q, k, v;
};

void qkv_load(struct loader * l, int32_t il, struct layer * layer, int64_t width, int64_t n_q,
        int64_t n_k, int64_t n_v, struct qkv * qkv);

// x [D, T] → [channels, T]
struct ggml_tensor * conv_proj_build(struct graph * g, const struct conv_proj * proj,
        enum ggml_short_conv_activation activation, struct ggml_tensor * x);

// Columns first .. first + n − 1 of a fused projection x [width, T] → [n, T], a view
struct ggml_tensor * columns(struct graph * g, struct ggml_tensor * x, int64_t first, int64_t n);

// The mix of a token with the one before in RWKV: h + d ∘ μ, h and d = h_{t−1} − h [D, T], μ [D]
struct ggml_tensor * lerp(
        struct graph * g, struct ggml_tensor * h, struct ggml_tensor * d, struct ggml_tensor * mu);

// A map of low rank: up (down x) + bias, x [D, T] → [out, T]; up NULL: down x + bias
struct low_rank {
    struct ggml_tensor * down; // [D, r]; without up [D, out]
    struct ggml_tensor * up;   // [r, out] or NULL
    struct ggml_tensor * bias; // [out] or NULL
};

// Reads the tensors with these names; that of the bias may be NULL.
void low_rank_load(struct loader * l, int32_t il, const char * down, const char * up,
        const char * bias, int64_t out, int need, struct low_rank * map);
struct ggml_tensor * low_rank_build(
        struct graph * g, const struct low_rank * map, struct ggml_tensor * x);

// ---- The activation of q and k: the words of lrnn.qk_activation and lrnn.feature_map ------------
enum activation {
    ACTIVATION_IDENTITY,
    ACTIVATION_RELU,
    ACTIVATION_ELU, // elu(x) + 1
    ACTIVATION_SILU,
};

extern const char * const ACTIVATIONS[];

struct ggml_tensor * activation_build(
        struct graph * g, enum activation activation, struct ggml_tensor * x);

//
// The gate of (Gated) DeltaNet and DeltaProduct: g = exp(−exp(A_log) softplus(W_α x + dt_bias))
//
struct head_gate {
    struct ggml_tensor * alpha;   // [D, H], NULL: part of another projection
    struct ggml_tensor * a;       // [H]            −exp(A_log)
    struct ggml_tensor * dt_bias; // [H]
};

void head_gate_load(struct loader * l, int32_t il, int64_t n_head, struct head_gate * gate);

// The same without alpha.
void head_gate_load_parts(struct loader * l, int32_t il, int64_t n_head, struct head_gate * gate);

// x [D, T], or without alpha W_α x [H, T] → [H, T]
struct ggml_tensor * head_gate_build(
        struct graph * g, const struct head_gate * gate, struct ggml_tensor * x);

//
// The readout of fla's mixers: W_o (RMSNorm(o) per head ∘ f(W_g x)), f SiLU, σ or no gate at all;
// and of Megatron's: W_o RMSNorm(o ∘ silu(W_g x)) per group of heads
//
enum output_gate { OUTPUT_GATE_NONE, OUTPUT_GATE_SILU, OUTPUT_GATE_SIGMOID };

extern const char * const OUTPUT_GATES[];

struct readout {
    int64_t              groups; // of the second form, set before loading; 0: the first
    struct ggml_tensor * norm;   // [P] or NULL; [H·P/groups, groups]
    struct ggml_tensor * gate;   // [D, H·P] or NULL
    struct ggml_tensor * output; // [H·P, D]
    float                eps;
    enum output_gate     activation; // of the gate
};

// norm: TENSOR_REQUIRED or TENSOR_OPTIONAL. The gate is read unless `gate` is OUTPUT_GATE_NONE.
void readout_load(struct loader * l, int32_t il, int64_t n_head, int64_t d_v, int norm, float eps,
        enum output_gate gate, struct readout * readout);

// o [P, H, T], x [D, T] → [D, T]
struct ggml_tensor * readout_build(struct graph * g, const struct readout * readout,
        struct ggml_tensor * o, struct ggml_tensor * x);

// The same, but the caller computes W_g x: gate [H·P, T].
struct ggml_tensor * readout_build_gated(struct graph * g, const struct readout * readout,
        struct ggml_tensor * o, struct ggml_tensor * gate);

// ---- attention.c: the attention layers of hybrids and of the Transformer ------------------------
enum attention_feature { // of files of llama.cpp
    ATTENTION_ROPE = 1 << 0,
    ATTENTION_QK_NORM = 1 << 1, // q and k normalized per head
    ATTENTION_GATE = 1 << 2,    // W_q also has rows for an output gate; latent: one for each head
    ATTENTION_LATENT = 1 << 3,  // mla.c
    ATTENTION_ROPE_FINETUNED = 1 << 4, // RoPE of neighbors, unless rope.scaling.finetuned is false
};

bool attention_load(struct loader * l, int32_t il, struct layer * layer);
struct ggml_tensor * attention_mix(
        struct graph * g, const struct layer * layer, struct ggml_tensor * x);

// Only writes k and v of x [D, T] to the caches.
void attention_remember(struct graph * g, const struct layer * layer, struct ggml_tensor * x);

// Writes the rows of all tokens of the batch, x [width, T], to the caches of their sequences. The
// graph is expanded at once, so that this happens before any read.
void attention_store(struct graph * g, struct ggml_tensor * cache, struct ggml_tensor * x);

// q [L, H, T] against the caches of the layer, with HK heads of k, of length L, and v, of length P
// → [H·P, T]
struct ggml_tensor * attention_attend(
        struct graph * g, struct ggml_tensor * q, int64_t HK, int64_t P, float scale);

// ---- draft-block.c ------------------------------------------------------------------------------
bool draft_block_load(struct loader * l);

// The part of the block in a call of the model: keeps h [D, T] of the last token, and writes the
// rows of all tokens to the cache.
void draft_block_follow(struct graph * g, struct ggml_tensor * h);

// A guess for each token of the batch → h' [D, T]
struct ggml_tensor * draft_block_build(struct graph * g);

// ---- mla.c: the same with latent rows -----------------------------------------------------------
bool mla_load(struct loader * l, int32_t il, struct layer * layer);
struct ggml_tensor * mla_mix(struct graph * g, const struct layer * layer, struct ggml_tensor * x);
