#pragma once

// A loaded model: everything that does not depend on its family, and its layers.

#include "lrnn.h"

#include "ggml-backend.h"
#include "ggml.h"

struct family;
struct shell;
struct model_file;

enum {
    LAYER_STATES_MAX = 5, // the recurrence, three convolutions; or two token shifts
    DEVICES_MAX = 16,     // the limit of ggml's scheduler
};

// Holds weights. Device 0 is the CPU; its weights are in the mapped file.
struct device {
    ggml_backend_dev_t    dev;
    struct ggml_context * ctx; // headers of its weights
    ggml_backend_buffer_t buffer;
};

// The feed-forward part of a layer.
enum ffn { FFN_NONE, FFN_SWIGLU, FFN_GEGLU, FFN_RELU2, FFN_SWIGLU_EXPERTS, FFN_RELU2_EXPERTS };

struct layer {
    bool     recurrent; // has the recurrent mixer of the family
    bool     attention; // has attention; side by side with the other mixer if it has both
    enum ffn ffn;
    int64_t  n_ff;                         // F, 0: none
    float    glu_limit, glu_limit_experts; // of SwiGLU: MLP or shared expert, experts; 0: none
    int32_t  device; // of its weights; also of its states, if the device has the ops

    void *         weights;           // of the recurrent mixer, a struct of its family
    void *         attention_weights; // of attention.c or mla.c; NULL: no attention
    struct shell * shell;             // norms and MLP; NULL if they are part of weights

    int32_t n_states;
    int64_t state_size[LAYER_STATES_MAX]; // floats of one slot
    int64_t n_head, matrix_size;          // of the recurrence: heads, floats of the matrix of one
    int64_t cache_k, cache_v;             // values of one token; v 0: k contains it
    int64_t cache_head;                   // values of one head, or a divisor of both lengths
};

// One more attention layer, after the others, that guesses tokens: draft-block.c has the equations.
struct draft_block {
    struct ggml_tensor * project;     // [2D, D]
    struct ggml_tensor * embd_norm;   // [D]
    struct ggml_tensor * hidden_norm; // [D]
    struct ggml_tensor * output_norm; // [D]
    struct ggml_tensor * token_embd;  // [D, V]
    struct ggml_tensor * output;      // [D, V]
};

struct lrnn_model {
    struct model_file *    file;
    const struct family *  family;
    struct lrnn_model_info info;
    bool                   is_signed;    // eigenvalues in [-1,1]
    bool                   is_quantized; // has quantized matrices

    int64_t n_embd; // D
    float   norm_eps;
    float   embd_scale;     // of the embedding; 0: none
    float   residual_scale; // of what a mixer or an MLP adds to x; 0: none
    float   logit_scale;    // divides the logits; 0: none
    float   logit_soft_cap; // 0: none
    bool    final_norm;
    void *  shared; // the keys that family->load read

    int64_t n_expert_used; // of a token, at most; 0: no mixture

    struct ggml_tensor * token_embd;       // [D, V]
    struct ggml_tensor * embd_norm;        // [D], NULL: none; LayerNorm if there is a bias
    struct ggml_tensor * embd_norm_b;      // [D] or NULL
    struct ggml_tensor * output_norm;      // [D]
    struct ggml_tensor * output_norm_b;    // [D], NULL: RMSNorm
    struct ggml_tensor * output;           // [D, V], token_embd if tied
    int64_t              attention_window; // tokens that attention sees; 0: all
    struct ggml_tensor * rope_factors;     // [L/2], of all attention layers; NULL: none

    struct layer *       layers; // [n_layer], and that of the draft block
    int32_t              n_layer;
    struct draft_block * draft; // NULL: none

    struct tokenizer * tokenizer; // NULL: the model works on token ids only

    struct device devices[DEVICES_MAX];
    int32_t       n_devices;     // 1: only the CPU
    int32_t       output_device; // of output and output_norm; token_embd is on the CPU

    lrnn_log log; // NULL: none
    void *   log_user;

    struct arena * arena; // owns layers, their weights and the strings of info
};
