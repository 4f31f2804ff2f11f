#pragma once

// A loaded model, as the library sees it: what every family has, its layers, and the table of
// families.

#include "lrnn.h"

#include "ggml-backend.h"
#include "ggml.h"

struct model_file;
struct graph;
struct loader;

enum {
    LAYER_STATES_MAX = 5,  // of a layer: the recurrence, three convolutions, two token shifts
    DEVICES_MAX      = 16, // as many backends as a scheduler of ggml can have
};

// Where weights lie. Place 0 is the CPU, and its weights are the mapping of the file.
struct device {
    ggml_backend_dev_t    dev;
    struct ggml_context * ctx; // headers of its weights
    ggml_backend_buffer_t buffer;
};

struct layer {
    bool    attention;
    int32_t device;  // of its weights, and of its states where the device can compute with them
    void *  weights; // a struct of the family, or of attention
    int32_t n_states;
    int64_t state_size[LAYER_STATES_MAX]; // floats of one slot
    int64_t cache_size;                   // floats of one token in the cache of k and in that of v
};

// A family of models: one file in src/models and one line in src/models/models.h. Its file begins
// with the equation.
struct family {
    const char * name;        // lrnn.family
    bool         signed_form; // eigenvalues in [-1,1] are defined
    bool         own_range;   // neither [0,1] nor [-1,1]: "family"

    // reads what the family has once, for all layers; NULL: nothing
    bool (*load)(struct loader * loader);

    // reads the weights of layer il and says which states it has
    bool (*load_layer)(struct loader * loader, int32_t il, struct layer * layer);

    // x [D, T] → x [D, T], the whole block with its residuals
    struct ggml_tensor * (*block)(
            struct graph * graph, const struct layer * layer, struct ggml_tensor * x);
};

struct lrnn_model {
    struct model_file *    file;
    const struct family *  family;
    struct lrnn_model_info info;
    bool                   is_signed;    // eigenvalues in [-1,1]
    bool                   is_quantized; // some matrix is

    int64_t n_embd; // D
    int64_t n_ff;   // F, 0: none
    float   norm_eps;
    float   logit_soft_cap; // 0: none
    bool    final_norm;
    void *  shared; // what family->load read

    struct ggml_tensor * token_embd; // [D, V]
    struct ggml_tensor * embd_norm;  // [D], NULL: none; with its bias a LayerNorm
    struct ggml_tensor * embd_norm_b;
    struct ggml_tensor * output_norm;   // [D]
    struct ggml_tensor * output_norm_b; // NULL: RMSNorm
    struct ggml_tensor * output;        // [D, V], the embedding where tied
    struct ggml_tensor * rope_factors;  // [length/2], of all attention layers; NULL: none

    struct layer * layers;
    int32_t        n_layer;

    struct tokenizer * tokenizer; // NULL: ids only

    struct device devices[DEVICES_MAX];
    int32_t       n_devices;     // 1: the CPU alone
    int32_t       output_device; // of the output and its norm; the embedding is on the CPU

    lrnn_log log; // NULL: nobody listens
    void *   log_user;

    struct arena * arena; // layers and weights
};

// The families, by lrnn.family.
const struct family * family_find(const char * name);
