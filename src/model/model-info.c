// The public functions that describe a model: its hyperparameters, and the keys and tensors of its
// file.

#include "lrnn.h"
#include "model/model.h"

#include "file/model-file.h"

#include <string.h>

struct lrnn_model_info lrnn_model_get_info(const struct lrnn_model * model) {
    return model->info;
}

bool lrnn_model_get_tensor(
        const struct lrnn_model * model, int64_t i, struct lrnn_tensor_info * info) {
    if (i < 0 || (uint64_t) i >= model_file_n_tensors(model->file)) {
        return false;
    }
    const struct model_tensor * t = model_file_tensor(model->file, (size_t) i);

    *info = (struct lrnn_tensor_info) {
        .name = t->name,
        .type = ggml_type_name(t->type),
        .n_bytes = (int64_t) t->size,
    };
    memcpy(info->ne, t->ne, sizeof(info->ne));
    return true;
}

const char * lrnn_model_get_string(
        const struct lrnn_model * model, const char * key, size_t * size) {
    struct lrnn_error err;
    struct slice      text;
    if (model_file_text(model->file, key, &text, &err) != KEY_OK) {
        *size = 0;
        return NULL;
    }
    *size = text.size;
    return text.data;
}

bool lrnn_model_get_key(
        const struct lrnn_model * model, int64_t i, int64_t j, struct lrnn_key_info * info) {
    if (i < 0 || (uint64_t) i >= model_file_n_keys(model->file)) {
        return false;
    }
    const struct model_key * key = model_file_key(model->file, (size_t) i);
    const size_t             at = j < 0 ? SIZE_MAX : (size_t) j;
    const struct slice       text = model_key_text(key, at);

    *info = (struct lrnn_key_info) {
        .kind = model_key_kind(key),
        .is_array = key->is_array,
        .n = (int64_t) key->n,
        .integer = key->type == GGUF_TYPE_BOOL ? model_key_bool(key, at) : model_key_int(key, at),
        .number = model_key_float(key, at),
        .name = key->name.data,
        .name_size = key->name.size,
        .string = text.data,
        .string_size = text.size,
    };
    return true;
}
