// Opens and closes a model. Reads it from its file: family, hyperparameters, tensors outside the
// layers, tokenizer, and with the functions of the family the layers.

#include "model/model.h"

#include "base/arena.h"
#include "base/error.h"
#include "model/load-tensors.h"
#include "file/model-file.h"
#include "file/quantize-policy.h"
#include "model/families.h"
#include "model/placement.h"
#include "model/weights.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

// The family, and the eigenvalue range of its transitions.
static bool load_identity(struct loader * l) {
    struct lrnn_model * model = l->model;
    char                quoted[80];
    char                known[512];

    const char * arch = loader_string(l, "general.architecture");
    model->info.name = loader_string_or(l, "general.name", "");
    if (l->failed) {
        return false;
    }
    l->arch = arch;
    l->llama_cpp = strcmp(arch, "lrnn") != 0;
    model->info.architecture = arch;

    const char * name = arch;
    if (!l->llama_cpp) {
        loader_int(l, "lrnn.format_version", 1, 1);
        name = loader_string(l, "lrnn.family");
    }
    if (l->failed) {
        return false;
    }
    model->family = family_find(name, l->llama_cpp);
    if (l->llama_cpp && model->family == NULL) {
        family_names(true, known, sizeof(known));
        return loader_fail(l, "key 'general.architecture' is %s; expected one of lrnn, %s",
                slice_quote(quoted, sizeof(quoted), slice_of(arch)), known);
    }
    if (model->family == NULL) {
        family_names(false, known, sizeof(known));
        return loader_fail(l, "key 'lrnn.family' is %s; expected one of %s",
                slice_quote(quoted, sizeof(quoted), slice_of(name)), known);
    }
    model->info.family = model->family->name;

    enum { UNSIGNED, SIGNED, OWN_RANGE };
    static const char * const ranges[] = { "[0,1]", "[-1,1]", "family", NULL };

    const struct family * family = model->family;
    int range = family->own_range ? OWN_RANGE : UNSIGNED; // in a file of llama.cpp
    if (!l->llama_cpp) {
        range = loader_word(l, "lrnn.eigenvalues", ranges);
    }
    if (!l->failed && ((range == SIGNED && !family->signed_form) ||
                              (range == OWN_RANGE) != family->own_range)) {
        return loader_fail(l, "key 'lrnn.eigenvalues' is '%s'; expected %s for family %s",
                ranges[range],
                family->own_range     ? "'family'"
                : family->signed_form ? "'[0,1]' or '[-1,1]'"
                                      : "'[0,1]'",
                name);
    }
    model->is_signed = range == SIGNED;
    model->info.eigenvalues = ranges[range];
    model->info.range_source = loader_string_or(l, "lrnn.eigenvalues_source", "");
    model->info.source = loader_string_or(l, "lrnn.source", "");
    return !l->failed;
}

// Hyperparameters that every family has.
static bool load_shape(struct loader * l) {
    struct lrnn_model * model = l->model;
    const bool          ours = !l->llama_cpp;

    model->n_embd = loader_int(l, loader_key(l, "embedding_length"), 1, 1 << 20);
    model->n_layer = (int32_t) loader_int(l, loader_key(l, "block_count"), 1, 4096);
    if (!ours) { // layers that predict several tokens follow those of the model
        const int64_t extra =
                loader_int_or(l, loader_key(l, "nextn_predict_layers"), 0, model->n_layer - 1, 0);
        const bool draft = extra > 0 && model->family->draft;
        model->n_layer -= (int32_t) extra;
        model->draft = draft ? loader_alloc(l, sizeof(*model->draft)) : NULL;
        model->info.has_draft_block = draft;
        loader_skip_layers(l, model->n_layer + draft, extra - draft);
    }
    model->layers =
            loader_alloc(l, (size_t) (l->failed ? 1 : model->n_layer + 1) * sizeof(struct layer));
    model->info.trained_length =
            ours ? loader_int_or(l, "lrnn.context_length_trained", 1, INT64_MAX, 0)
                 : loader_int_or(l, loader_key(l, "context_length"), 0, INT64_MAX, 0);
    if (!ours && model->info.trained_length == 1048576) { // llama.cpp writes this for "unknown"
        model->info.trained_length = 0;
    }
    // RWKV has only the second key of llama.cpp, and so have some files of Nemotron-H
    const char * rms_eps = loader_key(l, "attention.layer_norm_rms_epsilon");
    const char * layer_eps = loader_key(l, "attention.layer_norm_epsilon");
    const bool   only_layer_eps = model_file_find_key(l->file, rms_eps) == NULL &&
                                model_file_find_key(l->file, layer_eps) != NULL;
    const char * eps = ours ? "lrnn.norm_epsilon" : only_layer_eps ? layer_eps : rms_eps;
    model->norm_eps = loader_float(l, eps, 1e-12f, 1.0f);
    model->final_norm = loader_bool_or(l, loader_key(l, "final_norm"), true);
    model->logit_soft_cap = loader_float_or(l, loader_key(l, "logit_soft_cap"), 1e-6f, 1e6f, 0.0f);
    // Granite's multipliers; 0 is none in files of llama.cpp
    model->embd_scale = loader_float_or(l, loader_key(l, "embedding_scale"), 0.0f, 1e6f, 0.0f);
    model->residual_scale = loader_float_or(l, loader_key(l, "residual_scale"), 0.0f, 1e6f, 0.0f);
    model->logit_scale = loader_float_or(l, loader_key(l, "logit_scale"), 0.0f, 1e6f, 0.0f);
    return !l->failed && layer_kinds_load(l);
}

// Tensors outside the layers: embedding, output and their norms.
static bool load_globals(struct loader * l) {
    struct lrnn_model * model = l->model;
    const int64_t       D = model->n_embd;

    model->token_embd = loader_tensor_2d(l, -1, "token_embd.weight", TENSOR_REQUIRED, D, 0);
    if (l->failed) {
        return false;
    }
    model->info.n_vocab = model->token_embd->ne[1];
    const int64_t V = model->info.n_vocab;
    const int64_t said = l->llama_cpp ? V : loader_int_or(l, "lrnn.vocab_size", 1, INT64_MAX, V);
    if (!l->failed && said != V) {
        return loader_fail(l,
                "key 'lrnn.vocab_size' is %lld; expected %lld, the rows of "
                "token_embd.weight",
                (long long) said, (long long) V);
    }
    const char * last = model->family->output_norm; // its name may be that of the embedding's norm
    if (last == NULL) {
        model->embd_norm =
                loader_tensor_1d(l, -1, "token_embd_norm.weight", TENSOR_F32 | TENSOR_OPTIONAL, D);
        model->embd_norm_b =
                loader_tensor_1d(l, -1, "token_embd_norm.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    }

    l->device = model->output_device;
    model->output = loader_tensor_2d(l, -1, "output.weight", TENSOR_OPTIONAL, D, V);
    if (model->output == NULL) { // tied to the embedding, which is on the CPU
        model->output = l->device == 0 ? model->token_embd
                                       : loader_tensor_2d(
                                                 l, -1, "token_embd.weight", TENSOR_REQUIRED, D, V);
    }
    if (model->final_norm) {
        model->output_norm =
                loader_tensor_1d(l, -1, last != NULL ? last : "output_norm.weight", TENSOR_F32, D);
        model->output_norm_b =
                loader_tensor_1d(l, -1, "output_norm.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    }
    l->device = 0;
    return !l->failed;
}

static bool load_layers(struct loader * l) {
    struct lrnn_model *   model = l->model;
    const struct family * mixer = family_mixer(model->family);
    if (mixer->load != NULL) {
        model->shared = loader_alloc(l, mixer->shared_size);
        if (model->shared == NULL || !mixer->load(l)) {
            return false;
        }
    }
    for (int32_t il = 0; il < model->n_layer; ++il) {
        struct layer * layer = &model->layers[il];
        l->device = layer->device;
        if (!layer_load(l, il, layer)) {
            return false;
        }
    }
    return model->draft == NULL || draft_block_load(l);
}

// True if exact cuts cost less than 10 % and cover all matrices. Products with Q8_0 and Q4_0 are
// exact in any case. Those with other quantized types never are, and a matrix that is not quantized
// takes up to four times as long. docs/notes/accuracy.md has the measurements.
static bool exact_cuts_are_cheap(const struct lrnn_model * model) {
    int64_t n = 0, n_slow = 0; // weights of matrices
    for (size_t i = 0; i < model_file_n_tensors(model->file); ++i) {
        const struct model_tensor * t = model_file_tensor(model->file, i);
        const bool                  exact = t->type == GGML_TYPE_Q8_0 || t->type == GGML_TYPE_Q4_0;
        if (quantize_role_of(t->name) == QUANTIZE_VECTOR) {
            continue;
        }
        if (ggml_is_quantized(t->type) && !exact) {
            return false;
        }
        const int64_t n_weights = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        n += n_weights;
        n_slow += exact ? 0 : n_weights;
    }
    return 16 * n_slow < n;
}

// What follows from the layers and tensors that were read.
static bool fill_info(struct loader * l) {
    struct lrnn_model * model = l->model;
    char *              layers = loader_alloc(l, (size_t) model->n_layer + 1);
    if (layers == NULL) {
        return false;
    }
    for (int32_t il = 0; il < model->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        const bool experts = layer->ffn == FFN_RELU2_EXPERTS || layer->ffn == FFN_SWIGLU_EXPERTS;
        layers[il] = (experts ? "ERAB" : "-RAB")[layer->recurrent + 2 * layer->attention];
        model->info.n_layer_attention += layer->attention;
        model->info.n_layer_recurrent += layer->recurrent;
        model->info.cache_bytes +=
                (layer->cache_k + layer->cache_v) * (int64_t) sizeof(ggml_fp16_t);
        for (int32_t i = 0; i < layer->n_states; ++i) {
            model->info.state_bytes += layer->state_size[i] * (int64_t) sizeof(float);
        }
    }
    for (size_t i = 0; i < model_file_n_tensors(model->file); ++i) {
        const struct model_tensor * t = model_file_tensor(model->file, i);
        model->is_quantized |= ggml_is_quantized(t->type);
        model->info.weight_bytes += (int64_t) t->size;
    }
    model->info.cheap_exact_cuts = exact_cuts_are_cheap(model);
    model->info.layers = layers;
    model->info.n_layer = model->n_layer;
    model->info.n_embd = model->n_embd;
    model->info.identity = model_file_identity(model->file);
    return true;
}

static bool load_tokenizer(struct loader * l) {
    struct lrnn_model * model = l->model;
    if (!tokenizer_load(l, model->info.n_vocab, &model->tokenizer)) {
        return false;
    }
    const struct tokenizer * tok = model->tokenizer;
    model->info.has_tokenizer = tok != NULL;
    model->info.bos = tok != NULL ? tokenizer_bos_id(tok) : -1;
    model->info.eos = tok != NULL ? tokenizer_eos_id(tok) : -1;
    model->info.add_bos = tok != NULL && tokenizer_adds_bos(tok);
    model->info.add_eos = tok != NULL && tokenizer_adds_eos(tok);
    return true;
}

static bool load(struct loader * l, const struct lrnn_model_params * params) {
    struct lrnn_model * model = l->model;
    if (!load_identity(l) || !load_shape(l) || !placement_of_layers(l, params) ||
            !weights_open(l) || !load_globals(l) || !load_tokenizer(l) || !load_layers(l) ||
            !loader_all_used(l)) {
        return false;
    }
    if (!fill_info(l) || !weights_fetch(l, params)) {
        return false;
    }
    const char * warning = model_file_warning(model->file);
    if (warning != NULL && model->log != NULL) {
        model->log(LRNN_LOG_WARNING, warning, model->log_user);
    }
    placement_log(model);
    return true;
}

struct lrnn_model * lrnn_model_load(
        const char * path, const struct lrnn_model_params * params, struct lrnn_error * err) {
    struct lrnn_model * model = calloc(1, sizeof(*model));
    struct arena *      arena = arena_new();
    if (model == NULL || arena == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", path);
        free(model);
        arena_free(arena);
        return NULL;
    }
    if (params != NULL) {
        model->log = params->log;
        model->log_user = params->log_user;
    }
    model->arena = arena;
    model->file = model_file_open(path, err);

    struct loader l = {
        .file = model->file,
        .arena = arena,
        .model = model,
        .err = err,
    };
    if (model->file == NULL || !load(&l, params)) {
        lrnn_model_free(model);
        return NULL;
    }
    return model;
}

void lrnn_model_free(struct lrnn_model * model) {
    if (model == NULL) {
        return;
    }
    tokenizer_free(model->tokenizer);
    weights_free(model);
    model_file_free(model->file);
    arena_free(model->arena);
    free(model);
}
