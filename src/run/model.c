// Loading a model: the file is mapped and checked by model-file.c, then read through loader.c,
// family by family.

#include "run/model.h"

#include "base/arena.h"
#include "file/loader.h"
#include "file/model-file.h"
#include "models/models.h"
#include "run/placement.h"
#include "text/tokenizer.h"
#include "text/tokenizer-load.h"
#include "run/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILY_ADDRESS(name) &family_##name,
static const struct family * const ALL_FAMILIES[] = { FAMILIES(FAMILY_ADDRESS) };
#undef FAMILY_ADDRESS

// llama.cpp's architectures that load as they are; each implies its family and eigenvalue range.
static const char * const LLAMA_ARCHITECTURES[] = { "mamba", "mamba2", "rwkv6", "rwkv7" };

const struct family * family_find(const char * name) {
    for (size_t i = 0; i < sizeof(ALL_FAMILIES) / sizeof(ALL_FAMILIES[0]); ++i) {
        if (strcmp(ALL_FAMILIES[i]->name, name) == 0) {
            return ALL_FAMILIES[i];
        }
    }
    return NULL;
}

static bool is_llama_architecture(const char * arch) {
    for (size_t i = 0; i < sizeof(LLAMA_ARCHITECTURES) / sizeof(LLAMA_ARCHITECTURES[0]); ++i) {
        if (strcmp(LLAMA_ARCHITECTURES[i], arch) == 0) {
            return true;
        }
    }
    return false;
}

static const char * quote(char * buf, size_t size, const char * text) {
    return slice_quote(buf, size, (struct slice) { text, strlen(text) });
}

static bool fail_family(struct loader * l, const char * family) {
    char   quoted[80];
    char   known[512] = "";
    size_t n          = 0;
    for (size_t i = 0; i < sizeof(ALL_FAMILIES) / sizeof(ALL_FAMILIES[0]) && n < sizeof(known);
            ++i) {
        n += (size_t) snprintf(
                known + n, sizeof(known) - n, "%s%s", i > 0 ? ", " : "", ALL_FAMILIES[i]->name);
    }
    return loader_fail(l, "lrnn.family is %s; expected one of %s",
            quote(quoted, sizeof(quoted), family), known);
}

// What family it is and which eigenvalues its transitions have.
static bool load_identity(struct loader * l) {
    struct lrnn_model * model = l->model;

    const char * arch = loader_string(l, "general.architecture");
    model->info.name  = loader_string_or(l, "general.name", "");
    if (l->failed) {
        return false;
    }
    l->arch                  = arch;
    l->llama_cpp             = strcmp(arch, "lrnn") != 0;
    model->info.architecture = arch;

    const char * family = arch;
    if (!l->llama_cpp) {
        loader_int(l, "lrnn.format_version", 1, 1);
        family = loader_string(l, "lrnn.family");
    } else if (!is_llama_architecture(arch)) {
        char quoted[80];
        return loader_fail(l,
                "general.architecture is %s; expected lrnn, mamba, mamba2, rwkv6 or rwkv7",
                quote(quoted, sizeof(quoted), arch));
    }
    if (l->failed) {
        return false;
    }
    model->family = family_find(family);
    if (model->family == NULL) {
        return fail_family(l, family);
    }
    model->info.family = model->family->name;

    static const char * const ranges[] = { "[0,1]", "[-1,1]", "family", NULL };
    const int                 range    = !l->llama_cpp ? loader_word(l, "lrnn.eigenvalues", ranges)
                                         : model->family->own_range ? 2
                                                                    : 0;
    if (l->failed) {
        return false;
    }
    if (range == 1 && !model->family->signed_form) {
        return loader_fail(
                l, "lrnn.eigenvalues is \"[-1,1]\"; family %s has no signed form", family);
    }
    if ((range == 2) != model->family->own_range) {
        return loader_fail(l, "lrnn.eigenvalues is \"%s\"; expected \"%s\" for family %s",
                ranges[range], model->family->own_range ? "family" : "[0,1] or [-1,1]", family);
    }
    model->is_signed = range == 1;
    for (size_t i = 0; i < model_file_n_tensors(model->file); ++i) {
        model->is_quantized |= ggml_is_quantized(model_file_tensor(model->file, i)->type);
    }
    model->info.eigenvalues  = ranges[range];
    model->info.range_source = loader_string_or(l, "lrnn.eigenvalues_source", "");
    model->info.source       = loader_string_or(l, "lrnn.source", "");
    return !l->failed;
}

// Which layers are attention.
static bool load_layer_kinds(struct loader * l) {
    struct lrnn_model * model = l->model;
    const bool          all   = model->family == &family_transformer;
    for (int32_t il = 0; il < model->n_layer; ++il) {
        model->layers[il].attention = all;
    }
    size_t         n;
    struct slice * kinds = loader_strings(l, "lrnn.layer_kinds", &n);
    if (kinds == NULL) {
        return !l->failed;
    }
    if (n != (size_t) model->n_layer) {
        loader_fail(l, "lrnn.layer_kinds has %zu elements; expected %d", n, model->n_layer);
    }
    for (int32_t il = 0; il < model->n_layer && !l->failed; ++il) {
        const bool attention = slice_is(kinds[il], "attention");
        char       quoted[80];
        if (!attention && !slice_is(kinds[il], "recurrent")) {
            loader_fail(l, "lrnn.layer_kinds[%d] is %s; expected recurrent or attention", il,
                    slice_quote(quoted, sizeof(quoted), kinds[il]));
        } else if (all && !attention) {
            loader_fail(l,
                    "lrnn.layer_kinds[%d] is \"recurrent\"; family transformer expects \"attention\"",
                    il);
        }
        model->layers[il].attention = attention;
    }
    free(kinds);
    return !l->failed;
}

static bool load_shape(struct loader * l) {
    struct lrnn_model * model = l->model;
    const bool          ours  = !l->llama_cpp;

    model->n_embd  = loader_int(l, loader_key(l, "embedding_length"), 1, 1 << 20);
    model->n_layer = (int32_t) loader_int(l, loader_key(l, "block_count"), 1, 4096);
    model->n_ff    = loader_int_or(l, loader_key(l, "feed_forward_length"), 0, 1 << 24, 0);
    model->layers =
            loader_alloc(l, (size_t) (l->failed ? 1 : model->n_layer) * sizeof(struct layer));
    model->info.trained_length =
            ours ? loader_int_or(l, "lrnn.context_length_trained", 1, INT64_MAX, 0)
                 : loader_int_or(l, loader_key(l, "context_length"), 0, INT64_MAX, 0);
    if (!ours && model->info.trained_length == 1048576) { // llama.cpp writes this for "unknown"
        model->info.trained_length = 0;
    }
    const char * norm_epsilon = ours ? "norm_epsilon"
                                : strncmp(l->arch, "rwkv", 4) == 0
                                        ? "attention.layer_norm_epsilon"
                                        : "attention.layer_norm_rms_epsilon";
    model->norm_eps           = loader_float(l, loader_key(l, norm_epsilon), 1e-12f, 1.0f);
    model->final_norm         = loader_bool_or(l, loader_key(l, "final_norm"), true);
    model->logit_soft_cap = loader_float_or(l, loader_key(l, "logit_soft_cap"), 1e-6f, 1e6f, 0.0f);
    return !l->failed && load_layer_kinds(l);
}

static bool load_globals(struct loader * l) {
    struct lrnn_model * model = l->model;
    const int64_t       D     = model->n_embd;

    model->token_embd = loader_tensor_2d(l, -1, "token_embd.weight", TENSOR_REQUIRED, D, 0);
    if (l->failed) {
        return false;
    }
    model->info.n_vocab = model->token_embd->ne[1];
    const int64_t said =
            l->llama_cpp ? model->info.n_vocab
                         : loader_int_or(l, "lrnn.vocab_size", 1, INT64_MAX, model->info.n_vocab);
    if (!l->failed && said != model->info.n_vocab) {
        return loader_fail(l, "lrnn.vocab_size is %lld; token_embd.weight has %lld rows",
                (long long) said, (long long) model->info.n_vocab);
    }
    model->embd_norm =
            loader_tensor_1d(l, -1, "token_embd_norm.weight", TENSOR_F32 | TENSOR_OPTIONAL, D);
    model->embd_norm_b =
            loader_tensor_1d(l, -1, "token_embd_norm.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);

    l->device = model->output_device;
    model->output =
            loader_tensor_2d(l, -1, "output.weight", TENSOR_OPTIONAL, D, model->info.n_vocab);
    if (model->output ==
            NULL) { // tied: where the rows are looked up, and a second time where the product is computed
        model->output = l->device == 0 ? model->token_embd
                                       : loader_tensor_2d(l, -1, "token_embd.weight",
                                                 TENSOR_REQUIRED, D, model->info.n_vocab);
    }
    if (model->final_norm) {
        model->output_norm = loader_tensor_1d(l, -1, "output_norm.weight", TENSOR_F32, D);
        model->output_norm_b =
                loader_tensor_1d(l, -1, "output_norm.bias", TENSOR_F32 | TENSOR_OPTIONAL, D);
    }
    l->device = 0;
    return !l->failed;
}

static void count_bytes(struct lrnn_model * model) {
    for (int32_t il = 0; il < model->n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        model->info.n_layer_attention += layer->attention;
        model->info.cache_bytes += 2 * layer->cache_size * (int64_t) sizeof(float);
        for (int32_t i = 0; i < layer->n_states; ++i) {
            model->info.state_bytes += layer->state_size[i] * (int64_t) sizeof(float);
        }
    }
    for (size_t i = 0; i < model_file_n_tensors(model->file); ++i) {
        model->info.weight_bytes += (int64_t) model_file_tensor(model->file, i)->size;
    }
    model->info.n_layer  = model->n_layer;
    model->info.n_embd   = model->n_embd;
    model->info.identity = model_file_identity(model->file);
}

static bool load(struct loader * l, const struct lrnn_model_params * params) {
    struct lrnn_model * model = l->model;
    if (!load_identity(l) || !load_shape(l) || !placement_choose(l, params) || !weights_open(l) ||
            !load_globals(l) || !vocab_load(l)) {
        return false;
    }
    if (model->family->load != NULL && !model->family->load(l)) {
        return false;
    }
    for (int32_t il = 0; il < model->n_layer; ++il) {
        struct layer * layer = &model->layers[il];
        l->device            = layer->device;
        if (layer->attention ? !attention_load_layer(l, il, layer)
                             : !model->family->load_layer(l, il, layer)) {
            return false;
        }
    }
    char why[512];
    if (!model_file_all_used(model->file, why, sizeof(why))) {
        l->failed = true;
        snprintf(l->err, l->err_size, "%s", why);
        return false;
    }
    count_bytes(model);
    if (!weights_fetch(l, params)) {
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
        const char * path, const struct lrnn_model_params * params, char * err, size_t err_size) {
    struct lrnn_model * model = calloc(1, sizeof(*model));
    struct arena *      arena = arena_new();
    if (model == NULL || arena == NULL) {
        snprintf(err, err_size, "%s: out of memory", path);
        free(model);
        arena_free(arena);
        return NULL;
    }
    if (params != NULL) {
        model->log      = params->log;
        model->log_user = params->log_user;
    }
    model->arena = arena;
    model->file  = model_file_open(path, err, err_size);

    struct loader l = { .model = model, .err = err, .err_size = err_size };
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

bool lrnn_model_get_tensor(
        const struct lrnn_model * model, int64_t i, struct lrnn_tensor_info * info) {
    if (i < 0 || (uint64_t) i >= model_file_n_tensors(model->file)) {
        return false;
    }
    const struct model_tensor * t = model_file_tensor(model->file, (size_t) i);
    *info                         = (struct lrnn_tensor_info) {
                                .name = t->name, .type = ggml_type_name(t->type), .n_bytes = (int64_t) t->size
    };
    memcpy(info->ne, t->ne, sizeof(info->ne));
    return true;
}

const char * lrnn_model_get_string(
        const struct lrnn_model * model, const char * key, size_t * size) {
    char         err[256];
    struct slice text;
    if (model_file_text(model->file, key, &text, err, sizeof(err)) != KEY_OK) {
        *size = 0;
        return NULL;
    }
    *size = text.size;
    return text.data;
}

static enum lrnn_key_kind kind_of_key(enum gguf_type type) {
    switch (type) {
        case GGUF_TYPE_FLOAT32:
        case GGUF_TYPE_FLOAT64: return LRNN_KEY_FLOAT;
        case GGUF_TYPE_BOOL: return LRNN_KEY_BOOL;
        case GGUF_TYPE_STRING: return LRNN_KEY_STRING;
        default: return LRNN_KEY_INT;
    }
}

bool lrnn_model_get_key(
        const struct lrnn_model * model, int64_t i, int64_t j, struct lrnn_key_info * info) {
    if (i < 0 || (uint64_t) i >= model_file_n_keys(model->file)) {
        return false;
    }
    const struct model_key * key  = model_file_key(model->file, (size_t) i);
    const size_t             at   = j < 0 ? SIZE_MAX : (size_t) j;
    const struct slice       text = model_key_text(key, at);
    *info                         = (struct lrnn_key_info) {
                                .kind      = kind_of_key(key->type),
                                .is_array  = key->is_array,
                                .n         = (int64_t) key->n,
                                .integer   = key->type == GGUF_TYPE_BOOL ? model_key_bool(key, at) : model_key_int(key, at),
                                .number    = model_key_float(key, at),
                                .name      = key->name.data,
                                .name_size = key->name.size,
                                .string    = text.data,
                                .string_size = text.size,
    };
    return true;
}

struct lrnn_model_info lrnn_model_get_info(const struct lrnn_model * model) {
    return model->info;
}
